"""`partial_fit` as scikit-learn's users know it: any cut into calls, pickled in between, and beside `fit`."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from mllkm_scale import MLLKMClassifier
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.model import Model

ARRAYS = ("classes_", "anchors_", "gammas_", "kernel_scale_", "weights_", "kernel_coef_", "local_coef_")
OF_FIT = ("duals_", "history_", "n_iter_", "peak_bytes_", "plan_")
N = 1000


def machine_for(**params):
    return MLLKMClassifier(**{"warm_up": 150, "max_kernels": 40, "gammas": [0.005, 0.02], "n_jobs": 1} | params)


def bits_of(machine):
    return [getattr(machine, name).tobytes() for name in ARRAYS] + [np.float64(machine.prequential_error_).tobytes()]


@pytest.fixture(scope="module")
def digits(real_data):
    X, y = real_data("digits")
    return X[:N], y[:N] % 3


@pytest.fixture(scope="module")
def at_once(digits):
    """The machine that is given all samples in one call."""
    return machine_for().partial_fit(*digits, classes=range(3))


def fed(machine, X, y, size, classes=(0, 1, 2)):
    for start in range(0, len(X), size):
        machine.partial_fit(X[start : start + size], y[start : start + size], classes)
    return machine


@pytest.mark.parametrize(("size", "n_jobs"), [(77, 1), (350, 2)])
def test_the_bits_do_not_depend_on_the_cut_into_calls(digits, at_once, size, n_jobs):
    assert bits_of(fed(machine_for(n_jobs=n_jobs), *digits, size)) == bits_of(at_once)


def test_what_it_knows_after_some_calls(digits, at_once, tmp_path):
    X, y = digits
    assert at_once.score(X, y) > 0.9
    assert at_once.prequential_error_ < 0.2
    assert np.isnan(at_once.gap_)
    assert at_once.status_ == at_once.model_.certificate.status == "online"
    assert at_once.classes_.tolist() == [0, 1, 2]
    assert at_once.n_open_ == 2 * N
    assert at_once.n_features_in_ == 64
    assert at_once.weights_.sum() == pytest.approx(1.0)
    assert not any(hasattr(at_once, name) for name in OF_FIT)
    at_once.model_.save(tmp_path / "digits.mllkm")
    loaded = Model.load(tmp_path / "digits.mllkm")
    assert np.array_equal(loaded.predict(X), at_once.predict(X))
    assert np.array_equal(loaded.decision_function(X), at_once.decision_function(X))


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("n", [100, 700])  # in the warm-up, and with a probe under way
def test_a_machine_pickled_in_between_goes_on_to_the_same_bits(digits, at_once, n, n_jobs):
    X, y = digits
    machine = machine_for(n_jobs=n_jobs).partial_fit(X[:n], y[:n], classes=range(3))
    twin = pickle.loads(pickle.dumps(machine))
    assert bits_of(twin) == bits_of(machine)
    for one in (twin, machine):  # what one of them learns, the other does not
        assert bits_of(one.partial_fit(X[n:], y[n:])) == bits_of(at_once)


def test_parameters_that_change_meanwhile_count_for_the_next_beginning(digits, at_once):
    X, y = digits
    machine = machine_for().partial_fit(X[:500], y[:500], classes=range(3))
    machine.set_params(C=99.0, warm_up=3, n_jobs=2)
    assert bits_of(machine.partial_fit(X[500:], y[500:])) == bits_of(at_once)
    fresh = clone(machine)
    assert fresh.get_params()["C"] == 99.0
    with pytest.raises(NotFittedError):
        fresh.predict(X)
    assert fresh.partial_fit(X[:5], y[:5], classes=range(3)).C_ == 99.0


@pytest.mark.filterwarnings("ignore:training ended by max_rounds")
def test_fit_and_partial_fit_begin_anew_after_one_another(digits, at_once):
    X, y = digits
    machine = machine_for(max_rounds=2).fit(X[:200, :10], y[:200])
    whole = clone(machine).fit(X[:200], y[:200])
    assert bits_of(machine.partial_fit(X, y)) == bits_of(at_once)  # the classes are those of fit
    assert not any(hasattr(machine, name) for name in OF_FIT)
    machine.fit(X[:200], y[:200])
    assert np.array_equal(machine.kernel_coef_, whole.kernel_coef_)
    assert machine.status_ == "max_rounds"
    assert all(hasattr(machine, name) for name in OF_FIT)
    assert not hasattr(machine, "prequential_error_")
    assert bits_of(machine.partial_fit(X, y)) == bits_of(at_once)


def test_there_is_a_machine_from_the_first_sample_on(digits):
    X, y = digits
    machine = machine_for().partial_fit(X[:1], y[:1], classes=[0, 1, 2])
    assert machine.predict(X[:1]).tolist() == y[:1].tolist()
    assert set(machine.predict(X).tolist()) <= {0, 1, 2}
    assert np.isfinite(machine.decision_function(X)).all()
    assert np.isnan(machine.prequential_error_)
    before = machine.model_
    assert machine.model_ is before
    machine.partial_fit(X[1:60], y[1:60])
    assert machine.model_ is not before


@pytest.mark.parametrize("labels", [["eins", "zwei", "zwei oder mehr"], [-1, 5, 70], [0.0, 1.0, 2.0]], ids=str)
def test_labels_come_back_as_they_were_given(digits, at_once, labels):
    X, y = digits
    names = np.array(labels)
    machine = fed(machine_for(), X, names[y], 300, labels[::-1])
    assert machine.classes_.tolist() == labels
    assert machine.predict(X).tolist() == names[at_once.predict(X)].tolist()
    assert machine.weights_.tobytes() == at_once.weights_.tobytes()


def test_two_labels_and_float32_rows(digits):
    X, y = digits
    machine = fed(machine_for(), X.astype(np.float32), y > 0, 400, [False, True])
    assert machine.predict(X).dtype == bool
    assert machine.decision_function(X.astype(np.float32)).shape == (N,)
    assert machine.score(X.astype(np.float32), y > 0) > 0.9
    assert bits_of(machine) == bits_of(fed(machine_for(), X.astype(np.float32), y > 0, 130, [False, True]))


def test_what_cannot_be_learned_is_refused_and_nothing_is_lost(digits, at_once):
    X, y = digits
    machine = machine_for()
    with pytest.raises(ParameterError, match="give all possible labels in the first call"):
        machine.partial_fit(X, y)
    with pytest.raises(NotFittedError):
        machine.predict(X)
    with pytest.raises(DataError, match=r"sample 2 \(0-based\) .* label 2, none of the classes 0, 1"):
        machine.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(NotFittedError):
        machine.decision_function(X)
    machine.partial_fit(X[:300], y[:300], classes=range(3))
    with pytest.raises(ValueError, match="63 features"):
        machine.partial_fit(X[:, :-1], y)
    with pytest.raises(ParameterError, match=r"the first call of partial_fit named \[0, 1, 2\]"):
        machine.partial_fit(X[300:], y[300:], classes=[0, 1])
    with pytest.raises(DataError, match="label 3"):
        machine.partial_fit(X[300:310], np.full(10, 3))
    with pytest.raises(ValueError, match="NaN"):
        machine.partial_fit(np.full((1, 64), np.nan), [0])
    assert bits_of(machine.partial_fit(X[300:], y[300:], classes=[2, 1, 0])) == bits_of(at_once)


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"anchors": 100}, "anchors=100"),
        ({"multi_class": "ovr"}, "multi_class='ovr'"),
        ({"preset": "paper"}, "multi_class='ovr'"),
        ({"window": 0}, "window=0"),
        ({"max_samples": 2.5}, "max_samples=2.5"),
        ({"C": -1}, "C=-1"),
    ],
    ids=str,
)
def test_a_parameter_that_cannot_work_is_named(digits, params, named):
    with pytest.raises(ParameterError, match=named):
        machine_for(**params).partial_fit(*digits, classes=range(3))
