"""Training below a number of bytes: the header fits, the accuracy is worth it, and bits do not depend on threads."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris

from mllkm_scale import Dataset, MLLKMClassifier, Model, load_model, train
from mllkm_scale.base.arrays import Array
from mllkm_scale.errors import InterruptedTraining, ParameterError
from mllkm_scale.export import IntegerMachine, integer_machine
from mllkm_scale.export.integer import DeviceLimit, limit_of
from mllkm_scale.plan import device
from mllkm_scale.run import compact


@pytest.fixture(scope="module")
def digits() -> tuple[Dataset, Dataset]:
    """Rows to train on, and rows to test on."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    return Dataset.from_arrays(X[:1200], y[:1200]), Dataset.from_arrays(X[1200:], y[1200:])


@pytest.mark.parametrize(("max_bytes", "error"), [("1500", 0.2), ("8kB", 0.05)])
def test_a_machine_fits_into_its_bytes(max_bytes: str, error: float, digits: tuple[Dataset, Dataset]) -> None:
    training, test = digits
    result = train(training, test=test, max_bytes=max_bytes, n_jobs=1)
    assert result.status == "learned"
    machine = integer_machine(result.model, training)
    limit = int(max_bytes.replace("kB", "000"))
    assert limit_of(result.model) == DeviceLimit(machine.slope_bits, limit)
    assert 0.5 * limit <= machine.constant_bytes <= limit
    assert result.evaluation is not None
    assert result.evaluation.error <= error
    X = test.part(0, test.n_rows)
    codes = machine.codes(machine.preparation.inputs.quantise(X))
    assert np.mean(result.model.classes[codes] != test.labels()) <= result.evaluation.error + 0.01


def test_more_threads_choose_the_same(digits: tuple[Dataset, Dataset]) -> None:
    first, second = (train(digits[0], max_bytes=1000, n_jobs=n_jobs).model for n_jobs in (1, 2))
    assert limit_of(first) == limit_of(second)
    np.testing.assert_array_equal(first.anchors, second.anchors)
    np.testing.assert_array_equal(first.coef, second.coef)


def test_what_is_given_is_kept(digits: tuple[Dataset, Dataset]) -> None:
    model = train(
        digits[0], max_bytes="4kB", metric=5, scaling="minmax", map="linear", anchors="learned:9", n_jobs=1
    ).model
    assert model.anchors.shape[1] == 5
    assert model.family.map == "linear"
    assert model.n_kernels <= 9
    assert model.preprocessor.scaling.kind == "minmax"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"max_bytes": "64 apples"}, "max_bytes='64 apples'"),
        ({"max_bytes": 2000, "componentwise": True}, "componentwise=True"),
        ({"max_bytes": 2000, "scaling": "quantile"}, "scaling='quantile'"),
        ({"max_bytes": 2000, "anchors": "all"}, "anchors='all'"),
        ({"max_bytes": 2000, "finish": "mkl"}, "finish='mkl'"),
        ({"max_bytes": 60}, "give at least"),
        ({"max_features": 0}, "max_features=0"),
    ],
)
def test_what_does_not_go_together_is_refused(
    params: dict[str, Any], message: str, digits: tuple[Dataset, Dataset]
) -> None:
    with pytest.raises(ParameterError, match=message):
        train(digits[0], n_jobs=1, **params)


def test_few_rows_are_refused() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    with pytest.raises(ParameterError, match="needs at least 50 rows"):
        MLLKMClassifier(max_bytes=1000).fit(X[:40], y[:40])


def test_only_the_features_that_count_are_used() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 12))
    y = (X[:, 3] * X[:, 7] > 0).astype(int)
    machine = MLLKMClassifier(max_features=2, finish="none", n_jobs=1).fit(X, y)
    noise = X.copy()
    noise[:, [0, 1, 2, 4, 5, 6, 8, 9, 10, 11]] = 100.0
    np.testing.assert_array_equal(machine.decision_function(X), machine.decision_function(noise))
    assert machine.score(X, y) > 0.9


def test_the_bits_that_win_have_the_least_loss_in_integers(
    monkeypatch: pytest.MonkeyPatch, digits: tuple[Dataset, Dataset]
) -> None:
    judged: dict[int, list[float]] = {4: [], 8: []}
    asked_for: list[int] = []
    integers, losses = compact.integer_machine, compact.log_losses

    def rounded(model: Model, dataset: Dataset, bits: int) -> IntegerMachine:
        asked_for.append(bits)
        return integers(model, dataset, bits)

    def measured(F: Array, codes: Array, weights: Array) -> Array:
        found = losses(F, codes, weights)
        if asked_for:  # before, sizes of 4 bits compete in floats
            judged[asked_for.pop()].append(float(found.mean()))
        return found

    monkeypatch.setattr(compact, "integer_machine", rounded)
    monkeypatch.setattr(compact, "log_losses", measured)
    model = train(digits[0], max_bytes=3000, n_jobs=1).model
    limit = limit_of(model)
    assert limit is not None
    assert len(judged[4]) == 1
    assert judged[8]
    assert limit.bits == min(judged, key=lambda bits: min(judged[bits]))


@pytest.mark.parametrize("bits", [4, 8])
def test_bits_are_kept_in_the_model_and_by_a_resumed_training(
    bits: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compact, "BITS", (bits,))
    monkeypatch.setattr(compact, "sizes_within", partial(device.sizes_within, bits=bits))
    X, y = load_breast_cancer(return_X_y=True)
    data, folder = Dataset.from_arrays(X, y), tmp_path / "run"

    def should_stop() -> bool:
        epochs = folder / "learning.jsonl"
        return epochs.exists() and epochs.stat().st_size > 0  # sizes have competed, and the winner is being learned

    with pytest.raises(InterruptedTraining):
        train(data, max_bytes=700, n_jobs=1, run_dir=folder, should_stop=should_stop, report=False)
    model = train(data, max_bytes=700, n_jobs=1, run_dir=folder, resume=True, report=False).model
    assert limit_of(load_model(folder / "model.mllkm")) == limit_of(model) == DeviceLimit(bits, 700)
    parameters = json.loads((folder / "run.json").read_text())["parameters"]
    assert (parameters["bits"], parameters["max_bytes"]) == (bits, 700)
    machine = integer_machine(model, data)
    assert machine.slope_bits == bits
    assert machine.constant_bytes <= 700
    once = train(data, max_bytes=700, n_jobs=1).model
    np.testing.assert_array_equal(model.coef, once.coef)


@pytest.mark.parametrize("params", [{}, {"bits": 4}, {"bits": "4", "max_bytes": 9}, {"bits": 5, "max_bytes": 9}])
def test_what_is_no_limit_is_none(params: dict[str, Any], digits: tuple[Dataset, Dataset]) -> None:
    model = MLLKMClassifier(finish="none", anchors="learned:3", n_jobs=1).fit(*load_iris(return_X_y=True)).model_
    record = replace(model.certificate, params=params)
    assert limit_of(replace(model, certificate=record)) is None
