"""The decision function is the paper's formula, and the bits of a row depend on that row alone."""

from __future__ import annotations

import math
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from mllkm_scale.data import Dataset
from mllkm_scale.errors import DataError
from mllkm_scale.kernels.maps import MAPS


def bump(map, distance, gamma):
    return {
        "exponential": lambda t: math.exp(-gamma * t),
        "gaussian": lambda t: math.exp(-gamma * t * t),
        "linear": lambda t: max(0.0, 1.0 - gamma * t),
        "squared": lambda t: max(0.0, 1.0 - gamma * t * t),
    }[map](distance)


def feature_map(family, x, anchor, gamma, scale):
    """phi_m(x), component by component, with the local bias as one more."""
    offsets = [float(a - b) for a, b in zip(x, anchor, strict=True)]
    if family.componentwise:
        bumps = [bump(family.map, abs(offset), gamma) for offset in offsets]
    else:
        bumps = [bump(family.map, math.sqrt(sum(offset**2 for offset in offsets)), gamma)] * len(offsets)
    phi = [h * offset for h, offset in zip(bumps, offsets, strict=True)]
    phi.append(math.sqrt(family.local_bias) * sum(bumps) / len(bumps))
    return [math.sqrt(scale) * value for value in phi]


def looped_decision(problem, x, k):
    """f_k(x) = sum_m beta_m sum_i a_ik <phi_m(x_i), phi_m(x)>."""
    model = problem.model
    weights = np.broadcast_to(model.weights, (model.n_machines, model.n_kernels))
    total = 0.0
    for m in range(model.n_kernels):
        kernel = (model.anchors[m], model.gammas[m], model.kernel_scale[m])
        here = feature_map(model.family, x, *kernel)
        for i, sample in enumerate(problem.samples):
            if problem.signed_duals[i, k]:
                there = feature_map(model.family, sample, *kernel)
                product = sum(a * b for a, b in zip(here, there, strict=True))
                total += weights[k, m] * problem.signed_duals[i, k] * product
    return total


@pytest.mark.parametrize("local_bias", [0.0, 0.7])
@pytest.mark.parametrize("componentwise", [False, True])
@pytest.mark.parametrize("map", MAPS)
def test_the_decision_function_is_the_loop_over_kernels_and_components(make_problem, map, componentwise, local_bias):
    problem = make_problem(map, componentwise, local_bias, n_kernels=4, n_features=3)
    rows = problem.raw[:5] + 0.3
    Z = problem.model.preprocessor.transform(rows)
    looped = [looped_decision(problem, z, 0) for z in Z]
    np.testing.assert_allclose(problem.model.decision_function(rows), looped, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("own_weights", [False, True])
@pytest.mark.parametrize("componentwise", [False, True])
def test_every_class_of_several_has_its_column(make_problem, componentwise, own_weights):
    problem = make_problem(
        "linear", componentwise, 0.5, ("a", "b", "c"), n_components=2, n_kernels=4, own_weights=own_weights
    )
    rows = problem.raw[:4]
    F = problem.model.decision_function(rows)
    looped = [[looped_decision(problem, z, k) for k in range(3)] for z in problem.samples[:4]]
    np.testing.assert_allclose(F, looped, rtol=1e-9, atol=1e-12)
    assert problem.model.predict(rows).tolist() == [("a", "b", "c")[k] for k in np.argmax(looped, axis=1)]


def test_two_classes_are_decided_by_the_sign(make_problem):
    problem = make_problem(classes=("no", "yes"))
    scores = problem.model.decision_function(problem.raw)
    assert scores.shape == (30,)
    assert problem.model.predict(problem.raw).tolist() == ["yes" if score > 0 else "no" for score in scores]
    assert problem.model.codes(np.array([0.0, 1e-300, -1.0])).tolist() == [0, 1, 0]


SIZES = [(3, 2, 1), (7, 3, 3), (150, 20, 1), (60, 33, 10), (1200, 5, 1)]


@pytest.mark.parametrize("form", ["global", "component-wise", "by tables"])
@pytest.mark.parametrize(("n_kernels", "n_features", "n_machines"), SIZES)
def test_the_bits_of_a_row_depend_neither_on_its_company_nor_on_threads(
    make_model, n_kernels, n_features, n_machines, form, monkeypatch
):
    monkeypatch.setattr("mllkm_scale.model.tables.form.MIN_KERNELS", 1)
    model = make_model(
        componentwise=form != "global",
        n_kernels=n_kernels,
        n_features=n_features,
        classes=range(max(2, n_machines)),
        local_bias=0.1,
        n_components=n_features - 1,
    )
    model = model if form == "by tables" else model.direct()
    assert (model.form.tables is not None) == (form == "by tables")
    X = np.random.default_rng(1).normal(size=(2 * model.blocks.rows + 5, n_features))
    together = model.decision_function(X)
    for rows in [slice(0, 1), slice(3, 4), slice(1, 20), slice(17, None), slice(None, None, 3)]:
        np.testing.assert_array_equal(model.decision_function(X[rows]), together[rows])
    np.testing.assert_array_equal(model.decision_function(X, n_jobs=3), together)
    np.testing.assert_array_equal(model.decision_function(np.asfortranarray(X)), together)


def test_the_type_that_the_values_are_stored_in_does_not_matter(make_model):
    X = np.random.default_rng(1).integers(0, 9, size=(20, 4))
    model = make_model()
    for dtype in (np.uint8, np.float16, np.float32, np.float64, ">f8"):
        np.testing.assert_array_equal(model.decision_function(X.astype(dtype)), model.decision_function(X))


def test_chunks_give_the_same_bits_as_all_rows_at_once(make_model):
    X = np.random.default_rng(1).normal(size=(100, 4))
    model = make_model(classes=(1, 5, 9))
    dataset = Dataset.from_arrays(X, chunk_rows=33)
    parts = list(model.predict_chunks(dataset))
    assert [start for start, _ in parts] == [0, 33, 66, 99]
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in parts]), model.predict(X))
    scores = np.concatenate([values for _, values in model.decision_chunks(dataset)])
    np.testing.assert_array_equal(scores, model.decision_function(X))


@pytest.mark.parametrize(("componentwise", "n_kernels"), [(False, 20_000), (True, 900)])
def test_kernels_taken_in_groups_add_up_and_bound_the_memory(make_model, componentwise, n_kernels, monkeypatch):
    kind = {"componentwise": componentwise, "n_kernels": n_kernels, "n_features": 12}
    X = np.random.default_rng(1).normal(size=(64, 12))
    at_once = make_model(**kind).direct().decision_function(X)
    model = make_model(**kind).direct()
    monkeypatch.setattr("mllkm_scale.model.inference.blocks.GROUP_BYTES", 1 << 20)
    monkeypatch.setattr("mllkm_scale.model.inference.blocks.BLOCK_BYTES", 1 << 14)
    assert 1 < model.blocks.kernels < n_kernels / 5
    np.testing.assert_allclose(model.decision_function(X), at_once, rtol=1e-9, atol=1e-12)
    tracemalloc.start()
    model.decision_function(X)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < model.blocks.block_bytes + 500_000


def test_another_number_of_columns_is_refused_with_both_numbers(make_model):
    with pytest.raises(DataError, match="X has 5 features per row, but the model was trained with 4"):
        make_model().predict(np.zeros((2, 5)))
    dataset = Dataset.from_arrays(np.zeros((2, 3)), name="test.h5:X")
    with pytest.raises(DataError, match=r"test\.h5:X has 3 features per row, but the model was trained with 4"):
        next(make_model().predict_chunks(dataset))


@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_values_that_are_not_finite_are_named_by_row_and_column(make_model, value, name):
    X = np.zeros((700, 4))
    X[650, 2] = X[690, 1] = value
    with pytest.raises(DataError, match=f"X has {name} at row 650, column 2 "):
        make_model().decision_function(X, n_jobs=2)
    with pytest.raises(DataError, match=f"X has {name} at row 650, column 2 "):
        list(make_model().predict_chunks(Dataset.from_arrays(X, chunk_rows=100)))


def test_values_too_large_to_compute_with_are_named_by_their_row(make_model):
    X = np.zeros((5, 4))
    X[3] = 1.7e308
    with pytest.raises(DataError, match="too large to compute with at row 3 "):
        make_model(scaling="none").predict(X)


@pytest.mark.parametrize("X", [np.zeros(4), np.zeros((1, 2, 2)), [["a", "b", "c", "d"]]])
def test_what_is_no_matrix_of_numbers_is_refused(make_model, X):
    with pytest.raises(DataError, match=r"X has (shape|type)"):
        make_model().predict(X)


def test_no_rows_give_no_labels(make_model):
    assert make_model().predict(np.zeros((0, 4))).shape == (0,)
    assert make_model(classes=(1, 2, 3)).decision_function(np.zeros((0, 4))).shape == (0, 3)


def test_the_folder_does_not_import_scikit_learn():
    code = "import sys, mllkm_scale.model; sys.exit('sklearn' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
