"""Weights of samples that are learned online: their boxes, samples without weight, and what is saved of them."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from mllkm_scale import MLLKMClassifier
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.online import DatasetSamples, OnlineLearner, OnlineParams, open_samples, stream
from mllkm_scale.online.saved import restore, saved_state
from mllkm_scale.params import resolve


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(700, 3))
    y = (np.square(X).sum(axis=1) + rng.normal(size=700) > 3).astype(int)
    return X, y, rng.choice([0.0, 0.5, 1.0, 4.0], 700)


def learner_for(**given):
    return OnlineLearner(resolve(C=2.0, n_jobs=1, max_kernels=40, **given), OnlineParams(warm_up=200), classes=[0, 1])


def bits_of(learner):
    model = learner.model()
    return [getattr(model, name).tobytes() for name in ("anchors", "gammas", "weights", "coef", "local_coef")]


def test_duals_stay_in_the_boxes_of_their_samples(samples):
    X, y, weights = samples
    learner = learner_for()
    for start in range(0, 700, 70):
        part = slice(start, start + 70)
        learner.learn(X[part], y[part], sample_weight=weights[part])
    kept = learner.started[1].kept
    np.testing.assert_array_equal(kept.weights, weights[kept.ids])
    assert kept.weights.min() > 0
    assert (kept.duals <= 2.0 * kept.weights[:, None]).all()
    assert kept.duals[kept.weights == 4.0].max() > 2.0
    _, machine = learner.finished()
    assert 0 <= machine.objective().gap < 0.5


def test_weights_of_one_are_none_and_classes_multiply_them(samples):
    X, y, weights = samples
    plain, ones, by_class, product = learner_for(), learner_for(), learner_for(class_weight={1: 3.0}), learner_for()
    plain.learn(X, y)
    ones.learn(X, y, sample_weight=np.ones(700))
    by_class.learn(X, y, sample_weight=weights)
    product.learn(X, y, sample_weight=weights * np.where(y == 1, 3.0, 1.0))
    assert bits_of(plain) == bits_of(ones)
    assert bits_of(by_class) == bits_of(product) != bits_of(plain)


def test_what_is_saved_goes_on_with_the_same_bits(samples):
    X, y, weights = samples
    whole, first, second = learner_for(), learner_for(), learner_for()
    whole.learn(X, y, sample_weight=weights)
    first.learn(X[:450], y[:450], sample_weight=weights[:450])
    header, arrays = saved_state(first)
    restore(second, header, arrays)
    second.learn(X[450:], y[450:], sample_weight=weights[450:])
    assert bits_of(second) == bits_of(whole)
    arrays["kept_duals"] = arrays["kept_duals"] + 9.0
    with pytest.raises(ValueError, match="beyond their box"):
        restore(learner_for(), header, arrays)


def test_the_estimator_and_a_stream_from_a_file_take_weights(samples, tmp_path):
    X, y, weights = samples
    with h5py.File(tmp_path / "train.h5", "w") as file:
        file["X"], file["y"], file["w"] = X, y, weights
    how = {"C": 2.0, "n_jobs": 1, "max_kernels": 40, "warm_up": 200}
    opened = open_samples(tmp_path / "train.h5", sample_weight="w")
    assert isinstance(opened, DatasetSamples)
    streamed = stream(opened, classes=[0, 1], **how).model
    machine = MLLKMClassifier(**how)
    for start in range(0, 700, 100):
        part = slice(start, start + 100)
        machine.partial_fit(X[part], y[part], classes=[0, 1], sample_weight=weights[part])
    np.testing.assert_array_equal(machine.model_.coef, streamed.coef)


def test_weights_that_cannot_be_used_are_refused(samples, tmp_path):
    X, y, _ = samples
    learner = learner_for()
    with pytest.raises(DataError, match="sample_weight is -1"):
        learner.learn(X[:3], y[:3], sample_weight=[1, -1, 1])
    with pytest.raises(DataError, match="sample_weight has 2 weights"):
        learner.learn(X[:3], y[:3], sample_weight=[1, 1])
    learner.learn(X[:3], y[:3], sample_weight=[0, 0, 0])
    assert learner.n_seen == 3
    with pytest.raises(ParameterError, match="class_weight='balanced'"):
        learner_for(class_weight="balanced")
    (tmp_path / "some.csv").write_text("1,2,a\n3,4,b\n")
    with pytest.raises(ParameterError, match="sample_weight does not belong to the format csv"):
        open_samples(tmp_path / "some.csv", sample_weight="w")
