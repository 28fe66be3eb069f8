"""Labels found in single precision are those of the decision function in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale import MLLKMClassifier
from mllkm_scale.model.inference.blocks import Rows
from mllkm_scale.model.inference.decision import decide
from mllkm_scale.model.inference.labels import label_codes


@pytest.mark.parametrize("classes", [(0, 1), tuple(range(7))])
@pytest.mark.parametrize("scaling", ["standard", "none"])
def test_labels_are_those_of_the_decision_function(make_model, classes, scaling):
    model = make_model(classes=classes, n_kernels=60, local_bias=0.3, scaling=scaling)
    X = np.random.default_rng(2).normal(size=(3000, 4)) * 3 + 1
    expected = model.classes[model.codes(model.decision_function(X))]
    for n_jobs in (None, 2):
        np.testing.assert_array_equal(model.predict(X, n_jobs=n_jobs), expected)


@given(
    st.integers(1, 200), st.integers(1, 60), st.integers(2, 5), st.integers(0, 1000), st.sampled_from([0.0, 1e3, 1e5])
)
@settings(max_examples=60, deadline=None)
def test_the_error_is_far_below_its_bound(make_problem, n_kernels, n_features, n_classes, seed, far):
    problem = make_problem(
        classes=range(n_classes), n_kernels=n_kernels, n_features=n_features, seed=seed, scaling="none", local_bias=0.2
    )
    model, X = problem.model, problem.raw
    moved = type(model)(**{**vars(model).copy(), "anchors": model.anchors + far})
    F, bound = moved.single_precision.decide(X + far)
    exact = decide(moved, Rows(X + far)).reshape(F.shape)
    assert (np.abs(F - exact).max(axis=1) <= 0.25 * bound + 1e-12 * np.abs(exact).max()).all()


def test_rows_in_doubt_are_evaluated_in_double_precision(make_model, monkeypatch):
    model = make_model(classes=(1, 2, 3))
    X = np.random.default_rng(0).normal(size=(200, 4))
    asked = []

    def counted(model, rows, n_jobs):
        asked.append(len(rows))
        return decide(model, rows, n_jobs)

    monkeypatch.setattr("mllkm_scale.model.inference.labels.decide", counted)
    expected = label_codes(model, Rows(X))
    few = sum(asked)
    assert few < 20
    monkeypatch.setattr("mllkm_scale.model.inference.labels._UNIT", 1.0)
    np.testing.assert_array_equal(label_codes(model, Rows(X)), expected)
    assert sum(asked) > few + 150


def test_rows_on_the_border_belong_to_the_same_class_as_in_double_precision(make_model):
    """Two classes with the same predictors are equal everywhere, up to the last bits."""
    model = make_model(classes=(0, 1, 2), n_kernels=40)
    coef, local_coef = model.coef.copy(), model.local_coef.copy()
    coef[1], local_coef[1] = coef[0] * (1 + 1e-12), local_coef[0]
    twins = type(model)(**{**vars(make_model(classes=(0, 1, 2), n_kernels=40)), "coef": coef, "local_coef": local_coef})
    X = np.random.default_rng(0).normal(size=(500, 4))
    np.testing.assert_array_equal(twins.predict(X), twins.classes[twins.codes(twins.decision_function(X))])


@pytest.mark.parametrize("choice", [{"map": "exponential"}, {"map": "linear"}, {"componentwise": True}])
def test_other_families_have_no_single_precision(make_model, choice):
    model = make_model(**choice)
    assert model.single_precision is None
    X = np.random.default_rng(0).normal(size=(50, 4))
    np.testing.assert_array_equal(model.predict(X), model.classes[model.codes(model.decision_function(X))])


def test_few_rows_of_a_trained_model_are_in_doubt():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    y = (np.sin(2 * X[:, 0]) + X[:, 1] > 0).astype(int)
    model = MLLKMClassifier(C=10.0, anchors="all", memory_budget="1GB").fit(X, y).model_
    rows = rng.normal(size=(5000, 6))
    F, bound = model.single_precision.decide(model.preprocessor.transform(rows))
    assert np.mean(np.abs(F[:, 0]) <= 2 * bound) < 0.01
