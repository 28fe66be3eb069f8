"""The learned machine in the space of the kernels: the same function, and norms that explicit features give."""

from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale.base.threads import Threads
from mllkm_scale.data import Dataset, Preprocessor
from mllkm_scale.data.labels import signs_of
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import MAPS
from mllkm_scale.learn.gradients import make_block
from mllkm_scale.learn.proposals import Learned, learn_kernels
from mllkm_scale.learn.settings import LearnSettings
from mllkm_scale.learn.start import folded, start_of

BIAS = 0.6


def learn(X, codes, family, metric, **given):
    """A machine that was learned on rows prepared by a standard scaling, and that preparation."""
    data = Dataset.from_arrays(X)
    preprocessor = Preprocessor.fit(data)
    prepared = preprocessor.transform(X)
    signs = signs_of(codes, int(codes.max()) + 1)
    settings = LearnSettings(**{"n_kernels": 6, "epochs": 4, "batch_rows": 32, "metric": metric, "ridge": 1e-4} | given)
    source = Dataset.from_arrays(prepared)
    learned = learn_kernels(source, signs, codes, family, settings, Threads(), hold_out=False)
    return learned, preprocessor, prepared


def decide(learned, prepared):
    """f of the machine of the descent, in double precision."""
    block = make_block(learned.machine.layout, len(prepared), np.float64)
    return block.decide(learned.machine, prepared.astype(np.float64)).copy()


@pytest.fixture(scope="module")
def wine(real_data):
    X, y = real_data("wine")
    return X[:, :5], y


@pytest.mark.parametrize("map_name", MAPS)
@pytest.mark.parametrize("componentwise", [False, True], ids=["global", "componentwise"])
@pytest.mark.parametrize("metric", [None, "diagonal", "full", 3], ids=str)
def test_local_predictors_in_the_folded_space_are_the_function_of_the_descent(wine, map_name, componentwise, metric):
    X, codes = wine
    family = Family(map_name, componentwise, BIAS)
    learned, preprocessor, prepared = learn(X, codes, family, metric)
    assert learned.kept_features.all()
    rows = folded(preprocessor, learned).transform(X)
    start = start_of(learned, family, rows)
    F = decide(learned, prepared)
    assert np.abs(F).max() > 0.05
    np.testing.assert_allclose(start.decide(rows.astype(np.float64)), F, rtol=0, atol=1e-4 * np.abs(F).max())


@pytest.mark.parametrize("map_name", MAPS)
@pytest.mark.parametrize("componentwise", [False, True], ids=["global", "componentwise"])
@pytest.mark.parametrize("metric", [None, "diagonal", "full"], ids=str)
def test_norms_are_those_of_vectors_whose_products_with_explicit_features_give_f(
    mkl_reference, wine, map_name, componentwise, metric
):
    X, codes = wine
    family = Family(map_name, componentwise, BIAS)
    learned, preprocessor, _ = learn(X, codes, family, metric)
    rows = folded(preprocessor, learned).transform(X).astype(np.float64)
    start = start_of(learned, family, rows)
    kernels, F = start.kernels, np.zeros((len(rows), 3))
    for m in range(len(kernels)):
        phi = mkl_reference.kernel_features(
            rows, kernels.anchors[m], kernels.gammas[m], map=map_name, componentwise=componentwise, local_bias=BIAS
        )
        phi *= np.sqrt(kernels.scales[m])
        w = np.column_stack([start.coef[:, m], start.local_coef[:, m] / np.sqrt(BIAS)]) / np.sqrt(kernels.scales[m])
        F += phi @ w.T
        assert start.norms()[m] == pytest.approx(np.linalg.norm(w))
        assert start.norms(slice(1, 2))[m] == pytest.approx(np.linalg.norm(w[1]))
    np.testing.assert_allclose(start.decide(rows), F, rtol=1e-6, atol=1e-8 * np.abs(F).max())


def test_constant_features_are_not_read_any_more_and_f_is_the_same(wine):
    X, codes = wine
    X = np.insert(X, 2, 7.0, axis=1)
    family = Family("gaussian", False, BIAS)
    learned, preprocessor, prepared = learn(X, codes, family, "diagonal")
    assert learned.kept_features.tolist() == [True, True, False, True, True, True]
    rows = folded(preprocessor, learned).transform(X)
    assert rows.shape[1] == 5
    start = start_of(learned, family, rows)
    F = decide(learned, prepared)
    np.testing.assert_allclose(start.decide(rows.astype(np.float64)), F, rtol=0, atol=1e-4 * np.abs(F).max())


def vanishing(learned, feature, factor):
    """The same learned machine, with a feature that hardly counts in its metric."""
    machine = learned.machine.copy()
    machine.metric[feature] = np.log(factor)
    return Learned(machine, learned.spread, learned.held, None, ())


@pytest.mark.parametrize(("factor", "kept"), [(1e-2, True), (1e-5, False)])
def test_a_feature_that_vanishes_in_the_metric_is_dropped(wine, factor, kept):
    X, codes = wine
    family = Family("gaussian", False, BIAS)
    learned, preprocessor, prepared = learn(X, codes, family, "diagonal")
    learned = vanishing(learned, 1, factor)
    assert learned.kept_features.tolist() == [True, kept, True, True, True]
    rows = folded(preprocessor, learned).transform(X)
    assert rows.shape[1] == 4 + kept
    F = decide(learned, prepared)
    found = start_of(learned, family, rows).decide(rows.astype(np.float64))
    np.testing.assert_allclose(found, F, rtol=0, atol=1e-3 * np.abs(F).max())


def test_importance_is_the_spread_in_the_metric(wine):
    X, codes = wine
    family = Family("gaussian", False, BIAS)
    for metric in (None, "diagonal", "full"):
        learned, _, prepared = learn(X, codes, family, metric)
        if metric == "full":
            spread = np.linalg.norm(learned.machine.metric, axis=0) * prepared.std(axis=0)
        else:
            spread = learned.machine.map(prepared).std(axis=0)
        np.testing.assert_allclose(learned.importance, spread / spread.max(), rtol=1e-4)


def test_kernels_without_a_reference_are_as_they_are_and_those_that_reach_nothing_are_left_out(wine):
    X, codes = wine
    family = Family("linear", False, BIAS)
    learned, preprocessor, _ = learn(X, codes, family, "diagonal")
    rows = folded(preprocessor, learned).transform(X)
    assert (start_of(learned, family, None).kernels.scales == 1.0).all()
    machine = learned.machine.copy()
    machine.anchors[2] += 1e6
    away = Learned(machine, learned.spread, learned.held, None, ())
    start = start_of(away, family, rows)
    assert len(start.kernels) == 5
    assert start.coef.shape == (3, 5, 5)
    machine.anchors[:] += 1e6
    with pytest.raises(ParameterError, match="no learned kernel reaches a sample"):
        start_of(away, family, rows)


def test_gammas_for_a_grid_are_quantiles_of_those_that_were_learned(wine):
    X, codes = wine
    family = Family("gaussian", False, BIAS)
    learned, preprocessor, _ = learn(X, codes, family, "diagonal", n_kernels=30)
    start = start_of(learned, family, folded(preprocessor, learned).transform(X))
    gammas, spread = np.sort(start.kernels.gammas), start.spread_gammas()
    assert len(spread) == 4
    assert (np.diff(spread) > 0).all()
    assert [np.count_nonzero(gammas < value) for value in spread] == [4, 11, 19, 26]


def test_without_a_local_bias_a_learned_machine_has_no_norm(wine):
    X, codes = wine
    family = Family("gaussian", False, 0.0)
    learned, preprocessor, _ = learn(X, codes, family, None)
    start = start_of(learned, family, preprocessor.transform(X))
    with pytest.raises(ParameterError, match="local_bias"):
        start.norms()
