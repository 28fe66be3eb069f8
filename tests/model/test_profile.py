"""What moves the scores: gradients by differences, importances by a plain loop, and where they are kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_selection import SelectFromModel
from sklearn.inspection import permutation_importance

from mllkm_scale import MLLKMClassifier, load_model
from mllkm_scale.data.preparation.scaling import SCALINGS
from mllkm_scale.errors import ModelFileError, ParameterError
from mllkm_scale.kernels.maps import MAPS
from mllkm_scale.model.profile import LEVELS, Profile, gradients, importances

CLASSES = [(0, 1), ("a", "b", "c")]


def scores(model, Z):
    kernels = model.family.kernels(model.anchors, model.gammas)
    return kernels.decide(Z, model.coef, model.local_coef)


@pytest.mark.parametrize("componentwise", [False, True])
@pytest.mark.parametrize("map", MAPS)
def test_gradients_are_those_of_differences(make_model, map, componentwise):
    model = make_model(map, componentwise, 0.3, ("a", "b", "c"), n_features=3)
    Z = np.random.default_rng(3).normal(size=(20, 3))
    found, step = gradients(model, Z), 1e-6
    for l in range(3):
        move = step * np.eye(3)[l]
        expected = (scores(model, Z + move) - scores(model, Z - move)) / (2 * step)
        np.testing.assert_allclose(found[:, :, l], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("map", MAPS)
def test_a_gradient_at_an_anchor_is_finite(make_model, map):
    model = make_model(map, False, 0.3)
    assert np.isfinite(gradients(model, model.anchors)).all()


@pytest.mark.parametrize("n_components", [None, 2])
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("classes", CLASSES)
def test_importances_are_mean_moves_by_the_spread_of_each_feature(make_problem, classes, scaling, n_components):
    made = make_problem(scaling=scaling, n_components=n_components, classes=classes, local_bias=0.2)
    model, Z = made.model, made.samples
    scaling, projection = model.preprocessor.scaling, model.preprocessor.projection
    slopes = gradients(model, Z)
    columns = Z
    if projection is not None:
        columns = (projection.matrix.T @ np.linalg.inv(projection.matrix @ projection.matrix.T) @ Z.T).T
        slopes = slopes @ projection.matrix
    expected = np.zeros(model.n_features_in)
    for j in range(len(expected)):
        own = [c for c in range(scaling.n_columns) if scaling.feature(c) == j]
        for row in slopes:
            moves = row[:, own] @ columns[:, own].std(axis=0)
            expected[j] += abs(moves[0]) if len(moves) == 1 else np.linalg.norm(moves - moves.mean())
    np.testing.assert_allclose(importances(model, Z), expected / expected.sum(), rtol=1e-8)


def test_rows_in_blocks_have_the_importances_of_rows_at_once(make_problem, monkeypatch):
    made = make_problem(classes=("a", "b", "c"))
    whole = importances(made.model, made.samples)
    monkeypatch.setattr("mllkm_scale.model.profile._BLOCK_BYTES", 1)
    np.testing.assert_allclose(importances(made.model, made.samples), whole, rtol=1e-12)


@pytest.fixture(scope="module")
def noisy(real_data):
    """Two features that tell the classes apart, and three that are noise."""
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 5)) * [1, 10, 1, 100, 1]
    y = (X[:, 1] / 10 > X[:, 4] ** 2 - 1).astype(int)
    return X, y


@pytest.mark.parametrize(
    "parameters", [{}, {"anchors": 50, "C": 1.0}, {"componentwise": True, "anchors": 50}, {"metric": "full"}]
)
def test_features_that_tell_the_classes_apart_are_the_important_ones(noisy, parameters):
    X, y = noisy
    machine = MLLKMClassifier(n_jobs=1, **parameters).fit(X, y)
    found = machine.feature_importances_
    assert found.shape == (5,)
    assert found.sum() == pytest.approx(1.0)
    assert found.min() >= 0
    assert set(np.argsort(-found)[:2]) == {1, 4}
    by_permutation = permutation_importance(machine, X, y, n_repeats=3, random_state=0).importances_mean
    assert set(np.argsort(-by_permutation)[:2]) == {1, 4}


def test_selecting_by_model_goes_by_the_importances(noisy):
    X, y = noisy
    selected = SelectFromModel(MLLKMClassifier(anchors=50, n_jobs=1), threshold="mean").fit(X, y)
    assert not hasattr(selected.estimator_, "coef_")
    assert selected.get_support().tolist() == (selected.estimator_.feature_importances_ >= 0.2).tolist()
    assert selected.get_support().tolist() == [False, True, False, False, True]


def test_importances_of_a_table_are_those_of_its_columns(noisy):
    X, y = noisy
    table = pd.DataFrame(X[:, :3], columns=["one", "two", "three"])
    table["colour"] = np.where(X[:, 4] > 0.7, "red", np.where(X[:, 4] < -0.7, "blue", "green"))
    table["constant"] = "always"
    machine = MLLKMClassifier(n_jobs=1, anchors=50).fit(table, y)
    found = dict(zip(machine.feature_names_in_, machine.feature_importances_, strict=True))
    assert sum(found.values()) == pytest.approx(1.0)
    assert sorted(found, key=found.get)[-2:] in (["two", "colour"], ["colour", "two"])
    assert found["constant"] == 0


def test_a_profile_holds_the_quantiles_of_the_rows(make_problem):
    made = make_problem()
    profile = Profile.of(made.model, made.samples)
    assert profile.quantiles.shape == (4, LEVELS)
    np.testing.assert_array_equal(profile.quantiles[:, [0, -1]].T, [made.samples.min(0), made.samples.max(0)])
    edges = np.linspace(made.samples[:, 1].min(), made.samples[:, 1].max(), 9)
    shares = profile.shares(1, edges)
    assert shares.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(shares, np.histogram(made.samples[:, 1], edges)[0] / 30, atol=0.05)


def test_a_profile_is_in_the_model_file(make_problem, tmp_path):
    made = make_problem()
    model = replace(made.model, profile=Profile.of(made.model, made.samples))
    model.save(tmp_path / "a.mllkm")
    loaded = load_model(tmp_path / "a.mllkm")
    np.testing.assert_array_equal(loaded.feature_importances, model.feature_importances)
    np.testing.assert_array_equal(loaded.profile.quantiles, model.profile.quantiles)


def test_a_model_without_a_profile_takes_its_anchors_for_the_rows(make_model):
    model = make_model(local_bias=0.1)
    np.testing.assert_array_equal(model.feature_importances, importances(model, model.anchors))


@pytest.mark.parametrize(
    "harm",
    [
        {"quantiles": np.zeros((3, LEVELS))},
        {"quantiles": np.tile(np.arange(LEVELS)[::-1], (4, 1)).astype(float)},
        {"quantiles": np.full((4, LEVELS), np.nan)},
        {"importances": np.full(4, 0.5)},
        {"importances": np.array([2.0, -1.0, 0.0, 0.0])},
        {"importances": np.full(3, 1 / 3)},
    ],
)
def test_what_is_no_profile_of_the_model_is_refused(make_problem, harm, tmp_path):
    made = make_problem()
    profile = Profile.of(made.model, made.samples)
    with pytest.raises(ParameterError, match="profile of the training rows"):
        replace(made.model, profile=replace(profile, **harm))
    model = replace(made.model, profile=profile)
    for name, values in harm.items():
        object.__setattr__(profile, name, values)
    model.save(tmp_path / "harmed.mllkm")
    with pytest.raises(ModelFileError, match="profile of the training rows"):
        load_model(tmp_path / "harmed.mllkm")
