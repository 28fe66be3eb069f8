"""The estimator among scikit-learn's own: its checks, pipelines, searches, and data on disk."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import check_estimator

from mllkm_scale import Dataset, MLLKMClassifier
from mllkm_scale.config import PARAMETERS
from mllkm_scale.online import OnlineParams
from mllkm_scale.params import defaults

CHECKS = 62  # of scikit-learn 1.6; later versions have more
EXPECTED_TO_FAIL = {
    f"check_sample_weight_equivalence_on_{kind}_data": "scaling, scales and held-out rows are those of the rows as they"
    " are; that the problem is the same where these are given, tests/test_weights.py says"
    for kind in ("dense", "sparse")
}
SKIPPED = {"check_array_api_input"}  # asks for the environment variable SCIPY_ARRAY_API


@pytest.mark.parametrize("anchors", ["auto", "all"])
def test_all_of_scikit_learns_checks_pass(anchors, monkeypatch):
    monkeypatch.setattr("mllkm_scale.learn.settings._MOST_EPOCHS", 5)  # of hundreds of small trainings
    results = check_estimator(
        MLLKMClassifier(anchors=anchors, n_jobs=1), on_fail=None, on_skip=None, expected_failed_checks=EXPECTED_TO_FAIL
    )
    status = {result["check_name"]: result["status"] for result in results}
    assert {name for name, found in status.items() if found == "failed"} == set()
    assert {name for name, found in status.items() if found == "xfail"} == EXPECTED_TO_FAIL.keys()
    assert {name for name, found in status.items() if found not in ("passed", "xfail")} <= SKIPPED
    assert len(results) >= CHECKS


def test_its_parameters_are_those_of_train_and_the_preset():
    parameters = MLLKMClassifier().get_params()
    as_configured = dict.fromkeys(PARAMETERS)
    of_tables = {"categories": None, "as_number": None}
    kept = {"run_dir": None, "warm_start": False}
    assert parameters == {**defaults(), **as_configured, "preset": None, **vars(OnlineParams()), **of_tables, **kept}
    assert clone(MLLKMClassifier(C=3.0, gammas=[0.1])).get_params()["C"] == 3.0


def test_it_works_in_a_pipeline_and_a_grid_search(real_data):
    X, y = real_data("iris")
    pipeline = make_pipeline(PolynomialFeatures(2), MLLKMClassifier(anchors="all", n_jobs=1))
    search = GridSearchCV(pipeline, {"mllkmclassifier__C": [0.1, 10.0]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.9
    assert cross_val_score(MLLKMClassifier(anchors="all", n_jobs=1), X, y, cv=3).mean() > 0.9


def test_a_dataset_on_disk_gives_the_machine_of_the_arrays(tmp_path, real_data):
    X, y = real_data("breast_cancer")
    with h5py.File(tmp_path / "train.h5", "w") as file:
        file["X"], file["y"] = X, y
    arrays = MLLKMClassifier(anchors="all", n_jobs=1).fit(X, y)
    with Dataset.open(tmp_path / "train.h5") as dataset:
        disk = MLLKMClassifier(anchors="all", n_jobs=1).fit(dataset)
        assert np.array_equal(disk.predict(dataset), arrays.predict(X))
        assert np.array_equal(disk.decision_function(dataset), arrays.decision_function(X))
    assert np.array_equal(arrays.kernel_coef_, disk.kernel_coef_)
    assert np.array_equal(arrays.predict(X), disk.predict(X))


@pytest.mark.parametrize(("name", "K"), [("breast_cancer", 1), ("wine", 3)])
@pytest.mark.parametrize("componentwise", [False, True])
def test_the_fitted_attributes_have_the_documented_shapes(real_data, name, K, componentwise):
    X, y = real_data(name)
    machine = MLLKMClassifier(anchors="all", componentwise=componentwise, n_components=4, n_jobs=1).fit(X, y)
    s = len(machine.weights_)
    assert machine.anchors_.shape == (s, 4)
    assert machine.gammas_.shape == machine.kernel_scale_.shape == machine.weights_.shape == (s,)
    assert machine.kernel_coef_.shape == (K, s, 4)
    assert machine.local_coef_.shape == (K, s)
    assert machine.duals_.shape == (len(X), K)
    assert machine.decision_function(X).shape == ((len(X),) if K == 1 else (len(X), K))
    assert machine.dual_ <= machine.primal_
    assert machine.gap_ == pytest.approx((machine.primal_ - machine.dual_) / machine.primal_)
    assert machine.n_open_ <= 5 * len(X)
    assert [record["number"] for record in machine.history_] == list(range(1, len(machine.history_) + 1))
    assert machine.score(X, y) > 0.9


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [-1, 1], [2.0, 7.0]], ids=str)
def test_labels_come_back_as_they_were_given(real_data, labels):
    X, y = real_data("breast_cancer")
    y = np.asarray(labels)[y]
    predicted = MLLKMClassifier(anchors="all", n_jobs=1).fit(X, y).predict(X)
    assert predicted.dtype.kind == y.dtype.kind
    assert np.mean(predicted == y) > 0.9
