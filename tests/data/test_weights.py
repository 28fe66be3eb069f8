"""Weights of rows and of classes: what a data set makes of them, and what is refused by name."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from mllkm_scale import Dataset
from mllkm_scale.base.class_weight import check_class_weight, class_weight_in_words, read_class_weight
from mllkm_scale.data.subset import subset
from mllkm_scale.data.weights import weigh
from mllkm_scale.errors import BudgetError, DataError, ParameterError

X, Y = np.arange(8.0).reshape(4, 2), np.array(["b", "a", "b", "b"])


def test_without_weights_a_data_set_stays_as_it_is():
    data = Dataset.from_arrays(X, Y)
    assert weigh(data).dataset is data
    assert data.weights() is None


def test_balanced_classes_have_the_same_sum_as_scikit_learn_says():
    weights = weigh(Dataset.from_arrays(X, Y), "balanced").dataset.weights()
    expected = compute_class_weight("balanced", classes=np.array(["a", "b"]), y=Y)
    assert weights.tolist() == expected[[1, 0, 1, 1]].tolist()
    doubled = weigh(Dataset.from_arrays(X, Y, sample_weight=[1, 1, 2, 3]), "balanced").dataset.weights()
    assert doubled[Y == "a"].sum() == pytest.approx(doubled[Y == "b"].sum())
    assert doubled.sum() == pytest.approx(7.0)


def test_classes_are_named_by_label_or_by_its_text():
    numbers = Dataset.from_arrays(X, [3, 1, 3, 3])
    for given in ({3: 2.0}, {"3": 2.0}, read_class_weight("3:2")):
        assert weigh(numbers, given).dataset.weights().tolist() == [2.0, 1.0, 2.0, 2.0]
    with pytest.raises(ParameterError, match=r"class_weight names 7, which is not a label of y: its classes are 1, 3"):
        weigh(numbers, {7: 1.0})


def test_rows_without_weight_leave():
    weighed = weigh(Dataset.from_arrays(X, Y, sample_weight=[2.0, 0.0, 0.0, 1.0]))
    assert weighed.dataset.rows([0, 1]).tolist() == X[[0, 3]].tolist()
    assert weighed.dataset.weights().tolist() == [2.0, 1.0]
    assert weighed.kept.tolist() == [0, 3]


def test_relative_weights_have_the_mean_one():
    weights = weigh(Dataset.from_arrays(X, Y, sample_weight=[2.0, 0.0, 4.0, 6.0]), relative=True).dataset.weights()
    assert weights.tolist() == [0.5, 1.0, 1.5]


def test_weights_on_disk_are_read_by_name_and_follow_rows(tmp_path):
    with h5py.File(tmp_path / "train.h5", "w") as file:
        file["X"], file["y"], file["w"] = X, [0, 1, 0, 1], np.array([1, 2, 3, 4], np.int32)
    with Dataset.open(tmp_path / "train.h5", sample_weight="w") as data:
        assert data.weights().tolist() == [1.0, 2.0, 3.0, 4.0]
        assert subset(data, np.array([3, 1])).weights().tolist() == [2.0, 4.0]
        assert not data.unlabelled().has_weights
    with pytest.raises(DataError, match="has no data set 'u'"):
        Dataset.open(tmp_path / "train.h5", sample_weight="u")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 2.0, 3.0], r"sample_weight has 3 weights, but X has 4 rows: give one weight per row"),
        ([[1.0] * 4], r"sample_weight has shape \(1, 4\), but X has 4 rows"),
        ([1.0, -0.5, 1.0, 1.0], r"sample_weight is -0.5 at row 1 \(0-based\): weights are finite numbers from 0"),
        ([1.0, 1.0, np.inf, 1.0], r"sample_weight is inf at row 2"),
        ([1.0, 1.0, 1.0, np.nan], r"sample_weight is nan at row 3"),
        ([0, 0, 0, 0], r"sample_weight is zero for every row: give some rows a positive weight"),
        (["1", "2", "3", "4"], r"sample_weight has type <U1: weights are finite numbers from 0"),
        ([1e-300, 1.0, 1.0, 1.0], r"sample_weight of X goes from 1e-300 to 1, which is too far from one"),
    ],
)
def test_weights_that_cannot_be_used_are_refused_by_name(weights, message):
    with pytest.raises(DataError, match=message):
        weigh(Dataset.from_arrays(X, Y, sample_weight=weights))


def test_more_weights_than_the_budget_has_room_for_are_not_read():
    data = Dataset.from_arrays(X, Y, sample_weight=np.ones(4))
    with pytest.raises(BudgetError, match="too small for the weights of 4 rows"):
        weigh(data, budget_bytes=100)


@pytest.mark.parametrize("given", ["even", {}, {0: 0.0}, {0: -1.0}, {0: np.inf}, {0: "2"}, {0: True}, [1.0, 2.0], 3.0])
def test_weights_of_classes_are_checked(given):
    with pytest.raises(ParameterError, match="class_weight="):
        check_class_weight(given)


@pytest.mark.parametrize("text", ["even", "no", "no:", ":2", "no:1,yes", "no:x"])
def test_words_for_weights_of_classes_are_checked(text):
    with pytest.raises(ParameterError, match="neither balanced nor labels with weights"):
        read_class_weight(text)


def test_weights_of_classes_are_told_as_they_are_read():
    assert read_class_weight(class_weight_in_words({"a:b": 2.0, "c": 0.5})) == {"a:b": 2.0, "c": 0.5}
    assert class_weight_in_words(dict.fromkeys(range(1000), 1.0)) == "weights of 1000 classes"
    assert class_weight_in_words(None) is None
