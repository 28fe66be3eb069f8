"""Weights of the rows through the training: the problem with C_i = C weight_i, by brute force and a conic solver."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale import Dataset, MLLKMClassifier, MLLKMClassifierCV, train
from mllkm_scale.errors import CheckpointError, DataError
from mllkm_scale.path.training import train_path

GAMMAS = (0.1, 0.5)
GIVEN = {"C": 2.0, "gammas": GAMMAS, "scaling": "none", "local_bias": 0.5, "n_jobs": 1}
FORMS = {
    "working sets": {},
    "one vs rest": {"multi_class": "ovr"},
    "component-wise": {"componentwise": True},
    "listing": {"strategy": "paper"},
}


@pytest.fixture(scope="module", params=["breast_cancer", "iris"])
def problem(request, small_problem):
    """Data, labels, signs, and weights that differ by a factor of a hundred."""
    X, signs = small_problem(request.param, 40)
    y = signs.argmax(axis=1) if signs.shape[1] > 1 else (signs[:, 0] > 0).astype(int)
    return X[:, :5], y, signs, np.random.default_rng(0).permutation(np.geomspace(0.1, 10.0, 40))


@pytest.fixture(scope="module", autouse=True)
def short_descents():
    """Weights count in every step of a descent: few show it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mllkm_scale.learn.settings._MOST_EPOCHS", 20)
        yield


@pytest.fixture(scope="module")
def noisy():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 3))
    y = (np.square(X).sum(axis=1) + rng.normal(size=300) > 3).astype(int)
    return X, y, rng.integers(1, 4, 300).astype(float)


@pytest.mark.parametrize("form", FORMS)
def test_training_reaches_the_optimum_of_the_weighted_problem(mkl_reference, problem, form):
    X, y, signs, weights = problem
    tol = 1e-3 if form == "listing" else 1e-5
    result = train(Dataset.from_arrays(X, y, sample_weight=weights), anchors="all", tol=tol, **GIVEN, **FORMS[form])
    certificate, C = result.model.certificate, 2.0 * weights[:, None]
    assert result.status == "converged"
    assert (result.duals <= C * (1 + 1e-12)).all()
    assert certificate.params["C"] == 2.0
    assert certificate.params["mean_weight"] == pytest.approx(weights.mean())
    family = {"map": "gaussian", "componentwise": form == "component-wise", "normalize": "trace", "local_bias": 0.5}
    parts = [signs[:, [k]] for k in range(signs.shape[1])] if form == "one vs rest" else [signs]
    optimum = sum(mkl_reference.optimum(X, part, gammas=GAMMAS, C=C, **family) for part in parts)
    assert certificate.dual <= optimum * (1 + 1e-8)
    assert certificate.primal >= optimum * (1 - 1e-8)
    assert certificate.primal == pytest.approx(optimum, rel=2 * tol)
    if form == "working sets":
        features = mkl_reference.grid_features(X, GAMMAS, **family)
        q = mkl_reference.quadratic_forms(features, result.duals * signs)
        assert certificate.dual == pytest.approx(result.duals.sum() - 0.5 * q.max(), rel=1e-9)


def test_a_machine_as_learned_is_certified_by_its_weighted_loss(noisy):
    X, y, weights = noisy
    data = Dataset.from_arrays(X, y, sample_weight=weights)
    result = train(data, anchors="learned:8", finish="none", C=3.0, n_jobs=1)
    model = result.model
    squares = np.sum(model.coef**2, axis=2) + model.local_coef**2 / model.family.local_bias
    norm = np.sqrt(squares.sum(axis=0) / model.kernel_scale).sum()
    hinge = np.maximum(0.0, 1.0 - (2.0 * y - 1.0) * model.decision_function(X))
    assert model.certificate.primal == pytest.approx(0.5 * norm**2 + 3.0 * weights @ hinge, rel=1e-6)
    assert (result.duals[:, 0] <= 3.0 * weights * (1 + 1e-12)).all()
    assert 0 < model.certificate.dual <= model.certificate.primal


@pytest.mark.parametrize("how", [{"anchors": "all"}, {"anchors": "learned:8", "finish": "mkl"}, {}], ids=str)
def test_rows_of_weight_zero_are_left_out(noisy, how):
    X, y, weights = noisy
    X, y, weights = X[:120], y[:120], weights[:120].copy()
    out = np.arange(120) % 4 == 1
    weights[out] = 0.0
    zero = train(Dataset.from_arrays(X, y, sample_weight=weights), n_jobs=1, **how)
    removed = train(Dataset.from_arrays(X[~out], y[~out], sample_weight=weights[~out]), n_jobs=1, **how)
    for name in ("anchors", "gammas", "weights", "coef", "local_coef"):
        np.testing.assert_array_equal(getattr(zero.model, name), getattr(removed.model, name))
    assert zero.model.calibration == removed.model.calibration
    assert not zero.duals[out].any()
    np.testing.assert_array_equal(zero.duals[~out], removed.duals)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**16), st.integers(8, 14), st.sampled_from([2, 3]))
def test_whole_weights_are_repeated_rows(seed, n, n_classes):
    """The same kernels, and the same optimum."""
    rng = np.random.default_rng(seed)
    X, y, times = rng.normal(size=(n, 2)), np.arange(n) % n_classes, rng.integers(1, 4, n)
    how = {"anchors": X[:5], "normalize": None, "tol": 1e-5, **GIVEN}
    weighted = train(Dataset.from_arrays(X, y, sample_weight=times), **how).model
    repeated = train(Dataset.from_arrays(np.repeat(X, times, axis=0), np.repeat(y, times)), **how).model
    assert weighted.certificate.primal == pytest.approx(repeated.certificate.primal, rel=3e-5)
    assert weighted.certificate.dual == pytest.approx(repeated.certificate.dual, rel=3e-5)


@pytest.mark.parametrize("how", [{"anchors": "all"}, {"anchors": "learned:8", "finish": "mkl"}], ids=str)
def test_weights_and_C_count_by_their_product_and_with_an_automatic_C_by_their_ratios(noisy, how):
    X, y, weights = (part[:120] for part in noisy)

    def coefficients(scale, C):
        return train(Dataset.from_arrays(X, y, sample_weight=scale * weights), C=C, n_jobs=1, **how).model.coef

    np.testing.assert_array_equal(coefficients(4.0, 1.0), coefficients(1.0, 4.0))
    np.testing.assert_array_equal(coefficients(4.0, "auto"), coefficients(1.0, "auto"))
    assert not np.array_equal(coefficients(1.0, 4.0), coefficients(1.0, 1.0))


def test_weights_of_one_are_none(noisy):
    X, y, _ = noisy
    plain, ones = (train(Dataset.from_arrays(X, y, sample_weight=w), n_jobs=1).model for w in (None, np.ones(300)))
    np.testing.assert_array_equal(plain.coef, ones.coef)
    assert plain.calibration == ones.calibration


def test_weights_of_classes_multiply_those_of_rows(noisy):
    X, y, weights = noisy
    how = {"anchors": "all", "C": 1.0, "n_jobs": 1}
    both = train(Dataset.from_arrays(X, y, sample_weight=weights), class_weight={0: 0.5, 1: 3.0}, **how).model
    product = train(Dataset.from_arrays(X, y, sample_weight=weights * np.where(y, 3.0, 0.5)), **how).model
    np.testing.assert_array_equal(both.coef, product.coef)
    assert both.certificate.params["class_weight"] == "0:0.5,1:3"


def test_a_rare_class_is_found_when_classes_are_balanced(noisy):
    X, y, _ = noisy
    rows = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y)[:15]])
    machines = [MLLKMClassifier(class_weight=how, anchors="all", C=1.0, n_jobs=1) for how in (None, "balanced")]
    plain, balanced = (machine.fit(X[rows], y[rows]).predict(X[y == 1]).mean() for machine in machines)
    assert balanced > 1.5 * plain


def test_a_training_is_not_resumed_with_other_weights(noisy, tmp_path):
    X, y, weights = noisy
    how = {"anchors": "all", "C": 1.0, "tol": 1e-4, "n_jobs": 1, "run_dir": tmp_path / "run"}
    whole = train(Dataset.from_arrays(X, y, sample_weight=weights), **(how | {"run_dir": tmp_path / "whole"}))
    train(Dataset.from_arrays(X, y, sample_weight=weights), max_rounds=1, **how)
    for others in (None, 2.0 * weights):
        with pytest.raises(CheckpointError, match="other data or with other parameters"):
            train(Dataset.from_arrays(X, y, sample_weight=others), resume=True, **how)
    resumed = train(Dataset.from_arrays(X, y, sample_weight=weights), resume=True, **how)
    np.testing.assert_array_equal(resumed.model.coef, whole.model.coef)


def test_a_path_of_models_weighs_rows(noisy):
    X, y, weights = noisy
    data = Dataset.from_arrays(X, y, sample_weight=weights)
    path = train_path(data, None, Cs=[0.5, 2.0], anchors="all", n_jobs=1)
    alone = train(data, C=2.0, anchors="all", n_jobs=1).model.certificate
    assert path.models[-1].certificate.primal == pytest.approx(alone.primal, rel=0.01)
    assert path.models[-1].certificate.params["largest_weight"] == 3.0


@pytest.mark.parametrize("weights", [[1.0] * 5, [[1.0] * 6], [1, 1, 1, 1, 1, -1], [1, 1, np.nan, 1, 1, 1], [0.0] * 6])
def test_weights_that_cannot_be_used_are_refused(weights):
    X, y = np.arange(12.0).reshape(6, 2), [0, 1] * 3
    with pytest.raises(DataError, match="sample_weight"):
        MLLKMClassifier(n_jobs=1).fit(X, y, sample_weight=weights)


def test_collections_take_weights_as_arrays_do(noisy, tmp_path):
    da = pytest.importorskip("dask.array")
    X, y, weights = noisy
    how = {"anchors": "all", "C": 1.0, "n_jobs": 1, "scratch_dir": str(tmp_path)}
    plain = MLLKMClassifier(**how).fit(X, y, sample_weight=weights)
    chunked = [da.from_array(values, chunks=(100, *values.shape[1:])) for values in (X, y, weights)]
    lazy = MLLKMClassifier(**how).fit(*chunked)
    np.testing.assert_array_equal(lazy.kernel_coef_, plain.kernel_coef_)
    np.testing.assert_array_equal(lazy.duals_, plain.duals_)


def test_cross_validation_measures_by_weights(noisy):
    X, y, weights = noisy
    machine = MLLKMClassifierCV(MLLKMClassifier(anchors="all", n_jobs=1), Cs=[1.0], cv=2)
    errors = [machine.fit(X, y, sample_weight=w).errors_ for w in (weights, None)]
    assert not np.array_equal(errors[0], errors[1])
    assert machine.fit(X, y, sample_weight=np.ones(300)).errors_ == pytest.approx(errors[1])
