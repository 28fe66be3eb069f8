"""Training below a number of bytes: the header fits, the accuracy is worth it, and bits do not depend on threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits

from mllkm_scale import Dataset, MLLKMClassifier, train
from mllkm_scale.errors import ParameterError
from mllkm_scale.export import integer_machine


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
    machine = integer_machine(result.model, training, 4)
    limit = int(max_bytes.replace("kB", "000"))
    assert 0.5 * limit <= machine.constant_bytes <= limit
    assert result.evaluation is not None
    assert result.evaluation.error <= error
    X = test.part(0, test.n_rows)
    codes = machine.codes(machine.preparation.inputs.quantise(X))
    assert np.mean(result.model.classes[codes] != test.labels()) <= result.evaluation.error + 0.01


def test_more_threads_choose_the_same(digits: tuple[Dataset, Dataset]) -> None:
    first, second = (train(digits[0], max_bytes=1000, n_jobs=n_jobs).model for n_jobs in (1, 2))
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
