"""LaSVM: an online SVM with a Gaussian kernel that needs one pass over the samples (Bordes et al. 2005).

    max over alpha:   sum_i alpha_i y_i - 1/2 sum_ij alpha_i alpha_j k(x_i, x_j),     k(x, z) = exp(-gamma |x - z|^2)
    subject to        sum alpha = 0,   min(0, C y_i) <= alpha_i <= max(0, C y_i);     f(x) = sum_i alpha_i k(x_i, x) + b

the dual of the SVM with bias and hinge loss. Each sample is processed once in an epoch: it enters the support set if it
makes a violating pair with a member. Each such attempt is followed by a reprocess step on the most violating pair of
the support set, which also drops members. The finishing step repeats these until no pair of the support set violates
by more than tau. The classes of one against the rest learn side by side: a sample's kernel row over the union of their
support sets, and the cached rows of its members, serve them all.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.units import parse_bytes
from mllkm_scale.baselines.base import Baseline, check_count, check_positive, seed_of
from mllkm_scale.baselines.kernel_cache import KernelCache, gaussian_block
from mllkm_scale.baselines.lasvm_steps import Problem, Window, extremes, finish, seed, visit
from mllkm_scale.baselines.support_sets import empty_machines, empty_union, machine_of, widened
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.distances import row_blocks, squared_distances

__all__ = ["LaSVMClassifier"]

_WINDOW = 64  # samples whose kernel rows are computed at once
_SEEDS = 5  # samples of either sign that a class starts with
_FIRST_WIDTH = 512  # slots at the start; a quarter more than needed when the support sets outgrow them
_STEPS_AT_ONCE = 100_000  # of the finishing step, between two chances to interrupt it


class LaSVMClassifier(Baseline):
    """SVM with a Gaussian kernel by LaSVM; more than two classes are one against the rest.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the hinge losses against the norm.
    gamma : float or "scale", default="scale"
        Scale of the kernel; "scale" is 1 / (d * variance of all entries of X).
    n_epochs : int or None, default=1
        Passes over the samples before the finishing step. None repeats pass and finishing step until a pass finds no
        violating pair: the solution of the SVM over all samples, up to tau.
    tau : float, default=1e-3
        Tolerance: pairs whose gradients differ by less do not violate.
    cache_bytes : str or int, default="200MB"
        Bound on the cached kernel rows, such as "1GB". It changes the time of the training, not its result. In
        addition, the rows of the next 64 samples are in memory, and two more if the bound leaves room for none.
    random_state : int or None, default=0
        Seed of the order in which the samples are visited.

    Attributes
    ----------
    support_ : ndarray of shape (m,)
        Indices of the training samples that are support vectors of at least one class.
    support_vectors_ : ndarray of shape (m, d)
        These samples.
    dual_coef_ : ndarray of shape (K, m)
        Signed alphas; K is 1 for two classes.
    intercept_ : ndarray of shape (K,)
        Biases.
    n_support_ : ndarray of shape (K,)
        Number of support vectors of each class.
    gamma_ : float
        Scale of the kernel.
    n_iter_ : int
        Passes over the samples.
    violation_ : ndarray of shape (K,)
        Largest difference of the gradients of a pair of the support set; at most tau.
    cache_statistics_ : CacheStatistics
        Hits, misses and evictions of the kernel's rows, and the most bytes that were kept.

    References
    ----------
    A. Bordes, S. Ertekin, J. Weston, L. Bottou, "Fast kernel classifiers with online and active learning", Journal of
    Machine Learning Research 6, 2005.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> machine = LaSVMClassifier(C=10.0).fit(X[:1000], y[:1000])
    >>> machine.score(X[1000:], y[1000:]) > 0.95
    True
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        gamma: float | str = "scale",
        n_epochs: int | None = 1,
        tau: float = 1e-3,
        cache_bytes: str | int = "200MB",
        random_state: int | None = 0,
    ) -> None:
        self.C = C
        self.gamma = gamma
        self.n_epochs = n_epochs
        self.tau = tau
        self.cache_bytes = cache_bytes
        self.random_state = random_state

    def _learn(self, X: Array, signs: Array) -> None:
        check_positive(C=self.C, tau=self.tau)
        if self.n_epochs is not None:
            check_count(n_epochs=self.n_epochs)
        self.gamma_ = self._checked_gamma(X)
        # Read-only rows would be a type of their own to the compiled steps, compiled once more.
        problem = Problem(np.require(X, requirements="W"), signs, self.gamma_, float(self.C), float(self.tau))
        training = _Training(problem, self._checked_bytes())
        rng = np.random.default_rng(seed_of(self.random_state))
        training.seed(rng.permutation(len(X)))
        exact = self.n_epochs is None
        for epoch in itertools.count(1):
            if exact:
                # So that a pass in which no sample enters changes nothing, and proves that no pair at all violates.
                training.finish()
            entered = training.visit(rng.permutation(len(X)))
            if (exact and entered == 0) or epoch == self.n_epochs:
                break
        training.finish()
        self.n_iter_ = epoch
        self._keep(training)

    def _keep(self, training: _Training) -> None:
        """The fitted attributes: members with alpha = 0 are no support vectors."""
        duals, self.intercept_, self.violation_ = training.solution()
        self.support_ = np.flatnonzero(duals.any(axis=0))
        self.support_vectors_ = training.problem.X[self.support_]
        self.dual_coef_ = duals[:, self.support_]
        self.n_support_ = np.count_nonzero(duals, axis=1)
        self.cache_statistics_ = training.cache.statistics
        if (self.violation_ > self.tau).any():
            warnings.warn(
                f"LaSVM ends at a violation of {self.violation_.max():.1e}, where its steps are below the precision of "
                f"the numbers: raise tau={self.tau}, or lower C={self.C}",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _checked_gamma(self, X: Array) -> float:
        if isinstance(self.gamma, str):
            if self.gamma != "scale":
                raise ParameterError(f"gamma={self.gamma!r}: give a positive number, or 'scale'")
            variance = float(X.var())
            return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0
        check_positive(gamma=self.gamma)
        return float(self.gamma)

    def _checked_bytes(self) -> int:
        try:
            return parse_bytes(self.cache_bytes)
        except ParameterError as error:
            raise ParameterError(f"cache_bytes={self.cache_bytes!r}: {error}") from None

    def _scores(self, X: Array) -> Array:
        scores = np.empty((len(X), len(self.intercept_)))
        for block in row_blocks(len(X)):
            kernel = squared_distances(X[block], self.support_vectors_)
            kernel *= -self.gamma_
            scores[block] = np.exp(kernel, out=kernel) @ self.dual_coef_.T
        return scores + self.intercept_


class _Training:
    """Support sets, duals and cache of all classes on their way; grows them as needed, and calls the compiled steps."""

    def __init__(self, problem: Problem, bound_bytes: int) -> None:
        self.problem = problem
        n, classes = problem.signs.shape
        self._n = n
        self._union, self._machines = empty_union(n, 0), empty_machines(classes, 0)
        self.cache = KernelCache(bound_bytes, n)

    def seed(self, order: Array) -> None:
        """Every class starts with the first few samples of either sign."""
        self._reserve(2 * _SEEDS * len(self._machines.size))
        for k, signs in enumerate(self.problem.signs[order].T):
            samples = np.concatenate([order[signs > 0][:_SEEDS], order[signs < 0][:_SEEDS]])
            seed(self._machines, self._union, self.cache.rows, self.problem, k, self._window(samples))

    def visit(self, order: Array) -> int:
        """One pass over the samples; how often one has entered a support set."""
        entered = 0
        for samples in np.split(order, range(_WINDOW, len(order), _WINDOW)):
            self._reserve(len(samples))
            entered += visit(self._machines, self._union, self.cache.rows, self.problem, self._window(samples))
        return entered

    def finish(self) -> None:
        """No pair of a support set violates any more."""
        for k in range(len(self._machines.size)):
            steps = _STEPS_AT_ONCE
            while steps == _STEPS_AT_ONCE:
                steps = finish(self._machines, self._union, self.cache.rows, self.problem, k, _STEPS_AT_ONCE)

    def solution(self) -> tuple[Array, Array, Array]:
        """Signed alphas (K, n), biases (K,), and the largest violation of each class."""
        duals, highest, lowest = np.zeros((len(self._machines.size), self._n)), [], []
        for k in range(len(duals)):
            machine = machine_of(self._machines, k)
            size = machine.size[0]
            duals[k, self._union.samples[machine.members[:size]]] = machine.duals[:size]
            up, down = extremes(machine, self.problem.C)
            highest.append(machine.gradients[up])
            lowest.append(machine.gradients[down])
        top, bottom = np.array(highest), np.array(lowest)
        return duals, (top + bottom) / 2.0, top - bottom

    def _window(self, samples: Array) -> Window:
        X, gamma, union = self.problem.X, self.problem.gamma, self._union
        rows, mutual = np.empty((len(samples), len(union.samples))), np.empty((len(samples), len(samples)))
        gaussian_block(X, gamma, samples, union.samples[: union.counts[0]], rows)
        gaussian_block(X, gamma, samples, samples, mutual)
        return Window(samples, rows, mutual)

    def _reserve(self, count: int) -> None:
        """Slots for so many samples more."""
        used, free = self._union.counts
        needed, width = min(used - free + count, self._n), len(self._union.samples)
        if needed > width:
            width = min(max(needed + needed // 4, _FIRST_WIDTH), self._n)
            self._union, self._machines = widened(self._union, self._machines, width)
            self.cache.widen(width)
