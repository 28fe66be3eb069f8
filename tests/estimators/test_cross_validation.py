"""MLLKMClassifierCV among scikit-learn's own, and what it chooses."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from mllkm_scale import Dataset, MLLKMClassifier, MLLKMClassifierCV
from mllkm_scale.errors import DataError, ParameterError

EXPECTED_TO_FAIL = {
    f"check_sample_weight_equivalence_on_{kind}_data": "folds are those of the rows as they are"
    for kind in ("dense", "sparse")
}

ONE = MLLKMClassifier(anchors="all", n_jobs=1, tol=0.05)
FEW = MLLKMClassifier(anchors="all", n_jobs=1, tol=0.05, n_components=16)  # features


@pytest.fixture(scope="module")
def digits(real_data):
    """Rows of the digits from 0 to 4."""
    X, y = real_data("digits")
    return X[y < 5], y[y < 5]


@pytest.fixture(scope="module")
def fitted(digits):
    X, y = digits
    return MLLKMClassifierCV(FEW, kernel_counts=[40, 10, 2], cv=3).fit(X[:300], y[:300])


def test_it_is_calibrated_by_the_rows_of_the_folds(fitted, digits):
    X, y = digits
    assert fitted.model_.calibration.source == "rows of the folds"
    assert fitted.model_.calibration.n_rows == 300
    assert log_loss(y[300:], fitted.predict_proba(X[300:])) < log_loss(y[300:], np.full((len(y) - 300, 5), 0.2)) / 2


def test_all_of_scikit_learns_checks_pass(monkeypatch):
    monkeypatch.setattr("mllkm_scale.learn.settings._MOST_EPOCHS", 5)  # of hundreds of small trainings
    quick = MLLKMClassifier(n_jobs=1, tol=0.3, gammas=[0.1])
    machine = MLLKMClassifierCV(quick, Cs=[1.0], cv=2)
    results = check_estimator(machine, on_fail=None, on_skip=None, expected_failed_checks=EXPECTED_TO_FAIL)
    assert {r["check_name"] for r in results if r["status"] == "failed"} == set()


def test_errors_are_those_of_machines_trained_on_the_folds(fitted, digits):
    X, y = digits
    X, y = X[:300], y[:300]
    folds = list(StratifiedKFold(3).split(X, y))
    for number, (kept, held_out) in enumerate(folds):
        machine = clone(FEW).set_params(max_kernels=40).fit(X[np.sort(kept)], y[np.sort(kept)])
        assert fitted.errors_[0, number] == pytest.approx(1 - machine.score(X[held_out], y[held_out]))
    assert fitted.errors_.shape == (3, 3)
    assert [point.error for point in fitted.path_] == pytest.approx(fitted.errors_.mean(axis=1))


def test_the_machine_chosen_is_trained_on_all_samples(fitted, digits):
    X, y = digits
    assert fitted.point_.error == min(point.error for point in fitted.path_)
    assert fitted.model_.certificate.n_train == 300
    assert fitted.max_kernels_ == fitted.point_.value
    assert fitted.n_kernels_ == fitted.point_.n_kernels
    assert fitted.score(X[300:600], y[300:600]) > 0.8
    assert fitted.decision_function(X[:5]).shape == (5, 5)


def test_limits_are_kept_by_the_machine_that_is_given_out(fitted, digits):
    X, y = digits
    sizes = sorted(point.model_bytes for point in fitted.path_)
    small = clone(fitted).set_params(below=f"{sizes[1]}B").fit(X[:300], y[:300])
    assert small.point_.model_bytes <= sizes[1]
    with pytest.raises(ParameterError, match="no model of the path is below 10 B"):
        clone(fitted).set_params(below="10B").fit(X[:300], y[:300])


def test_the_knee_is_chosen_where_it_is_asked_for(real_data):
    X, y = real_data("wine")
    machine = MLLKMClassifierCV(ONE, kernel_counts=[12, 4, 1], cv=2, choose="knee").fit(X, y)
    assert machine.point_ in machine.path_
    with pytest.raises(ParameterError, match="choose='least'"):
        MLLKMClassifierCV(choose="least").fit(X, y)


def test_data_on_disk_give_the_machine_of_the_arrays(tmp_path, real_data):
    X, y = real_data("wine")
    with h5py.File(tmp_path / "wine.h5", "w") as file:
        file["X"], file["y"] = X, y
    arrays = MLLKMClassifierCV(ONE, Cs=[0.5, 2.0], cv=2).fit(X, y)
    with Dataset.open(tmp_path / "wine.h5") as data:
        disk = MLLKMClassifierCV(ONE, Cs=[0.5, 2.0], cv=2).fit(data)
        assert np.array_equal(disk.errors_, arrays.errors_)
        assert np.array_equal(disk.predict(data), arrays.predict(X))
    assert arrays.C_ in (0.5, 2.0)


def test_it_works_in_a_pipeline_with_parameters_of_the_machine(real_data):
    X, y = real_data("iris")
    machine = MLLKMClassifierCV(clone(ONE), Cs=[1.0], cv=2).set_params(
        estimator__scaling="none", estimator__n_components=2
    )
    assert make_pipeline(StandardScaler(), machine).fit(X, y).score(X, y) > 0.9


def test_a_class_that_a_fold_does_not_train_on_is_named_as_the_reason():
    X, y = np.arange(12.0)[:, None], np.repeat([0, 1, 2], 4)
    folds = [(np.arange(8), np.arange(8, 12))]
    with pytest.raises(DataError, match="a fold does not train on"):
        MLLKMClassifierCV(Cs=[1.0], cv=folds).fit(X, y)


def test_the_page_of_a_notebook_says_what_was_chosen(fitted):
    page = fitted._repr_html_()
    assert f"{fitted.point_.name} of 3" in page
    assert "duality gap" in page
    assert "fitted</caption>" not in clone(fitted)._repr_html_()
