"""A path along bytes on a device: models that fit, their headers, and going on after an interruption."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from mllkm_scale import Dataset, load_model, train_path
from mllkm_scale.errors import InterruptedTraining, ParameterError
from mllkm_scale.export import integer_machine
from mllkm_scale.path.folder import read_path

SIZES = ["2kB", 600]


@pytest.fixture(scope="module")
def cancer() -> tuple[Dataset, Dataset]:
    X, y = load_breast_cancer(return_X_y=True)
    return Dataset.from_arrays(X[:300], y[:300]), Dataset.from_arrays(X[300:400], y[300:400])


@pytest.fixture(scope="module")
def trained(cancer: tuple[Dataset, Dataset], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a path that was interrupted in its second model, and then went on."""
    folder = tmp_path_factory.mktemp("device") / "path"
    options = {"byte_counts": SIZES, "run_dir": folder, "n_jobs": 1, "report": False}

    def one_is_done() -> bool:
        return (folder / "max_bytes=600" / "end.npz").exists()

    with pytest.raises(InterruptedTraining):
        train_path(*cancer, should_stop=one_is_done, **options)  # type: ignore[arg-type]
    first = (folder / "max_bytes=600" / "model.mllkm").stat().st_mtime_ns
    train_path(*cancer, resume=True, **options)  # type: ignore[arg-type]
    assert (folder / "max_bytes=600" / "model.mllkm").stat().st_mtime_ns == first
    return folder


def test_points_have_the_bytes_and_the_errors_of_integers(trained: Path, cancer: tuple[Dataset, Dataset]) -> None:
    training, validation = cancer
    points, facts = read_path(trained)
    assert facts["parameter"] == "max_bytes"
    assert [point.value for point in points] == [600, 2000]
    X = validation.part(0, validation.n_rows)
    for point in points:
        model = load_model(trained / point.name / "model.mllkm")
        machine = integer_machine(model, training)
        codes = machine.codes(machine.preparation.inputs.quantise(X))
        assert point.model_bytes == machine.constant_bytes <= point.value
        assert point.error == np.mean(model.classes[codes] != validation.labels())
        assert point.error < 0.1
        header = (trained / point.name / "model.h").read_text()
        assert f"{machine.constant_bytes} bytes" in header


def test_the_best_point_is_chosen_by_bytes(cancer: tuple[Dataset, Dataset]) -> None:
    path = train_path(*cancer, byte_counts=[700, 1500], n_jobs=1, calibrate=False)
    assert path.best("700B").value == 700
    with pytest.raises(ParameterError, match="no model of the path is below"):
        path.best("100B")


def test_two_kinds_of_path_are_refused(cancer: tuple[Dataset, Dataset]) -> None:
    with pytest.raises(ParameterError, match="give one of them"):
        train_path(*cancer, byte_counts=["1kB"], Cs=[1.0])
