"""Data at the edges of what can be learned: the defaults give a model, or an error that has a name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import Result

from mllkm_scale import MLLKMClassifier, load_model
from mllkm_scale.errors import DataError, MLLKMError, ParameterError

Run = Callable[..., Result]
ROWS = np.random.default_rng(0).normal(size=(60, 3))
LABELS = (ROWS[:, 0] > 0).astype(int)

MODELS: dict[str, tuple[Any, Any]] = {
    "two rows": (ROWS[:2], [0, 1]),
    "three rows": (ROWS[:3], [0, 1, 1]),
    "below fifty rows": (ROWS[:49], LABELS[:49]),
    "fifty rows": (ROWS[:50], LABELS[:50]),
    "one feature": (ROWS[:, :1], LABELS),
    "constant features": (np.column_stack([ROWS[:, :1], np.full((60, 2), 7.0)]), LABELS),
    "one row of a class": (ROWS, np.arange(60) < 1),
    "two rows of a class": (ROWS, np.arange(60) < 2),
    "the same rows with opposite labels": (np.concatenate([ROWS, ROWS]), np.repeat([0, 1], 60)),
    "thirty classes": (ROWS, np.arange(60) % 30),
    "single rows of all classes": (ROWS, np.arange(60)),
}
ERRORS: dict[str, tuple[Any, Any, type[MLLKMError], str]] = {
    "a single row": (ROWS[:1], [0], DataError, "at least two classes"),
    "a single class": (ROWS, np.zeros(60, int), DataError, "at least two classes"),
    "a single point": (np.ones((60, 3)), LABELS, ParameterError, "check that the samples differ"),
    "too many classes": (np.tile(ROWS, (51, 1)), np.arange(3060) % 1001, DataError, "1001 classes"),
}


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mllkm_scale.learn.settings._MOST_EPOCHS", 5)


def written(path: Path, X: Any, y: Any) -> Path:
    with h5py.File(path, "w") as file:
        file["X"], file["y"] = X, np.asarray(y).astype(int)
    return path


@pytest.mark.filterwarnings("ignore::UserWarning")  # that a model says nothing, or that features are constant
@pytest.mark.parametrize("case", MODELS)
def test_a_model_that_predicts_is_made_of_few_odd_or_lopsided_rows(case: str, mllkm: Run, tmp_path: Path) -> None:
    X, y = MODELS[case]
    path = written(tmp_path / "rows.h5", X, y)
    machine = MLLKMClassifier(random_state=0, n_jobs=1).fit(X, y)
    assert set(machine.predict(X)) <= set(np.asarray(y))
    result = mllkm("train", path, "--out", tmp_path / "run", "--seed", "0", "--jobs", "1")
    assert result.exit_code == 0, result.stderr
    model = load_model(tmp_path / "run" / "model.mllkm")
    np.testing.assert_array_equal(model.predict(X), np.asarray(machine.predict(X)).astype(int))


@pytest.mark.parametrize("case", ERRORS)
def test_what_cannot_be_learned_is_an_error_that_names_it(case: str, mllkm: Run, tmp_path: Path) -> None:
    X, y, kind, said = ERRORS[case]
    with pytest.raises(kind, match=said):
        MLLKMClassifier(random_state=0, n_jobs=1).fit(X, y)
    result = mllkm("train", written(tmp_path / "rows.h5", X, y), "--out", tmp_path / "run", "--jobs", "1")
    assert result.exit_code != 0
    assert isinstance(result.exception, SystemExit)
    assert said in " ".join(result.stderr.split())
    assert not (tmp_path / "run" / "model.mllkm").exists()
