"""Training below a number of bytes: the header fits, the accuracy is worth it, and bits do not depend on threads."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits

from mllkm_scale import Dataset, MLLKMClassifier, Model, load_model, train
from mllkm_scale.base.arrays import Array
from mllkm_scale.errors import CheckpointError, InterruptedTraining, ParameterError
from mllkm_scale.export import IntegerMachine, integer_machine
from mllkm_scale.learn.settings import Tryout
from mllkm_scale.params import Params, resolve
from mllkm_scale.plan import device
from mllkm_scale.plan.contenders import RIDGES
from mllkm_scale.plan.device import BITS, DeviceLimit
from mllkm_scale.run import training
from mllkm_scale.run.problem import Problem
from mllkm_scale.run.session import Resources
from mllkm_scale.run.tuning import compact
from mllkm_scale.run.tuning.compact import Compacted, load_compacted


def limit_of(model: Model) -> DeviceLimit | None:
    return DeviceLimit.of(model.certificate.params)


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
        digits[0], max_bytes="4kB", metric=7, scaling="minmax", map="linear", ridge=2.0, anchors="learned:9", n_jobs=1
    ).model
    assert model.anchors.shape[1] == 7
    assert model.certificate.params["ridge"] == 2.0
    assert model.family.map == "linear"
    assert model.n_kernels <= 9
    assert model.preprocessor.scaling.kind == "minmax"


def test_more_directions_than_principal_components_by_default_may_be_given() -> None:
    X = np.random.default_rng(0).normal(size=(300, 70))
    data = Dataset.from_arrays(X, (X[:, 0] * X[:, 1] > 0).astype(int))
    model = train(
        data, max_bytes="12kB", metric=60, ridge=1.0, scaling="none", anchors="learned:5", time_limit=0.01, n_jobs=1
    ).model
    assert model.anchors.shape[1] == 60


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


@pytest.fixture
def descents(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float]]:
    """Rows and share of the epochs of every descent that sizes are compared by."""
    found: list[tuple[int, float]] = []
    build = compact.build_problem

    def built(part: Dataset, params: Params, resources: Resources, *, tryout: Tryout, features: Array) -> Problem:
        found.append((part.n_rows, tryout.epochs))
        return build(part, params, resources, tryout=tryout, features=features)

    monkeypatch.setattr(compact, "build_problem", built)
    return found


def test_the_best_of_either_bits_go_on_and_the_last_are_descended_in_full(
    monkeypatch: pytest.MonkeyPatch, descents: list[tuple[int, float]], digits: tuple[Dataset, Dataset]
) -> None:
    rounded: list[tuple[int, float]] = []  # bits, and the loss in integers
    integers, losses = compact.integer_machine, compact.log_losses

    def in_integers(model: Model, dataset: Dataset, bits: int) -> IntegerMachine:
        rounded.append((bits, math.nan))
        return integers(model, dataset, bits)

    def measured(F: Array, codes: Array, weights: Array) -> Array:
        found = losses(F, codes, weights)
        if rounded and math.isnan(rounded[-1][1]):  # before, they compete in floats
            rounded[-1] = rounded[-1][0], float(found.mean())
        return found

    monkeypatch.setattr(compact, "integer_machine", in_integers)
    monkeypatch.setattr(compact, "log_losses", measured)
    monkeypatch.setattr(compact, "_FIRST", replace(compact._FIRST, rows=200))
    monkeypatch.setattr(compact, "_MIDDLE", replace(compact._MIDDLE, rows=400))
    model = train(digits[0], max_bytes=3000, n_jobs=1).model
    (few, short), (more, later), (every, full) = dict.fromkeys(descents)
    assert few < more < every == 800
    assert (short, later, full) == (0.4, 0.4, 1.0)
    n_ridges, either = len(RIDGES), len(BITS)
    assert descents.count((few, short)) > descents.count((more, later)) == 3 * either * n_ridges
    assert descents.count((every, full)) == 2 * either
    assert [bits for bits, _ in rounded] == [4, 4, 8, 8]
    limit = limit_of(model)
    assert limit is not None
    assert limit.bits == min(rounded, key=lambda one: one[1])[0]


def test_no_rung_begins_after_the_time_limit(
    descents: list[tuple[int, float]], digits: tuple[Dataset, Dataset]
) -> None:
    model = train(digits[0], max_bytes=1000, time_limit=0.01, n_jobs=1).model
    assert limit_of(model) is not None
    assert {epochs for _, epochs in descents} == {0.4}


@pytest.mark.parametrize("bits", [4, 8])
def test_bits_are_kept_in_the_model_and_by_a_resumed_training(
    bits: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(device, "BITS", (bits,))
    X, y = load_breast_cancer(return_X_y=True)
    data, folder = Dataset.from_arrays(X, y), tmp_path / "run"

    def should_stop() -> bool:
        epochs = folder / "learning.jsonl"
        return epochs.exists() and epochs.stat().st_size > 0  # sizes have competed, and the winner is being learned

    with pytest.raises(InterruptedTraining):
        train(data, max_bytes=700, n_jobs=1, run_dir=folder, should_stop=should_stop, report=False)
    with monkeypatch.context() as patched:
        patched.setattr(training, "compacted", None)  # sizes do not compete again
        model = train(data, max_bytes=700, n_jobs=1, run_dir=folder, resume=True, report=False).model
    assert limit_of(load_model(folder / "model.mllkm")) == limit_of(model) == DeviceLimit(bits, 700)
    parameters = json.loads((folder / "run.json").read_text())["parameters"]
    assert (parameters["bits"], parameters["max_bytes"]) == (bits, 700)
    machine = integer_machine(model, data)
    assert machine.slope_bits == bits
    assert machine.constant_bytes <= 700
    once = train(data, max_bytes=700, n_jobs=1).model
    np.testing.assert_array_equal(model.coef, once.coef)
    assert model.calibration == once.calibration


@pytest.mark.parametrize(
    "other", [{"metric": 3}, {"scaling": "minmax"}, {"ridge": 0.5}, {"max_bytes": 900}, {"text": "{}"}, {"text": "[1"}]
)
def test_a_size_for_other_parameters_or_a_damaged_one_is_named(other: dict[str, Any], tmp_path: Path) -> None:
    params = resolve(max_bytes=1500, map="squared")
    settled = replace(
        params, anchors="learned:9", metric=4, scaling="none", ridge=8.0, n_components=None, max_features=20
    )
    found, path = Compacted(settled, DeviceLimit(4, 1500), None), tmp_path / "size.json"
    path.write_text(json.dumps(found.as_dict()))
    assert load_compacted(path, params) == replace(
        found, params=replace(settled, max_bytes=None, gammas="wide", finish="none")
    )
    if "text" in other:
        path.write_text(other.pop("text"))
    with pytest.raises(CheckpointError, match=r"size\.json is damaged, or belongs to"):
        load_compacted(path, replace(params, **other))


@pytest.mark.parametrize("params", [{}, {"bits": 4}, {"bits": "4", "max_bytes": 9}, {"bits": 5, "max_bytes": 9}])
def test_what_is_no_limit_is_none(params: dict[str, Any]) -> None:
    assert DeviceLimit.of(params) is None
