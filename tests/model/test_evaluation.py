"""Evaluation is what scikit-learn's metrics say about the predictions."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from sklearn import metrics

from mllkm_scale.data import Dataset
from mllkm_scale.errors import DataError
from mllkm_scale.model import evaluate
from mllkm_scale.model.curves import POINTS, CurveCounts


@pytest.mark.parametrize("classes", [(0, 1), ("no", "yes"), ("a", "bc", "d"), (1, 2, 3, 4)])
def test_all_numbers_are_those_of_scikit_learn(make_model, classes):
    random = np.random.default_rng(1)
    X = random.normal(size=(200, 4))
    model = make_model(classes=classes)
    y = np.where(random.random(200) < 0.6, model.predict(X), random.choice(np.array(classes), 200))
    result = evaluate(model, Dataset.from_arrays(X, y, chunk_rows=64), n_jobs=2)
    predicted = model.predict(X)
    assert result.n == 200
    assert result.accuracy == pytest.approx(metrics.accuracy_score(y, predicted))
    assert result.error == pytest.approx(1 - result.accuracy)
    np.testing.assert_array_equal(result.confusion, metrics.confusion_matrix(y, predicted, labels=classes))
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(y, predicted, labels=classes, zero_division=0)
    np.testing.assert_allclose(result.precision, precision)
    np.testing.assert_allclose(result.recall, recall)
    np.testing.assert_allclose(result.f1, f1)
    assert json.loads(json.dumps(result.as_dict()))["confusion"] == result.confusion.tolist()


def test_a_class_that_does_not_occur_has_zeros_and_no_warning(make_model):
    X = np.random.default_rng(1).normal(size=(20, 4))
    model = make_model(classes=("a", "b", "c"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = evaluate(model, Dataset.from_arrays(X, ["b"] * 20))
        assert result.recall[0] == 0.0
        assert np.isfinite([result.precision, result.recall, result.f1]).all()


@pytest.mark.parametrize(
    ("classes", "labels", "message"),
    [
        ((0, 1), [0, 1, 7], r"y has the label 7 at row 2 .*its classes are 0, 1"),
        ((0, 1), [0, 1, -1], "the label -1 at row 2"),
        (("a", "c"), ["a", "b", "c"], "the label 'b' at row 1"),
        (("1", "2"), [1, 2, 1], "the label 1 at row 0.*its classes are '1', '2'"),
        ((1, 2), ["1", "2", "1"], "the label '1' at row 0"),
        ((0.0, 1.0), [0.0, np.nan, 1.0], "the label nan at row 1"),
        (tuple(range(12)), [99, 0, 0], r"8, 9, \.\.\."),
    ],
)
def test_a_label_that_the_model_does_not_know_is_named(make_model, classes, labels, message):
    with pytest.raises(DataError, match=message):
        evaluate(make_model(classes=classes), Dataset.from_arrays(np.zeros((3, 4)), labels))


def test_labels_of_another_number_type_are_the_same_classes(make_model):
    X = np.random.default_rng(1).normal(size=(20, 4))
    model = make_model(classes=(0, 1))
    labels = model.predict(X)
    for dtype in (np.uint8, np.float64, bool):
        assert evaluate(model, Dataset.from_arrays(X, labels.astype(dtype))).error == 0.0


def test_data_without_labels_or_of_another_width_is_refused(make_model):
    with pytest.raises(DataError, match="without labels"):
        evaluate(make_model(), Dataset.from_arrays(np.zeros((3, 4))))
    with pytest.raises(DataError, match="has 5 features"):
        evaluate(make_model(), Dataset.from_arrays(np.zeros((3, 5)), [0, 1, 0]))


@pytest.mark.parametrize("classes", [(0, 1), ("a", "bc", "d")])
def test_curves_are_those_of_scikit_learn(make_model, classes):
    random = np.random.default_rng(1)
    X = random.normal(size=(200, 4))
    y = np.array(classes)[random.integers(0, len(classes), 200)]
    model = make_model(classes=classes)
    found = evaluate(model, Dataset.from_arrays(X, y)).curves
    scores = model.decision_function(X).reshape(200, -1)
    labels = classes[1:] if len(classes) == 2 else classes
    assert [curve.label for curve in found] == list(labels)
    for curve, label, score in zip(found, labels, scores.T, strict=True):
        assert curve.roc_area == pytest.approx(metrics.roc_auc_score(y == label, score))
        assert curve.average_precision == pytest.approx(metrics.average_precision_score(y == label, score))
        false_rate, recall, _ = metrics.roc_curve(y == label, score, drop_intermediate=False)
        on_curve = set(zip(false_rate.round(5), recall.round(5), strict=True))
        assert set(zip(curve.false_rate, curve.recall, strict=True)) <= on_curve
        assert (curve.false_rate[0], curve.recall[0], curve.false_rate[-1], curve.recall[-1]) == (0, 0, 1, 1)


def test_areas_over_many_blocks_of_rows_are_near_those_of_all_at_once():
    random = np.random.default_rng(0)
    y = random.integers(0, 2, 20_000)
    scores = random.normal(size=20_000) + y
    counts = CurveCounts([0, 1])
    for start in range(0, 20_000, 2000):
        counts.add(scores[start : start + 2000, None], y[start : start + 2000])
    (curve,) = counts.curves()
    assert curve.roc_area == pytest.approx(metrics.roc_auc_score(y, scores), abs=1e-4)
    assert curve.average_precision == pytest.approx(metrics.average_precision_score(y, scores), abs=1e-3)
    assert len(curve.recall) <= POINTS + 1


def test_a_class_without_rows_has_no_curve(make_model):
    X = np.random.default_rng(1).normal(size=(20, 4))
    assert evaluate(make_model(classes=(0, 1)), Dataset.from_arrays(X, np.zeros(20, int))).curves == ()
    curves = evaluate(make_model(classes=(0, 1, 2)), Dataset.from_arrays(X, np.arange(20) % 2)).curves
    assert [curve.label for curve in curves] == [0, 1]


def test_the_telling_rows_are_the_surest_right_the_least_sure_and_the_surest_wrong(make_model):
    random = np.random.default_rng(1)
    X, y = random.normal(size=(90, 4)), np.array(["a", "b", "c"])[random.integers(0, 3, 90)]
    model = make_model(classes=("a", "b", "c"))
    ordered = np.sort(model.decision_function(X), axis=1)
    sure, right = ordered[:, 2] - ordered[:, 1], model.predict(X) == y
    expected = [np.argmax(np.where(right, sure, -1)), np.argmin(sure), np.argmax(np.where(right, -1, sure))]
    assert evaluate(model, Dataset.from_arrays(X, y)).telling == tuple(dict.fromkeys(int(row) for row in expected))
