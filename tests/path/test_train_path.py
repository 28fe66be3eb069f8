"""A path: every model is as good as one trained on its own, is measured, kept and resumed."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from mllkm_scale import Dataset, load_model
from mllkm_scale import train as train_with_defaults
from mllkm_scale import train_path as train_path_with_defaults
from mllkm_scale.base.events import Round
from mllkm_scale.errors import CheckpointError, DataError, InterruptedTraining, ParameterError
from mllkm_scale.model import evaluate
from mllkm_scale.path.folder import read_path

# The machine whose candidates are all samples.
train = partial(train_with_defaults, anchors="all")
train_path = partial(train_path_with_defaults, anchors="all")

CS = [0.2, 1.0, 4.0]


@pytest.fixture(scope="module")
def halves(real_data):
    """Digits from 0 to 4, to train on and to validate by."""
    X, y = real_data("digits")
    X, y = X[y < 5], y[y < 5]
    return Dataset.from_arrays(X[:200], y[:200]), Dataset.from_arrays(X[200:500], y[200:500])


class Rounds(list):
    """A listener that keeps the rounds."""

    def __call__(self, event):
        if isinstance(event, Round):
            self.append(event)


@pytest.mark.parametrize("settings", [{}, {"multi_class": "ovr"}, {"componentwise": True}], ids=str)
def test_every_point_is_within_its_gap_of_the_optimum_of_a_training_of_its_own(halves, settings):
    data, validation = halves
    settings = settings | {"n_components": 8, "n_jobs": 1}
    path = train_path(data, validation, Cs=CS[:2], tol=0.02, **settings)
    assert [point.value for point in path.points] == CS[:2]
    for point in path.points:
        alone = train(data, C=point.value, tol=0.005, **settings).model.certificate
        certificate = path.model(point).certificate
        assert certificate.params["C"] == point.value
        assert certificate.dual <= alone.primal
        assert certificate.primal >= alone.dual
        assert certificate.primal - certificate.dual <= 0.02 * certificate.primal


def test_the_gap_of_a_point_is_the_one_that_brute_force_finds(mkl_reference, small_problem):
    X, signs = small_problem("breast_cancer", 80)
    gammas = (0.1, 0.5)
    data = Dataset.from_arrays(X, (signs[:, 0] > 0).astype(int))
    path = train_path(data, data, Cs=[0.5, 3.0], gammas=gammas, scaling="none", local_bias=0.5, tol=1e-4, n_jobs=1)
    for point, model in zip(path.points, path.models, strict=True):
        optimum = mkl_reference.optimum(
            X,
            signs,
            gammas=gammas,
            C=point.value,
            map="gaussian",
            componentwise=False,
            normalize="trace",
            local_bias=0.5,
        )
        assert model.certificate.dual <= optimum * (1 + 1e-8)
        assert model.certificate.primal >= optimum * (1 - 1e-8)
        assert model.certificate.gap <= 1e-4


def test_a_warm_start_takes_fewer_rounds(halves):
    data, validation = halves
    along, alone = Rounds(), Rounds()
    train_path(data, validation, Cs=CS, n_jobs=1, n_components=16, listener=along)
    for C in CS:
        train(data, C=C, n_jobs=1, n_components=16, listener=alone)
    assert len(along) < len(alone)


def test_the_papers_strategy_has_paths_too(real_data):
    X, y = real_data("breast_cancer")
    data = Dataset.from_arrays(X[:80], y[:80])
    path = train_path(data, 0.25, Cs=[0.5, 2.0], strategy="paper", gammas=[0.05], tol=0.05, n_jobs=1)
    assert all(model.certificate.gap <= 0.05 for model in path.models)
    assert len(train_path(data, 0.25, kernel_counts=[8, 2], strategy="paper", gammas=[0.05], n_jobs=1).models) == 2


def test_a_smaller_machine_begins_with_the_heaviest_kernels_of_the_one_before(halves):
    data, validation = halves
    path = train_path(data, validation, kernel_counts=[5, 40, 20], n_jobs=1)
    assert [point.value for point in path.points] == [40, 20, 5]
    assert all(0.8 * point.value <= point.n_kernels <= point.value for point in path.points)
    assert [point.model_bytes for point in path.points] == sorted((p.model_bytes for p in path.points), reverse=True)
    certificates = [model.certificate for model in path.models]
    assert all(a.primal < b.primal for a, b in pairwise(certificates))  # fewer kernels cannot do as much
    assert all(a.dual <= b.dual for a, b in pairwise(certificates))  # what was proved before holds on


def test_points_tell_the_truth_about_their_models(halves, tmp_path):
    data, validation = halves
    path = train_path(data, validation, kernel_counts=[20, 5], n_jobs=1)
    for point in path.points:
        model = path.model(point)
        assert point.error == evaluate(model, validation).error
        model.save(tmp_path / "model.mllkm")
        assert point.model_bytes == (tmp_path / "model.mllkm").stat().st_size
        assert (point.n_kernels, point.gap) == (model.n_kernels, model.certificate.gap)
        assert point.row_us > 0
    assert path.best(f"{path.points[1].model_bytes}B") == path.points[1]
    assert path.best().error == min(point.error for point in path.points)
    with pytest.raises(ParameterError, match="no model of the path is below 100 B"):
        path.best("100B")


def test_without_values_the_path_goes_around_the_automatic_C(halves):
    path = train_path(*halves, n_jobs=1, n_components=20, tol=0.2)
    auto = train(halves[0], n_jobs=1, n_components=20, tol=0.2).model.certificate.params["C"]
    assert [point.value / auto for point in path.points] == [1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2]


def test_a_share_of_the_rows_is_held_out_and_not_trained_on(real_data):
    X, y = real_data("wine")
    path = train_path(Dataset.from_arrays(X, y), 0.25, Cs=[1.0], n_jobs=1)
    assert path.models[0].certificate.n_train == len(y) - sum(round(0.25 * np.sum(y == k)) for k in range(3))


def test_the_folder_holds_a_run_folder_for_every_model(halves, tmp_path):
    data, validation = halves
    path = train_path(data, validation, kernel_counts=[20, 5], n_jobs=1, run_dir=tmp_path / "path")
    facts = json.loads((tmp_path / "path" / "path.json").read_text())
    assert facts["parameter"] == "max_kernels"
    assert facts["knee"] == path.knee.name
    points, _ = read_path(tmp_path / "path")
    assert tuple(points) == path.points
    for point in points:
        model = load_model(tmp_path / "path" / point.name / "model.mllkm")
        assert model.n_kernels == point.n_kernels
        run = json.loads((tmp_path / "path" / point.name / "run.json").read_text())
        assert run["parameters"]["max_kernels"] == point.value
        told = json.loads((tmp_path / "path" / point.name / "evaluation.json").read_text())
        assert told["error"] == point.error


def test_a_folder_with_a_path_is_neither_replaced_nor_resumed_by_mistake(halves, tmp_path):
    data, validation = halves
    settings = {"n_jobs": 1, "run_dir": tmp_path / "path", "tol": 0.1}
    with pytest.raises(CheckpointError, match="no path to resume"):
        train_path(data, validation, Cs=[1.0], resume=True, **settings)
    train_path(data, validation, Cs=[1.0], **settings)
    with pytest.raises(ParameterError, match="already holds a path"):
        train_path(data, validation, Cs=[2.0], **settings)
    train_path(data, validation, Cs=[2.0], overwrite=True, **settings)
    assert [point.name for point in read_path(tmp_path / "path")[0]] == ["C=2"]
    assert not (tmp_path / "path" / "C=1" / "model.mllkm").exists()


def test_a_path_json_that_names_another_folder_removes_nothing_there(halves, tmp_path):
    (tmp_path / "path").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.mllkm").write_text("kept")
    (tmp_path / "path" / "path.json").write_text(json.dumps({"points": [{"name": "../other"}, {}]}))
    train_path(*halves, Cs=[1.0], overwrite=True, n_jobs=1, tol=0.1, run_dir=tmp_path / "path")
    assert (tmp_path / "other" / "model.mllkm").read_text() == "kept"


@pytest.mark.parametrize("along", [{"Cs": [0.2, 1.0, 4.0]}, {"kernel_counts": [30, 10, 4]}], ids=str)
def test_a_path_interrupted_anywhere_resumes_to_the_same_models(halves, tmp_path, along):
    data, validation = halves
    settings = {"n_jobs": 1, "tol": 0.02, "n_components": 16} | along
    whole = train_path(data, validation, run_dir=tmp_path / "whole", **settings)
    polls = 0

    def stop_now_and_then():
        nonlocal polls
        polls += 1
        return polls in (3, 25, 60, 110, 150)

    resume, interrupted = False, 0
    while True:
        try:
            parts = train_path(
                data,
                validation,
                run_dir=tmp_path / "parts",
                resume=resume,
                should_stop=stop_now_and_then,
                **settings,
            )
            break
        except InterruptedTraining:
            interrupted += 1
            resume = (tmp_path / "parts" / "path.json").exists()
    assert interrupted >= 3
    assert [point.name for point in parts.points] == [point.name for point in whole.points]
    for point in whole.points:
        files = [(tmp_path / kind / point.name / "model.mllkm").read_bytes() for kind in ("whole", "parts")]
        assert files[0] == files[1]


def test_a_resumed_path_trains_only_what_is_not_done(halves, tmp_path):
    data, validation = halves
    settings = {"n_jobs": 1, "tol": 0.05, "run_dir": tmp_path / "path"}
    first, second = Rounds(), Rounds()
    train_path(data, validation, Cs=[0.2, 1.0], listener=first, **settings)
    longer = train_path(data, validation, Cs=[0.2, 1.0, 4.0], resume=True, listener=second, **settings)
    assert [point.value for point in longer.points] == [0.2, 1.0, 4.0]
    assert 0 < len(second) < len(first) + 1
    other = train_path(data, validation, Cs=[0.2, 1.0], resume=True, listener=second, C=3.0, **settings)
    assert other.points[0].elapsed_s == longer.points[0].elapsed_s  # taken from the folder


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"Cs": [1.0], "kernel_counts": [5]}, "three paths: give one"),
        ({"Cs": []}, "at least one"),
        ({"Cs": [1.0, -2.0]}, "positive"),
        ({"Cs": [1.0, 1.0]}, "differ"),
        ({"Cs": ["a"]}, "numbers"),
        ({"kernel_counts": [2.5]}, "whole numbers"),
        ({"kernel_counts": [0]}, "whole numbers"),
        ({"validation": 1.5}, "between 0 and 1"),
    ],
    ids=str,
)
def test_what_makes_no_path_is_refused(halves, given, message):
    data, validation = halves
    with pytest.raises(ParameterError, match=message):
        train_path(data, **({"validation": validation} | given))


def test_validation_rows_that_do_not_fit_are_refused_before_training(halves, real_data):
    data, _ = halves
    X, y = real_data("wine")
    with pytest.raises(DataError, match="13 features instead of 64"):
        train_path(data, Dataset.from_arrays(X, y), Cs=[1.0])


def test_what_was_proved_of_the_whole_machine_holds_for_a_smaller_one(mkl_reference, small_problem):
    X, signs = small_problem("breast_cancer", 80)
    gammas = (0.1, 0.5)
    data = Dataset.from_arrays(X, (signs[:, 0] > 0).astype(int))
    settings = {"C": 2.0, "gammas": gammas, "scaling": "none", "local_bias": 0.5, "tol": 1e-4, "n_jobs": 1}
    family = {"map": "gaussian", "componentwise": False, "normalize": "trace", "local_bias": 0.5}
    features = mkl_reference.grid_features(X, gammas, **family)
    optimum = mkl_reference.optimum(X, signs, gammas=gammas, C=2.0, **family)
    small = train(data, max_kernels=3, **settings)
    forms = mkl_reference.quadratic_forms(features, small.duals * signs)
    certificate = small.model.certificate
    assert certificate.dual == pytest.approx(small.duals.sum() - 0.5 * forms.max(), rel=1e-6)
    assert 0.0 < certificate.dual <= optimum * (1 + 1e-8)
    assert certificate.primal > 1.01 * optimum  # three kernels are too few
    model, hinge = small.model, np.maximum(0.0, 1.0 - signs[:, 0] * small.model.decision_function(X)).sum()
    w = np.column_stack([model.coef[0], model.local_coef[0] / np.sqrt(0.5)]) / np.sqrt(model.kernel_scale)[:, None]
    assert certificate.primal == pytest.approx(0.5 * np.linalg.norm(w, axis=1).sum() ** 2 + 2.0 * hinge, rel=1e-9)
    path = train_path(data, data, kernel_counts=[20, 3], **settings)
    assert path.models[1].certificate.dual >= path.models[0].certificate.dual
