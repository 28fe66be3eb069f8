"""Learning online from raw rows: the state is a function of the samples alone, and a model can be had at any moment."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale.errors import BudgetError, DataError, ParameterError
from mllkm_scale.model import describe
from mllkm_scale.online.learner import OnlineLearner
from mllkm_scale.online.machine import BLOCK
from mllkm_scale.online.params import OnlineParams
from mllkm_scale.params import resolve

ARRAYS = ("classes", "anchors", "gammas", "kernel_scale", "weights", "coef", "local_coef")


def learner_for(classes=None, *, warm_up=150, n_jobs=1, max_samples=None, **params):
    return OnlineLearner(resolve(n_jobs=n_jobs, **params), OnlineParams(max_samples, None, warm_up), classes)


def bits_of(learner):
    model = learner.model()
    record = vars(learner.prequential)
    scored = [(scores.tobytes(), codes.tobytes()) for scores, codes in record["scored"]]
    return [getattr(model, name).tobytes() for name in ARRAYS] + [record | {"scored": scored}]


@pytest.fixture(scope="module")
def digits(real_data):
    """1,100 digits with three labels, which is more than an episode after the warm-up."""
    X, y = real_data("digits")
    rows = np.random.default_rng(0).permutation(len(X))[:1100]
    return X[rows], y[rows] % 3


@pytest.fixture(scope="module")
def at_once(digits):
    """The learner that is given all samples in one call."""
    learner = learner_for()
    learner.learn(*digits)
    return learner


def test_the_bits_do_not_depend_on_calls_looks_or_threads(digits, at_once):
    X, y = digits
    for n_jobs, sizes, looks in [(1, [1, 100, 300, 7, 128], True), (2, [64], False), (2, [1000], True)]:
        learner, start, n_calls = learner_for(n_jobs=n_jobs), 0, 0
        while start < len(X):
            size = sizes[n_calls % len(sizes)]
            learner.learn(X[start : start + size], y[start : start + size])
            start, n_calls = start + size, n_calls + 1
            if looks and start > 50 and n_calls % 4 == 0:
                learner.model()
        assert bits_of(learner) == bits_of(at_once)
        assert learner.n_seen == 1100
        learner.close()


def test_a_model_is_of_its_moment(digits):
    X, y = digits
    learner = learner_for()
    learner.learn(X[:300], y[:300])
    model = learner.model()
    before = [getattr(model, name).tobytes() for name in ARRAYS]
    learner.learn(X[300:], y[300:])
    assert [getattr(model, name).tobytes() for name in ARRAYS] == before
    assert (model.certificate.status, model.certificate.n_train) == ("online", 300)
    assert learner.model().certificate.n_train == 1100
    assert "learned from a stream" in describe(model).as_text()


def test_finishing_brings_the_gap_down_and_changes_nothing_of_the_state(digits):
    X, y = digits[0][:90], digits[1][:90]
    learner = learner_for(range(3))
    learner.learn(X, y)
    assert learner.started is None  # the warm-up is not over
    assert np.mean(learner.model().predict(X) == y) > 0.95
    for _ in range(6):  # passes that are shorter than a block: some samples wait twice
        learner.learn(X, y, np.arange(90), new=False)
    assert len(learner.pending) > 90
    before = bits_of(learner)
    _, machine = learner.finished()
    assert bits_of(learner) == before
    assert 0.0 <= machine.objective().gap < learner.started[1].objective().gap
    assert learner.model().certificate.n_train == 630
    assert np.mean(learner.model().predict(X) == y) > 0.95


def test_every_sample_is_tested_by_a_machine_that_has_learned_only_samples_before_it(digits, at_once):
    X, y = digits
    learner, errors = learner_for(), 0
    learner.learn(X[:150], y[:150])
    for start in range(150, len(X) - BLOCK, BLOCK):
        setup, machine = learner.started
        outputs = machine.active.outputs(setup.prepare(X[start : start + BLOCK]))
        errors += int((outputs.argmax(axis=1) != y[start : start + BLOCK]).sum())
        learner.learn(X[start : start + BLOCK], y[start : start + BLOCK])
        assert (learner.prequential.tested, learner.prequential.errors) == (start + BLOCK - 150, errors)
    assert errors > 0
    assert at_once.prequential.tested == (1100 - 150) // BLOCK * BLOCK
    assert at_once.prequential.error < 0.15


def test_samples_that_come_again_are_learned_but_not_tested(digits):
    X, y = digits[0][:300], digits[1][:300]
    learner = learner_for()
    for i in range(3):
        learner.learn(X, y, np.arange(300), new=i == 0)
    assert learner.n_seen == 900
    assert learner.prequential.tested == 150
    kept = learner.started[1].kept
    assert len(set(kept.ids)) == len(kept) <= 300
    assert np.mean(learner.model().predict(X) == y) > 0.95


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("iris", {"componentwise": True}),
        ("iris", {"componentwise": True, "map": "squared", "local_bias": 0.0}),
        ("breast_cancer", {"n_components": 5, "normalize": None}),
        ("breast_cancer", {"map": "exponential", "max_kernels": 3, "n_components": 0.9, "whiten": True}),
    ],
    ids=str,
)
def test_families_projections_and_two_classes(real_data, name, params):
    X, y = real_data(name)
    rows = np.random.default_rng(0).permutation(len(X))
    learner = learner_for(warm_up=100, **params)
    learner.learn(X[rows], y[rows])
    model = learner.model()
    assert np.mean(model.predict(X) == y) > 0.9
    assert len(model.coef) == (1 if name == "breast_cancer" else 3)
    assert model.n_kernels <= params.get("max_kernels", 500)


def test_labels_may_be_text(digits, at_once):
    X, y = digits
    names = np.array(["eins", "two", "zwei and more"])
    for classes in (None, names[::-1]):
        learner = learner_for(classes)
        learner.learn(X[:600], names[y[:600]])
        learner.learn(X[600:], names[y[600:]])
        model = learner.model()
        assert model.classes.tolist() == names.tolist()
        assert model.weights.tobytes() == at_once.model().weights.tobytes()
        assert model.predict(X[:5]).tolist() == names[at_once.model().predict(X[:5])].tolist()


@settings(max_examples=15)
@given(
    n=st.integers(1, 12), d=st.integers(1, 3), distinct=st.integers(1, 3), n_classes=st.integers(2, 4), data=st.data()
)
def test_there_is_a_model_from_the_first_sample_on(n, d, distinct, n_classes, data):
    rows = np.random.default_rng(0).normal(size=(distinct, d))
    X = rows[data.draw(st.lists(st.integers(0, distinct - 1), min_size=n, max_size=n))]
    y = np.array(data.draw(st.lists(st.integers(0, n_classes - 1), min_size=n, max_size=n)))
    learner = learner_for(range(n_classes), componentwise=data.draw(st.booleans()))
    learner.learn(X, y)
    model = learner.model()
    assert set(model.predict(X)) <= set(range(n_classes))
    assert np.isfinite(model.decision_function(X)).all()
    assert model.weights.sum() == pytest.approx(1.0)


def test_one_class_alone_is_learned_if_the_classes_are_given(digits):
    X, y = digits
    learner = learner_for([0, 1])
    learner.learn(X[y == 0][:200], y[y == 0][:200])
    assert learner.started is not None
    assert learner.model().predict(X[y == 0]).tolist() == [0] * int((y == 0).sum())
    learner.learn(X[y == 1], y[y == 1])
    assert np.mean(learner.model().predict(X[y == 1])) > 0.9


def test_what_cannot_be_learned_is_refused_and_nothing_is_lost(digits):
    X, y = digits
    with pytest.raises(DataError, match=r"classes=\[1\]: give all possible labels"):
        learner_for([1, 1])
    learner = learner_for([0, 1, 2])
    with pytest.raises(DataError, match="no sample has arrived yet"):
        learner.model()
    learner.learn(X[:200], y[:200])
    before = bits_of(learner)
    with pytest.raises(DataError, match=r"sample 202 \(0-based\) .* label 7, none of the classes 0, 1, 2"):
        learner.learn(X[:4], [0, 1, 7, 2])
    with pytest.raises(DataError, match="label 'a', none of the classes"):
        learner.learn(X[:1], ["a"])
    with pytest.raises(DataError, match="these rows have 63 features, those before had 64"):
        learner.learn(X[:4, :-1], y[:4])
    with pytest.raises(DataError, match="there are 4 rows and 3 labels"):
        learner.learn(X[:4], y[:3])
    assert learner.n_seen == 200
    assert bits_of(learner) == before


def test_without_classes_those_of_the_warm_up_are_all(digits):
    X, y = digits
    learner = learner_for()
    learner.learn(X[:100], np.zeros(100, int))
    with pytest.raises(DataError, match="all 100 samples so far have the label 0: give all possible labels"):
        learner.model()
    with pytest.raises(DataError, match="all 150 samples so far have the label 0"):
        learner.learn(X[:50], np.zeros(50, int))
    assert learner.n_seen == 150
    unseen = np.where(np.arange(200) == 170, 9, y[:200])  # among samples that come with the last of the warm-up
    learner = learner_for()
    with pytest.raises(DataError, match=r"sample 170 \(0-based\) .* label 9, none of the classes 0, 1, 2"):
        learner.learn(X[:200], unseen)
    assert learner.n_seen == 200


def test_a_budget_that_is_too_small_is_refused_at_the_start(digits):
    learner = learner_for(memory_budget="200MB")
    with pytest.raises(BudgetError, match="too small to keep"):
        learner.learn(*digits)
    assert learner.n_seen == 1100


def test_samples_that_do_not_differ_are_refused_at_the_start(digits):
    learner = learner_for([0, 1, 2])
    with pytest.raises(ParameterError, match="check that the samples differ"):
        learner.learn(np.ones((200, 4)), digits[1][:200])
    assert learner.n_seen == 200


def test_whoever_listens_is_told_after_the_start_and_each_block(digits):
    seen = []
    learner = OnlineLearner(
        resolve(n_jobs=1), OnlineParams(warm_up=150), listen=lambda learner: seen.append(learner.started[1].n_seen)
    )
    learner.learn(digits[0][:500], digits[1][:500])
    assert seen == [150, 150 + BLOCK, 150 + 2 * BLOCK]
