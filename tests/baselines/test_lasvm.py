"""LaSVM against its listing in NumPy, and against LIBSVM."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

from mllkm_scale.baselines.kernel_cache import KernelCache, gaussian_block
from mllkm_scale.baselines.lasvm import LaSVMClassifier
from mllkm_scale.baselines.lasvm_steps import Problem, Window, finish, seed, visit
from mllkm_scale.baselines.support_sets import empty_machines, empty_union, machine_of
from mllkm_scale.errors import ParameterError


def dual_objective(duals, K, y):
    return duals @ y - 0.5 * duals @ K @ duals


def full_duals(machine, n, k=0):
    duals = np.zeros(n)
    duals[machine.support_] = machine.dual_coef_[k]
    return duals


class Listing:
    """LaSVM for two classes on a whole kernel matrix, step by step as in the article.

    A step makes the gradients of its two samples equal up to rounding, which then decides about the next pair: sums
    are made in the order of the compiled loops.
    """

    def __init__(self, K, y, C, tau, seeds):
        self.K, self.y, self.tau = K, y, tau
        self.low, self.high = np.minimum(0, C * y), np.maximum(0, C * y)
        self.alpha, self.g, self.S = np.zeros(len(y)), y.copy(), list(seeds)

    def pair(self):
        up = [s for s in self.S if self.alpha[s] < self.high[s]]
        down = [s for s in self.S if self.alpha[s] > self.low[s]]
        return max(up, key=self.g.__getitem__), min(down, key=self.g.__getitem__)

    def step(self, i, j):
        K, room_i, room_j = self.K, self.high[i] - self.alpha[i], self.alpha[j] - self.low[j]
        change = min((self.g[i] - self.g[j]) / (K[i, i] + K[j, j] - 2 * K[i, j]), room_i, room_j)
        self.alpha[i] = self.high[i] if change == room_i else self.alpha[i] + change
        self.alpha[j] = self.low[j] if change == room_j else self.alpha[j] - change
        self.g -= change * (K[i] - K[j])

    def process(self, k):
        if k in self.S:
            return
        self.alpha[k], self.g[k] = 0.0, self.y[k]
        for s in self.S:
            self.g[k] -= self.alpha[s] * self.K[k, s]
        up, down = self.pair()
        i, j = (k, down) if self.y[k] > 0 else (up, k)
        if self.g[i] - self.g[j] > self.tau:
            self.S.append(k)
            self.step(i, j)

    def reprocess(self):
        i, j = self.pair()
        if self.g[i] - self.g[j] <= self.tau:
            return False
        self.step(i, j)
        i, j = self.pair()
        for place in range(len(self.S) - 1, -1, -1):
            s = self.S[place]
            if self.alpha[s] == 0 and (self.g[s] >= self.g[i] if self.y[s] < 0 else self.g[s] <= self.g[j]):
                self.S[place] = self.S[-1]
                self.S.pop()
        return True


@pytest.mark.parametrize("bound_bytes", [0, 3_000, 10**6])
def test_the_compiled_steps_are_those_of_the_listing(small_problem, bound_bytes):
    X, signs = small_problem("breast_cancer", 80)
    X = np.ascontiguousarray(X)
    y, everyone, K, gamma, C, tau = signs[:, 0], np.arange(80), np.empty((80, 80)), 0.05, 2.0, 1e-3
    gaussian_block(X, gamma, everyone, everyone, K)
    seeds = np.array([*np.flatnonzero(y > 0)[:2], *np.flatnonzero(y < 0)[:2]])
    listing = Listing(K, y, C, tau, seeds)
    union, machines, cache = empty_union(80, 80), empty_machines(1, 80), KernelCache(bound_bytes, 80)
    cache.widen(80)
    state = (machines, union, cache.rows, Problem(X, signs, gamma, C, tau))

    def assert_same():
        machine = machine_of(machines, 0)
        size = machine.size[0]
        members = union.samples[machine.members[:size]]
        assert members.tolist() == listing.S
        np.testing.assert_allclose(machine.duals[:size], listing.alpha[members], rtol=1e-12)
        np.testing.assert_allclose(machine.gradients[:size], listing.g[members], atol=1e-12)

    def window(samples):
        rows, used = np.full((len(samples), 80), np.nan), union.counts[0]
        rows[:, :used] = K[np.ix_(samples, union.samples[:used])]
        return Window(samples, rows, K[np.ix_(samples, samples)])

    seed(*state, 0, window(seeds))
    for part in np.split(np.random.default_rng(0).permutation(80), 4):
        visit(*state, window(part))
        for k in part:
            listing.process(k)
            listing.reprocess()
        assert_same()
    steps = 0
    while listing.reprocess():
        steps += 1
    assert finish(*state, 0, 10**6) == steps > 10
    assert_same()


def test_all_of_scikit_learns_checks_pass():
    results = check_estimator(LaSVMClassifier(), on_fail=None, on_skip=None)
    assert {result["check_name"] for result in results if result["status"] != "passed"} <= {"check_array_api_input"}


@pytest.mark.parametrize(
    ("name", "C", "gamma"), [("breast_cancer", 1.0, "scale"), ("diabetes", 100.0, 0.01), ("sonar", 100.0, 0.1)]
)
def test_repeated_until_nothing_violates_it_has_the_optimum_of_libsvm(small_problem, name, C, gamma):
    X, signs = small_problem(name, 500)
    y = signs[:, 0]
    machine = LaSVMClassifier(C, gamma=gamma, n_epochs=None, tau=1e-4).fit(X, y)
    reference = SVC(C=C, gamma=gamma, tol=1e-5).fit(X, y)
    K = rbf_kernel(X, gamma=machine.gamma_)
    best = dual_objective(full_duals(reference, len(X)), K, y)
    duals = full_duals(machine, len(X))
    assert dual_objective(duals, K, y) == pytest.approx(best, rel=1e-6)
    np.testing.assert_allclose(machine.decision_function(X), reference.decision_function(X), atol=1e-3)
    assert abs(duals.sum()) < 1e-9 * C
    assert (duals * y).min() >= 0
    assert (duals * y).max() <= C
    assert machine.violation_[0] <= 1e-4


@pytest.mark.parametrize("name", ["ionosphere", "sonar", "heart", "diabetes"])
@pytest.mark.parametrize("gamma", [1e-3, 0.1, 10.0])
def test_small_problems_with_a_large_C_converge(small_problem, name, gamma):
    X, signs = small_problem(name, 540)
    machine = LaSVMClassifier(100.0, gamma=gamma).fit(X, signs[:, 0])
    assert machine.violation_[0] <= 1e-3


def test_one_epoch_on_usps_has_nearly_the_test_error_of_libsvm(split_data):
    X, y, X_test, y_test = split_data("usps")
    machine = LaSVMClassifier(10.0, gamma=0.03, n_epochs=1).fit(X, y)
    # SVC(C=10, gamma=0.03): 4.24 % by OneVsRestClassifier, 4.68 % by its own one against one
    assert 1 - machine.score(X_test, y_test) == pytest.approx(0.0424, abs=0.005)
    assert machine.dual_coef_.shape == (10, len(machine.support_))
    assert len(machine.support_) < 2600
    assert (machine.n_support_ <= len(machine.support_)).all()


def test_classes_side_by_side_are_those_trained_alone(small_problem):
    X, signs = small_problem("wine", 178)
    y = signs.argmax(axis=1)
    together = LaSVMClassifier(5.0, n_epochs=None, tau=1e-6).fit(X, y)
    for k in range(3):
        alone = LaSVMClassifier(5.0, n_epochs=None, tau=1e-6).fit(X, signs[:, k])
        np.testing.assert_allclose(together.decision_function(X)[:, k], alone.decision_function(X), atol=1e-5)
        assert together.n_support_[k] == alone.n_support_[0]


def test_the_bound_of_the_cache_is_kept_and_does_not_change_a_bit(small_problem):
    X, signs = small_problem("digits", 700)
    y = signs.argmax(axis=1)
    bounds = [1, 20_000, 200_000, "100MB"]
    machines = [LaSVMClassifier(5.0, gamma=0.02, cache_bytes=bound).fit(X, y) for bound in bounds]
    for bound, machine in zip([1, 20_000, 200_000, 10**8], machines, strict=True):
        assert machine.cache_statistics_.peak_bytes <= bound
        assert np.array_equal(machine.support_, machines[0].support_)
        assert np.array_equal(machine.dual_coef_, machines[0].dual_coef_)
        assert np.array_equal(machine.intercept_, machines[0].intercept_)
    misses = [machine.cache_statistics_.misses for machine in machines]
    assert misses == sorted(misses, reverse=True)
    assert machines[0].cache_statistics_.hits == machines[-1].cache_statistics_.evictions == 0
    assert machines[2].cache_statistics_.evictions > 0


def test_it_is_searched_over_like_any_estimator(small_problem):
    X, signs = small_problem("ionosphere", 245)
    search = GridSearchCV(LaSVMClassifier(100.0), {"gamma": [1e-3, 1e-2, 1e-1]}, cv=3).fit(X, signs[:, 0])
    assert search.best_score_ > 0.9


def test_a_seed_gives_the_same_bits_and_none_another_order(small_problem):
    X, signs = small_problem("breast_cancer", 150)
    first, second, other = (LaSVMClassifier(random_state=seed).fit(X, signs[:, 0]).intercept_ for seed in (3, 3, None))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_two_equal_samples_with_different_labels_are_no_obstacle():
    X, y = np.zeros((4, 2)), [0, 1, 0, 1]
    machine = LaSVMClassifier(2.0).fit(X, y)
    assert machine.gamma_ == 1.0
    np.testing.assert_allclose(abs(machine.dual_coef_), 2.0)


@pytest.mark.parametrize(
    "wrong",
    [{"C": 0}, {"gamma": "auto"}, {"gamma": -1.0}, {"n_epochs": 0}, {"tau": 0.0}, {"cache_bytes": "many"}],
    ids=str,
)
def test_a_wrong_parameter_is_named(wrong):
    with pytest.raises(ParameterError, match=f"{next(iter(wrong))}="):
        LaSVMClassifier(**wrong).fit([[0.0], [1.0]], [0, 1])
