"""The whole way: what `train` proves against an independent convex solver and by brute force over all kernels."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from mllkm_scale import Dataset, MLLKMClassifier
from mllkm_scale import train as train_with_defaults
from mllkm_scale.base.events import Round
from mllkm_scale.errors import BudgetError, DataError, InterruptedTraining, ParameterError, ScratchError
from mllkm_scale.kernels.maps import MAPS
from mllkm_scale.mkl.forms import Choice
from mllkm_scale.mkl.inner import InnerMKL

train = partial(train_with_defaults, anchors="all")  # the machine whose candidates are all samples
GAMMAS = (0.1, 0.5)


@pytest.fixture(scope="module")
def digits(real_data):
    """Rows of the digits from 0 to 4."""
    X, y = real_data("digits")
    return X[y < 5], y[y < 5]


def labels(signs):
    return signs.argmax(axis=1) if signs.shape[1] > 1 else (signs[:, 0] > 0).astype(int)


@pytest.mark.parametrize("name", ["breast_cancer", "iris"], ids=["two classes", "three classes"])
@pytest.mark.parametrize("local_bias", [0.0, 0.7])
@pytest.mark.parametrize("normalize", ["trace", None])
@pytest.mark.parametrize("componentwise", [False, True], ids=["global", "componentwise"])
@pytest.mark.parametrize("map", MAPS)
def test_training_reaches_the_optimum_over_all_kernels(
    mkl_reference, small_problem, map, componentwise, normalize, local_bias, name
):
    X, signs = small_problem(name, 40)
    X = X[:, :6]
    family = {"map": map, "componentwise": componentwise, "normalize": normalize, "local_bias": local_bias}
    result = train(
        Dataset.from_arrays(X, labels(signs)),
        C=2.0,
        gammas=GAMMAS,
        scaling="none",
        tol=1e-5,
        n_jobs=1,
        **family,
    )
    optimum = mkl_reference.optimum(X, signs, gammas=GAMMAS, C=2.0, **family)
    certificate = result.model.certificate
    assert result.status == "converged"
    assert certificate.dual <= optimum * (1 + 1e-8)
    assert certificate.primal >= optimum * (1 - 1e-8)
    assert certificate.primal == pytest.approx(optimum, rel=1e-5)
    assert certificate.dual == pytest.approx(optimum, rel=1e-5)


@pytest.mark.parametrize("tol", [0.05, 1e-3, 1e-5])
@pytest.mark.parametrize("multi_class", ["shared", "ovr"])
@pytest.mark.parametrize("name", ["breast_cancer", "iris"])
def test_the_gap_of_the_estimator_is_the_one_that_brute_force_finds(
    mkl_reference, small_problem, name, multi_class, tol
):
    X, signs = small_problem(name, 80)
    machine = MLLKMClassifier(
        C=3.0, gammas=GAMMAS, scaling="none", local_bias=0.5, tol=tol, multi_class=multi_class, n_jobs=1
    ).fit(X, labels(signs))
    features = mkl_reference.grid_features(
        X, GAMMAS, map="gaussian", componentwise=False, normalize="trace", local_bias=0.5
    )
    groups = [slice(None)] if machine.weights_.ndim == 1 else [slice(k, k + 1) for k in range(signs.shape[1])]
    parts = folded_vectors(machine.model_, features, X)
    primal = dual = 0.0
    for columns in groups:
        forms = mkl_reference.quadratic_forms(features, machine.duals_[:, columns] * signs[:, columns])
        dual += machine.duals_[:, columns].sum() - 0.5 * forms.max()
        f = sum(phi @ w[columns].T for phi, w in parts)
        hinge = np.maximum(0.0, 1.0 - signs[:, columns] * f).sum()
        primal += 0.5 * sum(np.linalg.norm(w[columns]) for _, w in parts) ** 2 + 3.0 * hinge
    assert machine.gap_ <= tol
    assert machine.primal_ == pytest.approx(primal, rel=1e-9)
    # A scan in single precision may only err to the safe side, by the margin of its bound on the kernels not rescored.
    assert machine.dual_ <= dual * (1 + 1e-9)
    assert machine.dual_ == pytest.approx(dual, rel=1e-9 if tol < 1e-3 else 1e-4)


def folded_vectors(model, features, X):
    """The features of each kernel of a model, by brute force, and the vectors w (K, d + 1) of its coefficients."""
    found = []
    for m, scale in enumerate(model.kernel_scale):
        w = np.column_stack([model.coef[:, m], model.local_coef[:, m] / np.sqrt(0.5)]) / np.sqrt(scale)
        found.append((features[id_of(X, model.anchors[m], model.gammas[m])], w))
    return found


def id_of(X, anchor, gamma):
    row = int(np.flatnonzero((anchor == X).all(axis=1))[0])
    return row * len(GAMMAS) + GAMMAS.index(gamma)


def test_primal_and_decision_follow_from_the_folded_coefficients(small_problem):
    X, signs = small_problem("breast_cancer", 100)
    machine = MLLKMClassifier(C=2.0, anchors="all", scaling="none", n_jobs=1).fit(X, labels(signs))
    f = np.zeros(len(X))
    for m in range(len(machine.weights_)):
        offsets = X - machine.anchors_[m]
        h = np.exp(-machine.gammas_[m] * (offsets**2).sum(axis=1))
        f += h * (offsets @ machine.kernel_coef_[0, m] + machine.local_coef_[0, m])
    np.testing.assert_allclose(machine.decision_function(X), f, rtol=1e-9, atol=1e-12)
    assert machine.weights_.sum() == pytest.approx(1.0)
    assert machine.duals_.shape == (len(X), 1)
    assert (machine.duals_ >= 0).all()
    assert (machine.duals_ <= 2.0).all()


@pytest.mark.parametrize("multi_class", ["shared", "ovr"])
def test_the_bits_do_not_depend_on_the_number_of_threads(tmp_path, digits, multi_class):
    X, y = digits
    files = []
    for n_jobs in (1, 2, 3):
        result = train(Dataset.from_arrays(X[:400], y[:400]), n_jobs=n_jobs, multi_class=multi_class, tol=0.05)
        result.model.save(tmp_path / f"{n_jobs}.mllkm")
        files.append((tmp_path / f"{n_jobs}.mllkm").read_bytes())
    assert files[0] == files[1] == files[2]


def test_the_bits_do_not_depend_on_the_number_of_blas_threads(tmp_path, digits):
    X, y = digits
    files = []
    for limit in (1, 2):
        with threadpool_limits(limits=limit, user_api="blas"):
            train(Dataset.from_arrays(X[:400], y[:400]), tol=0.05).model.save(tmp_path / f"{limit}.mllkm")
        files.append((tmp_path / f"{limit}.mllkm").read_bytes())
    assert files[0] == files[1]


@pytest.mark.parametrize("settings", [{}, {"multi_class": "ovr"}, {"max_kernels": 30}], ids=str)
def test_a_training_interrupted_anywhere_resumes_to_the_same_bits(tmp_path, digits, settings):
    X, y = digits
    dataset = Dataset.from_arrays(X[:300], y[:300])
    asked = itertools.count()
    train(
        dataset,
        run_dir=tmp_path / "whole",
        n_jobs=1,
        should_stop=lambda: next(asked) < 0,
        **settings,
    )
    whole = next(asked)
    stops = {int(share * whole) for share in (0.05, 0.4, 0.8, 1.0)}  # the parts ask more often than the whole
    polls = itertools.count()
    interruptions, resume = 0, False
    while True:
        try:
            train(
                dataset,
                run_dir=tmp_path / "parts",
                resume=resume,
                should_stop=lambda: next(polls) in stops,
                n_jobs=1,
                **settings,
            )
            break
        except InterruptedTraining:
            interruptions += 1
            resume = (tmp_path / "parts" / "checkpoint.npz").exists()
    assert interruptions == len(stops) == 4
    assert (tmp_path / "parts" / "model.mllkm").read_bytes() == (tmp_path / "whole" / "model.mllkm").read_bytes()


def test_resuming_a_finished_training_gives_its_model_again(tmp_path, real_data):
    X, y = real_data("iris")
    dataset = Dataset.from_arrays(X, y)
    first = train(dataset, run_dir=tmp_path / "run", n_jobs=1)
    before = (tmp_path / "run" / "model.mllkm").read_bytes()
    again = train(dataset, run_dir=tmp_path / "run", resume=True, n_jobs=1)
    assert (tmp_path / "run" / "model.mllkm").read_bytes() == before
    assert len(again.history) == len(first.history)


def test_a_tighter_tolerance_continues_a_finished_training(tmp_path, real_data):
    X, y = real_data("iris")
    dataset = Dataset.from_arrays(X, y)
    loose = train(dataset, run_dir=tmp_path / "run", n_jobs=1, tol=0.1)
    tight = train(dataset, run_dir=tmp_path / "run", resume=True, n_jobs=1, tol=1e-4)
    assert len(tight.history) > len(loose.history)
    assert tight.model.certificate.gap <= 1e-4


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        ({"max_rounds": 2}, "max_rounds"),
        ({"time_limit": 1e-6}, "time_limit"),
        ({"max_kernels": 5}, "max_kernels"),
    ],
)
def test_a_limit_ends_training_early_and_says_so(digits, limit, status):
    X, y = digits
    result = train(Dataset.from_arrays(X[:300], y[:300]), n_jobs=1, tol=1e-3, **limit)
    assert result.status == status
    assert result.model.certificate.gap > 1e-3
    if status == "max_rounds":
        assert len(result.history) == 2
    if status == "max_kernels":
        assert result.model.n_kernels <= 5


def test_every_round_is_told_and_certifies_a_valid_interval(real_data):
    X, y = real_data("breast_cancer")
    events = []
    result = train(Dataset.from_arrays(X, y), listener=events.append, n_jobs=1)
    rounds = [event for event in events if isinstance(event, Round)]
    assert tuple(rounds) == result.history
    best_dual = max(event.dual for event in rounds)
    assert all(event.primal >= best_dual for event in rounds)
    assert rounds[-1].gap <= 0.01


@pytest.mark.parametrize("anchors", [20, "kmeans:15", "array"])
def test_anchors_may_be_a_sample_centres_or_given(real_data, anchors):
    X, y = real_data("iris")
    given = X[::10] if anchors == "array" else anchors
    machine = MLLKMClassifier(anchors=given, gammas=[0.1, 1.0], normalize=None, n_jobs=1).fit(X, y)
    assert machine.n_open_ == 2 * {"array": 15, "kmeans:15": 15, 20: 20}[anchors]
    assert machine.score(X, y) > 0.9
    if anchors == 20:
        prepared = (X - X.mean(axis=0)) / X.std(axis=0)
        assert all(np.isclose(prepared, anchor).all(axis=1).any() for anchor in machine.anchors_)


def test_the_random_state_decides_what_is_random(real_data):
    X, y = real_data("breast_cancer")
    first, same, other = (
        MLLKMClassifier(anchors=50, random_state=seed, n_jobs=1).fit(X, y).anchors_ for seed in (1, 1, 2)
    )
    assert np.array_equal(first, same)
    assert first.shape != other.shape or not np.array_equal(first, other)


def test_float32_rows_and_rows_on_disk_give_the_same_model(tmp_path, real_data):
    import h5py

    X, y = real_data("digits")
    X = X[:500].astype(np.float32)
    with h5py.File(tmp_path / "train.h5", "w") as file:
        file["X"], file["y"] = X, y[:500]
    from_memory = train(Dataset.from_arrays(X, y[:500]), n_jobs=1, tol=0.05)
    from_disk = train(Dataset.open(tmp_path / "train.h5"), n_jobs=1, tol=0.05)
    from_memory.model.save(tmp_path / "memory.mllkm")
    from_disk.model.save(tmp_path / "disk.mllkm")
    assert (tmp_path / "memory.mllkm").read_bytes() == (tmp_path / "disk.mllkm").read_bytes()


def test_bad_data_under_overwrite_costs_nothing(tmp_path, real_data):
    X, y = real_data("iris")
    train(Dataset.from_arrays(X, y), run_dir=tmp_path / "run", n_jobs=1)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.name != "run.log"}
    X = X.copy()
    X[7, 2] = np.nan
    with pytest.raises(DataError, match=r"row 7.*column 2"):
        train(Dataset.from_arrays(X, y), run_dir=tmp_path / "run", overwrite=True, n_jobs=1)
    after = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.name != "run.log"}
    assert after == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"C": -1.0}, {"C": "big"}, {"map": "round"}, {"gammas": [0.0]}, {"gammas": "many"}, {"anchors": "some"},
        {"anchors": 0}, {"normalize": "l2"}, {"local_bias": -0.5}, {"scaling": "robust"}, {"n_components": 9},
        {"multi_class": "ovo"}, {"tol": 0.0}, {"max_kernels": 0}, {"max_rounds": 1.5}, {"time_limit": 0},
        {"memory_budget": "-1GB"}, {"memory_budget": ""}, {"n_jobs": 0}, {"strategy": "fast"}, {"preset": "best"},
        {"colour": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_parameter_that_cannot_work_is_named(real_data, wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        train(Dataset.from_arrays(*real_data("iris")), **{"n_jobs": 1, **wrong})


def test_a_budget_that_is_too_small_names_one_that_works(real_data):
    dataset = Dataset.from_arrays(*real_data("digits"))
    with pytest.raises(BudgetError, match=r"at least \d+\.\d [MG]B is needed") as error:
        train(dataset, memory_budget="200MB", n_jobs=1)
    least = str(error.value).split("at least ")[1].split(" is needed")[0].replace(" ", "")
    assert train(dataset, memory_budget=least, n_jobs=1, max_rounds=1).plan.total_bytes <= 10**10


def test_the_papers_preset_is_its_problem_and_given_parameters_win(real_data):
    X, y = real_data("iris")
    machine = MLLKMClassifier(preset="paper", C=1.0, n_jobs=1).fit(X, y)
    assert machine.C_ == 1.0
    assert machine.local_bias_ == 0.0
    assert np.all(machine.kernel_scale_ == 1.0)
    assert not machine.local_coef_.any()
    assert machine.weights_.shape == (3, len(machine.gammas_))
    assert machine.gap_ <= 0.01
    assert machine.score(X, y) > 0.9


@pytest.mark.parametrize("name", ["breast_cancer", "iris"])
def test_algorithm_2_as_printed_and_the_two_working_sets_meet(small_problem, name):
    X, signs = small_problem(name, 60)
    settings = {"C": 1.0, "gammas": GAMMAS, "tol": 0.005, "n_jobs": 1}
    paper, fast = (
        train(Dataset.from_arrays(X, labels(signs)), strategy=strategy, **settings)
        for strategy in ("paper", "working-sets")
    )
    assert paper.status == fast.status == "converged"
    assert paper.model.certificate.dual <= fast.model.certificate.primal
    assert fast.model.certificate.dual <= paper.model.certificate.primal


def test_a_scratch_folder_that_cannot_be_written_is_refused_before_training(tmp_path, real_data):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ScratchError, match=r"scratch folder .*file"):
        train(Dataset.from_arrays(*real_data("iris")), scratch_dir=str(tmp_path / "file"), run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_run_records_the_forms_of_the_inner_problem_and_the_tile_store(tmp_path, real_data, monkeypatch):
    import json

    X, y = real_data("iris")
    for form in ("dense", "tiles"):
        monkeypatch.setattr(InnerMKL, "choose", lambda *_, form=form: Choice(form, 0, ""))
        train(Dataset.from_arrays(X, y), run_dir=tmp_path / form, tol=0.1, n_jobs=1)
        [record] = json.loads((tmp_path / form / "run.json").read_text())["inner"]
        assert record["forms"].keys() == {form}
        assert (record["tiles"].get("ram_hits", 0) > 0) == (form == "tiles")


@pytest.mark.parametrize("C", [1e-6, 1e6])
def test_extreme_weights_of_the_loss_converge(C):
    rng = np.random.default_rng(0)
    result = train(Dataset.from_arrays(rng.normal(size=(100, 4)), rng.integers(0, 2, 100)), C=C, n_jobs=1)
    assert result.status == "converged"


@pytest.mark.parametrize("local_bias", [0.0, 1.0])
def test_samples_that_cannot_be_told_apart_still_give_a_certified_model(local_bias):
    dataset = Dataset.from_arrays(np.ones((20, 3)), np.arange(20) % 2)
    result = train(dataset, normalize=None, local_bias=local_bias, C=2.0, n_jobs=1)
    assert result.status == "converged"
    assert result.model.certificate.primal == pytest.approx(40.0, rel=0.01)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_the_unit_of_the_features_does_not_matter(real_data, scale):
    X, y = real_data("iris")
    machine = MLLKMClassifier(anchors="all", scaling="none", n_jobs=1)
    plain, scaled = (clone(machine).fit(factor * X, y) for factor in (1.0, scale))
    assert scaled.gap_ <= 0.01
    assert scaled.primal_ == pytest.approx(plain.primal_, rel=0.02)
