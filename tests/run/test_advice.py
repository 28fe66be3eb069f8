"""Advice: given where something is very likely not meant, and nowhere else; a warning in Python, a line elsewhere."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import psutil
import pytest
from click.testing import CliRunner
from sklearn.exceptions import ConvergenceWarning

from mllkm_scale import Dataset, MLLKMClassifier, train
from mllkm_scale.base.events import Advice
from mllkm_scale.cli import cli
from mllkm_scale.data import check
from mllkm_scale.params import checked
from mllkm_scale.run.advice import advice_on_data, advice_on_end, advice_on_memory


def on_data(X: object, y: object = None, **params: object) -> list[str]:
    X = np.asarray(X, dtype=float)
    y = np.arange(len(X)) % 2 if y is None else y
    return [advice.text for advice in advice_on_data(check(Dataset.from_arrays(X, y)), checked(**params))]


def columns(*scales: float, n: int = 20) -> np.ndarray:
    return np.random.default_rng(0).random((n, len(scales))) * scales


@pytest.mark.parametrize(
    ("scales", "scaling", "expected"),
    [
        ((1.0, 1e5), "none", True),
        ((1e-6, 1.0, 0.0), "none", True),
        ((1.0, 100.0), "none", False),
        ((1.0, 0.0), "none", False),
        ((0.0, 0.0), "none", False),
        ((1.0, 1e5), "standard", False),
        ((1.0, 1e5), "minmax", False),
    ],
)
def test_features_of_very_different_ranges_are_told_where_they_are_not_scaled(
    scales: tuple[float, ...], scaling: str, expected: bool
) -> None:
    assert bool(on_data(columns(*scales), scaling=scaling)) is expected


def test_the_features_are_named() -> None:
    (text,) = on_data([[0.0, 0.0, 5.0], [1.0, 4000.0, 5.0]], scaling="none")
    assert text.startswith("feature 1 (from 0) spans 4,000 times as much as feature 0,")
    assert text.endswith("use scaling standard")


@pytest.mark.parametrize(
    ("counts", "expected"),
    [((300, 300), False), ((598, 2), True), ((2, 2), False), ((590, 10), False), ((500, 98, 1, 1), True)],
)
def test_a_class_of_few_rows_among_many_is_told(counts: tuple[int, ...], expected: bool) -> None:
    found = on_data(columns(1.0, n=sum(counts)), np.repeat(np.arange(len(counts)), counts))
    assert bool(found) is expected
    if len(counts) == 4:
        assert "1 of 600 rows, and 1 other classes have as few" in found[0]


def test_a_budget_beyond_the_memory_of_the_machine_is_told() -> None:
    there = psutil.virtual_memory().total
    assert list(advice_on_memory(there)) == []
    (advice,) = advice_on_memory(there + 1)
    assert (advice.about, "mllkm doctor" in advice.text) == ("memory", True)


@pytest.mark.parametrize("status", ["max_rounds", "time_limit", "precision"])
def test_an_end_above_the_tolerance_is_told_with_a_remedy(status: str) -> None:
    (advice,) = advice_on_end(status, 0.3, 0.01)
    assert status in advice.text
    assert "30 %" in advice.text
    assert "tol" in advice.text
    assert list(advice_on_end(status, 0.01, 0.01)) == []


@pytest.mark.parametrize("status", ["converged", "max_kernels"])
def test_an_end_that_was_asked_for_is_not(status: str) -> None:
    assert list(advice_on_end(status, 0.3, 0.01)) == []


def test_fit_warns_when_it_is_done_and_names_the_caller(real_data: Callable) -> None:
    X, y = real_data("breast_cancer")
    machine = MLLKMClassifier(max_rounds=1, anchors=50, tol=1e-4, n_jobs=1)
    with pytest.warns(ConvergenceWarning, match=r"max_rounds .*: allow more rounds, or a larger tol") as caught:
        machine.fit(X, y)
    assert [Path(warning.filename).name for warning in caught] == ["test_advice.py"]
    assert machine.status_ == "max_rounds"
    with pytest.warns(UserWarning, match="use scaling standard"):
        MLLKMClassifier(scaling="none", anchors=20, tol=0.2, n_jobs=1).fit(X, y)


def test_fit_that_ends_by_the_number_of_kernels_does_not_warn(real_data: Callable) -> None:
    X, y = real_data("breast_cancer")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        machine = MLLKMClassifier(max_kernels=2, anchors=50, n_jobs=1).fit(X, y)
    assert machine.status_ == "max_kernels"


def test_train_tells_its_listener_and_warns_nobody(real_data: Callable) -> None:
    told: list[object] = []
    train(Dataset.from_arrays(*real_data("iris")), max_rounds=1, anchors=20, tol=1e-6, n_jobs=1, listener=told.append)
    assert [event.about for event in told if isinstance(event, Advice)] == ["end"]


def test_the_command_line_shows_it_as_a_line_or_an_event(real_data: Callable, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "iris.h5", "w") as file:
        file["X"], file["y"] = real_data("iris")
    options = ["--max-rounds", "1", "--anchors", "20", "--tol", "1e-6", "--memory", "1GB", "--jobs", "1"]
    command = ["train", str(tmp_path / "iris.h5"), *options, "--out"]
    plain = CliRunner().invoke(cli, [*command, str(tmp_path / "a"), "--progress", "plain"])
    assert "training ended by max_rounds with a gap of" in plain.stderr
    as_json = CliRunner().invoke(cli, [*command, str(tmp_path / "b"), "--progress", "json"])
    events = [json.loads(line) for line in as_json.stdout.splitlines()]
    assert [event["about"] for event in events if event["event"] == "advice"] == ["end"]
    assert "training ended by max_rounds" in (tmp_path / "a" / "run.log").read_text()
