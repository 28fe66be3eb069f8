"""What kernels and features add to a score: the sums are the score, in every form, and belong to what the user gave."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale import MLLKMClassifier
from mllkm_scale.data.preparation.scaling import SCALINGS
from mllkm_scale.errors import DataError
from mllkm_scale.kernels.maps import MAPS, bumps

CLASSES = [(0, 1), ("a", "b", "c")]


def require_sums(model, x, found):
    scores = np.atleast_1d(model.direct().decision_function(np.atleast_2d(x))[0])
    size = 1 + np.abs(found.kernels).sum()
    np.testing.assert_allclose(found.scores, scores, rtol=0, atol=1e-9 * size)
    np.testing.assert_allclose(found.kernels.sum(axis=1), found.scores, rtol=0, atol=1e-12 * size)
    added = found.contributions.sum(axis=1) + found.constants
    np.testing.assert_allclose(added, found.scores, rtol=0, atol=1e-11 * (size + np.abs(found.contributions).sum()))


@pytest.mark.parametrize("n_components", [None, 2])
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("componentwise", [False, True])
@pytest.mark.parametrize("map", MAPS)
def test_the_sums_of_an_explanation_are_the_scores(make_problem, map, componentwise, classes, scaling, n_components):
    made = make_problem(map, componentwise, 0.3, classes, scaling=scaling, n_components=n_components)
    for x in (made.raw[0], made.raw[7], 3 * made.raw[1]):
        found = made.model.explain(x)
        require_sums(made.model, x, found)
        assert found.label == made.model.direct().predict(x[None])[0]


@given(seed=st.integers(0, 2**16), bias=st.sampled_from([0.0, 0.5]), data=st.data())
@settings(max_examples=25, deadline=None)
def test_a_plain_loop_finds_the_same_contributions(make_model, seed, bias, data):
    map = data.draw(st.sampled_from(MAPS))
    componentwise = data.draw(st.booleans())
    model = make_model(map, componentwise, bias, ("a", "b", "c"), seed=seed)
    x = np.random.default_rng(seed + 1).normal(size=4) * 3 + 1
    z, found = model.preprocessor.transform(x[None])[0], model.explain(x)
    features, constants = np.zeros((3, 4)), np.zeros(3)
    for k in range(3):
        for m in range(model.n_kernels):
            offset = z - model.anchors[m]
            if componentwise:
                h = bumps(map, offset**2, model.gammas[m])
                features[k] += h * (offset * model.coef[k, m] + model.local_coef[k, m] / 4)
            else:
                h = bumps(map, np.array([offset @ offset]), model.gammas[m])[0]
                features[k] += h * offset * model.coef[k, m]
                constants[k] += h * model.local_coef[k, m]
    np.testing.assert_allclose(found.contributions, features, atol=1e-10)
    np.testing.assert_allclose(found.constants, constants, atol=1e-10)


@pytest.mark.parametrize("rows", [2, 6])
def test_any_linear_map_of_the_features_is_undone(make_problem, rows):
    made = make_problem(n_features=4, local_bias=0.2, classes=("a", "b", "c"))
    matrix = np.random.default_rng(0).normal(size=(rows, 4))  # six rows leave anchors that no row is mapped to
    prepared = made.model.preprocessor.mapped(matrix)
    random = np.random.default_rng(1)
    model = made.model._with(
        preprocessor=prepared, anchors=random.normal(size=(7, rows)), coef=random.normal(size=(3, 7, rows))
    )
    require_sums(model, made.raw[3], model.explain(made.raw[3]))
    assert len(model.explain(made.raw[3]).features) == 4


def test_a_feature_that_the_kernels_do_not_see_adds_nothing(make_problem):
    made = make_problem(n_features=4)
    prepared = made.model.preprocessor.scaled(np.ones(4), np.array([True, False, True, True]))
    kept = [0, 2, 3]
    model = made.model._with(
        preprocessor=prepared, anchors=made.model.anchors[:, kept], coef=made.model.coef[:, :, kept]
    )
    found = model.explain(made.raw[0])
    assert found.features == ("feature 0", "feature 1", "feature 2", "feature 3")
    assert found.contributions[0, 1] == 0
    assert all(found.contributions[0, kept] != 0)


def test_shape_functions_are_the_contributions_of_a_component_wise_machine(make_problem):
    made = make_problem(componentwise=True, local_bias=0.4)
    found = made.model.explain(made.raw[5])
    z = made.samples[5]
    expected = [made.model.shape_function(l, [z[l]])[0] for l in range(4)]
    np.testing.assert_allclose(found.contributions[0], expected, atol=1e-12)
    assert found.constants.tolist() == [0.0]


def test_behind_a_projection_a_component_wise_machine_is_explained_by_components(make_problem):
    made = make_problem(componentwise=True, n_components=2)
    assert made.model.explain(made.raw[0]).features == ("principal component 1", "principal component 2")
    mapped = made.model._with(preprocessor=made.model.preprocessor.mapped(np.eye(2)))
    assert mapped.explain(made.raw[0]).features == ("direction 1", "direction 2")


@pytest.fixture(scope="module")
def tables():
    """A table with everything in it, its labels, and a machine of each form."""
    random = np.random.default_rng(0)
    n = 300
    X = pd.DataFrame(
        {
            "size": random.normal(size=n),
            "colour": random.choice(["red", "green", "blue"], n),
            "town": random.choice([f"town {i}" for i in range(60)], n),
            "open": random.random(n) < 0.5,
            "same": "always",
        }
    )
    X.loc[::7, "size"] = None
    y = np.where((X["size"].fillna(1) > 0) ^ (X["colour"] == "red"), "yes", "no")
    forms = [{}, {"componentwise": True, "anchors": 60}, {"n_components": 5, "anchors": 60}]
    return X, y, [MLLKMClassifier(n_jobs=1, **form).fit(X, y) for form in forms]


@pytest.mark.parametrize("form", range(3))
def test_rows_of_a_table_are_explained_by_its_columns(tables, form):
    X, _, machines = tables
    machine = machines[form]
    for at in (0, 1, 7):
        found = machine.explain(X.iloc[[at]])
        assert found.features == tuple(X.columns)
        assert found.values[1] == X["colour"][at]
        assert found.values[0] == ("missing" if at % 7 == 0 else f"{X['size'][at]:.6g}")
        assert found.values[4] == "not used"
        assert found.contributions[0, 4] == 0
        np.testing.assert_allclose(found.scores, machine.model_.direct().decision_function(X.iloc[[at]]), atol=1e-9)
        added = found.contributions.sum() + found.constants[0]
        assert added == pytest.approx(found.scores[0], abs=1e-9)
        np.testing.assert_allclose(found.probabilities, machine.predict_proba(X.iloc[[at]])[0], atol=1e-6)


def test_a_row_may_be_given_in_any_way(tables, real_data):
    X, _, machines = tables
    scores = [
        machines[0].explain(row).scores[0]
        for row in (X.iloc[[3]], X.iloc[3], dict(X.iloc[3]), X.iloc[3].tolist(), X.iloc[[3], ::-1])
    ]
    np.testing.assert_allclose(scores, scores[0], rtol=1e-12)
    X, y = real_data("iris")
    machine = MLLKMClassifier(n_jobs=1, anchors=30).fit(X, y)
    rows = (X[3], X[3:4], X[3].tolist(), pd.Series(X[3]))
    for row in rows:
        np.testing.assert_array_equal(machine.explain(row).scores, machine.explain(X[3]).scores)


def test_what_is_no_row_is_refused(tables, real_data):
    X, y = real_data("iris")
    machine = MLLKMClassifier(n_jobs=1, anchors=30).fit(X, y)
    for row, why in [
        (X[:2], "x has 2 rows: explain one at a time"),
        (X[0, :3], "x has 3 features per row, but the model was trained with 4"),
        ([1.0, 2.0, np.nan, 3.0], "NaN"),
        (5.0, r"x has shape \(\): give one row of 4 numbers"),
        (["a", "b", "c", "d"], "features must be real numbers"),
        ({"width": 1.0}, "x has names, but the model knows none"),
    ]:
        with pytest.raises(DataError, match=why):
            machine.explain(row)
    with pytest.raises(DataError, match="'colour'"):
        tables[2][0].explain(tables[0].drop(columns="colour").iloc[[0]])


def test_an_explanation_is_told_in_words_and_as_json(tables):
    X, _, machines = tables
    found = machines[0].explain(X.iloc[1])
    assert json.loads(json.dumps(found.as_dict()))["label"] == found.label
    text = str(found)
    assert f"{found.label}, score {found.scores[0]:+.4g}, probability" in text
    assert "(above 0 speaks for yes, below for no)" in text
    assert "colour" in text
    assert "constant" in text
    given = found.as_dict()
    assert sum(feature["contributions"][0] for feature in given["features"]) + given["constants"][0] == pytest.approx(
        found.scores[0]
    )
    assert sum(kernel["contributions"][0] for kernel in given["kernels"]) == pytest.approx(found.scores[0])
