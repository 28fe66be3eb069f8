"""A server answers for one row as the model does for many, from any thread, and refuses what the model refuses."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.data import Dataset, Preprocessor
from mllkm_scale.data.preparation.scaling import SCALINGS
from mllkm_scale.errors import DataError
from mllkm_scale.kernels.maps import MAPS, uses_plain_distance
from mllkm_scale.model.serving.layout import Preparation


def size_of_scores(model, Z):
    """Sum over the kernels of |z - c_m| |w_m| + |l_m|, of which a score is at most off by a small share."""
    distances = np.linalg.norm(Z[:, None, :] - model.anchors, axis=2)
    steepest = np.linalg.norm(model.coef, axis=2).max(axis=0)
    return distances @ steepest + np.abs(model.local_coef).max(axis=0).sum()


def assert_serves(model, X):
    server = model.server()
    expected = model.decision_function(X)
    scores = np.array([server.scores(x) for x in X])
    share = 1e-7 if uses_plain_distance(model.family.map) else 1e-9
    bound = share * size_of_scores(model, model.preprocessor.transform(X))
    off = np.abs(scores - expected).reshape(len(X), -1).max(axis=1)
    assert (off <= bound).all(), (off / bound).max()
    labels = model.predict(X).tolist()
    if scores.ndim == 1:
        sure = np.abs(expected) > bound
    else:
        best = np.sort(expected, axis=1)
        sure = best[:, -1] - best[:, -2] > 2 * bound
    assert sure.mean() > 0.9
    for x, label, is_sure in zip(X, labels, sure, strict=True):
        found = server.label(x)
        assert found in server.classes
        assert found == label or not is_sure
        assert type(found) is type(label)
    return server


@pytest.mark.parametrize("classes", [(0, 1), (3, 5, 8)])
@pytest.mark.parametrize("form", ["global", "component-wise", "by tables"])
@pytest.mark.parametrize("map", MAPS)
def test_scores_and_labels_are_those_of_the_model(make_problem, map, form, classes, monkeypatch):
    monkeypatch.setattr("mllkm_scale.model.tables.form.MIN_KERNELS", 1 if form == "by tables" else 10**9)
    problem = make_problem(map, form != "global", 0.4, classes, n_kernels=13, n_features=5)
    assert (problem.model.form.tables is not None) == (form == "by tables")
    assert_serves(problem.model, np.concatenate([problem.raw, problem.raw + 0.3]))


@pytest.mark.parametrize("componentwise", [False, True])
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("projection", ["none", "plain", "whitened"])
def test_rows_are_prepared_as_by_the_model(make_problem, scaling, projection, componentwise):
    n_components = None if projection == "none" else 3
    problem = make_problem(
        "exponential",
        componentwise,
        0.1,
        (0, 1, 2),
        n_kernels=9,
        n_features=6,
        scaling=scaling,
        n_components=n_components,
    )
    model = problem.model
    if projection == "whitened":
        prepared = Preprocessor.fit(Dataset.from_arrays(problem.raw), scaling, n_components, whiten=True)
        model = type(model)(**{**vars(model), "preprocessor": prepared})
    X = problem.raw.copy()
    X[::3, ::2] = 0.0
    X[1] = 0.0
    assert_serves(model, X)


@pytest.mark.parametrize("componentwise", [False, True])
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("fold", ["scaled", "mapped", "components scaled", "all"])
def test_folded_preparations_are_served(make_problem, scaling, fold, componentwise):
    random = np.random.default_rng(0)
    raw = make_problem(n_features=6).raw
    n_components = 5 if fold == "components scaled" else None
    prepared = Preprocessor.fit(Dataset.from_arrays(raw), scaling, n_components)
    if fold != "mapped":
        p = prepared.n_features_out
        prepared = prepared.scaled(random.uniform(0.2, 3.0, p), np.arange(p) % 3 != 1)
    if fold in ("mapped", "all"):
        prepared = prepared.mapped(random.normal(size=(3, prepared.n_features_out)))
    d = prepared.n_features_out
    model = make_problem("exponential", componentwise, 0.1, (0, 1, 2), n_kernels=9, n_features=d, scaling="none").model
    samples = prepared.transform(raw)
    model = type(model)(**{**vars(model), "anchors": samples[:9], "preprocessor": prepared})
    assert_serves(model, np.concatenate([raw, raw * 2.5]))


@given(
    st.sampled_from(MAPS),
    st.integers(1, 40),
    st.integers(1, 33),
    st.integers(2, 5),
    st.booleans(),
    st.integers(0, 1000),
)
def test_sizes_of_any_kind_are_served(make_problem, map, n_kernels, n_features, n_classes, componentwise, seed):
    problem = make_problem(
        map, componentwise, 0.2, range(n_classes), n_kernels=n_kernels, n_features=n_features, seed=seed
    )
    server, expected = problem.model.server(), problem.model.decision_function(problem.raw)
    size = size_of_scores(problem.model, problem.samples).reshape(-1, *[1] * (expected.ndim - 1))
    assert (np.abs(server.decision_function(problem.raw) - expected) <= 1e-7 * size).all()


def test_features_far_from_zero_keep_their_digits(make_problem):
    """A time in seconds and a small count beside it: differences from the mean are taken before anything else."""
    problem = make_problem(n_features=4, n_components=3, scaling="none")
    X = problem.raw + np.array([0.0, 1.6e9, 0.0, 0.0])
    prepared = Preprocessor.fit(Dataset.from_arrays(X), "none", 3)
    model = type(problem.model)(**{**vars(problem.model), "preprocessor": prepared})
    assert_serves(model, X)
    origin = Preparation.of(prepared, model.anchors.mean(axis=0), np.abs(model.anchors).max()).origin
    assert origin[1] == pytest.approx(1.6e9, rel=1e-6)
    assert not origin[[0, 2, 3]].any()


def test_text_labels_are_served_as_text(make_model):
    server = make_model(classes=("état", "über")).server()
    assert server.classes == ["état", "über"]
    assert server.label(np.ones(4)) in ("état", "über")
    assert isinstance(server.scores(np.ones(4)), float)


def test_a_trained_machine_of_images_is_served(real_data):
    from mllkm_scale import MLLKMClassifier

    X, y = real_data("digits")
    machine = MLLKMClassifier(anchors="all", n_components=15, scaling="none", memory_budget="1GB", tol=0.05)
    model = machine.fit(X[:300], y[:300]).model_
    server = assert_serves(model, X[300:500])
    assert np.mean(server.predict(X[300:500]) == y[300:500]) > 0.8


def test_a_row_has_the_same_bits_alone_and_among_others(make_problem):
    for componentwise in (False, True):
        problem = make_problem(classes=(0, 1, 2), n_kernels=40, componentwise=componentwise, n_components=3)
        server = problem.model.server()
        alone = np.array([server.scores(x) for x in problem.raw])
        np.testing.assert_array_equal(server.decision_function(problem.raw), alone)
        np.testing.assert_array_equal(server.predict(problem.raw), [server.label(x) for x in problem.raw])


def test_what_holds_the_values_does_not_matter(make_model):
    server, row = make_model().server(), np.array([1.0, 2.0, 3.0, 4.0])
    expected = server.scores(row)
    frozen = row.copy()
    frozen.flags.writeable = False
    shifted = np.frombuffer(b"x" + row.tobytes(), dtype=np.float64, offset=1)
    strided = np.repeat(row, 2)[::2]
    kinds = [row.astype(kind) for kind in (np.uint8, np.int64, np.float16, np.float32, ">f8")]
    for values in [[1, 2, 3, 4], (1.0, 2, 3, 4), frozen, shifted, strided, *kinds]:
        assert server.scores(values) == expected
    assert not frozen.flags.writeable
    assert row.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_threads_share_a_server(make_problem):
    problem = make_problem(classes=(0, 1, 2), n_kernels=60, n_features=20, n_components=10)
    server = problem.model.server()
    alone = [server.scores(x).tolist() for x in problem.raw]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: server.scores(problem.raw[i % 30]).tolist(), range(3000)))
    assert found == [alone[i % 30] for i in range(3000)]


def test_a_server_travels_to_another_process(make_model):
    for componentwise in (False, True):
        server = make_model(componentwise=componentwise, n_kernels=40).server()
        assert pickle.loads(pickle.dumps(server)).scores(np.ones(4)) == server.scores(np.ones(4))


def test_the_direct_form_is_served_directly(make_model):
    model = make_model(componentwise=True, n_kernels=40)
    row = np.array([0.3, -1.0, 2.0, 0.1])
    assert model.direct().server().scores(row) == pytest.approx(model.direct().decision_function([row])[0], rel=1e-12)
    assert model.server().scores(row) == pytest.approx(model.decision_function([row])[0], rel=1e-12)


@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
@pytest.mark.parametrize("choice", [{}, {"componentwise": True}, {"componentwise": True, "n_kernels": 40}])
def test_values_that_are_not_finite_are_named_by_their_column(make_model, value, name, choice):
    server = make_model(**choice).server()
    with pytest.raises(DataError, match=f"x has {name} at row 0, column 2 "):
        server.label([0.0, 1.0, value, value])
    X = np.zeros((5, 4))
    X[3, 1] = value
    with pytest.raises(DataError, match=f"X has {name} at row 3, column 1 "):
        server.predict(X)


def test_values_too_large_to_compute_with_are_refused(make_model):
    server = make_model(scaling="none").server()
    with pytest.raises(DataError, match="too large to compute with at row 0 "):
        server.label(np.full(4, 1.7e308))
    X = np.zeros((3, 4))
    X[2] = 1e300
    with pytest.raises(DataError, match="too large to compute with at row 2 "):
        server.decision_function(X)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (np.zeros(5), "x has 5 features per row, but the model was trained with 4"),
        (np.zeros((1, 4)), r"x has shape \(1, 4\): give one row of 4 numbers, or use predict"),
        (3.0, r"x has shape \(\)"),
        (["1", "2", "3", "4"], "x has type <U1: features must be real numbers"),
        (np.ones(4, complex), "x has type complex128"),
        ([None, 1, 2, 3], "x has type object"),
    ],
)
def test_what_is_no_row_of_the_model_is_refused(make_model, row, why):
    server = make_model().server()
    with pytest.raises(DataError, match=why):
        server.label(row)


def test_no_rows_give_no_labels(make_model):
    assert make_model().server().predict(np.zeros((0, 4))).shape == (0,)
    assert make_model(classes=(1, 2, 3)).server().decision_function(np.zeros((0, 4))).shape == (0, 3)


def test_a_server_says_what_it_serves(make_model):
    assert repr(make_model(classes=(1, 2, 3)).server()) == "Server(4 features, 7 kernels, 3 classes)"


def test_models_are_loaded_without_the_loops_of_servers():
    code = "import sys, mllkm_scale.model; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=os.environ)
