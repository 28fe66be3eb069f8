"""Localized multiple kernel learning (Gonen and Alpaydin 2008): kernel weights that depend on where a sample is.

    f(x) = sum_m eta_m(x) <w_m, phi_m(x)> + b
    eta_m(x) = exp(<v_m, x> + v_m0) / sum_k exp(<v_k, x> + v_k0)                          the gates
    K_eta(x, z) = sum_m eta_m(x) K_m(x, z) eta_m(z)

    min over v:   J(v) = max over alpha:  sum alpha - 1/2 sum_ij alpha_i alpha_j y_i y_j K_eta(x_i, x_j)
                                          with  0 <= alpha <= C,  sum alpha_i y_i = 0

In turns: solve the SVM on K_eta, then move the gating v against dJ/dv, with a line search on J. J falls with each
step, but it is not convex: the end is a local optimum that depends on the random start.

There are three kinds of kernels, each perhaps divided by its mean diagonal:

    linear <x, z>        polynomial (<x, z> + 1)^2        gaussian exp(-|x - z|^2 / width^2)

Kernels of the same kind share their Gram G, so a kind costs one product: K_eta = sum over kinds of G o (E E'), where
the columns of E are the gates of its kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import softmax
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.svm import SVC

from mllkm_scale.base.arrays import Array
from mllkm_scale.baselines.base import Baseline, check_choice, check_count, check_positive, seed_of
from mllkm_scale.errors import ParameterError

__all__ = ["KINDS", "Kind", "LMKLClassifier", "gates", "gating_gradient", "kinds_of", "localized_gram"]

KINDS = ("linear", "polynomial", "gaussian")

Parts = Sequence[tuple[Array, Array]]
"""Of each kind of kernel: its Gram (n, n), and which kernels (columns of the gates) are of that kind."""

ENOUGH = 1e-4  # of the decrease that the slope promises: the least that a step must bring (Armijo)


@dataclass(frozen=True)
class Kind:
    """One kind of kernel, what it is divided by, and which kernels of the machine are of it."""

    name: str
    members: Array
    width: float
    scale: float = 1.0

    def gram(self, X: Array, Z: Array) -> Array:
        """K (n, m) of two sets of rows."""
        if self.name == "gaussian":
            gram = np.exp(euclidean_distances(X, Z, squared=True) / -(self.width**2))
        else:
            gram = X @ Z.T
            if self.name == "polynomial":
                gram = (gram + 1.0) ** 2
        return np.asarray(gram / self.scale)

    def mean_diagonal(self, X: Array) -> float:
        """Mean of K(x, x) over the rows."""
        if self.name == "gaussian":
            return 1.0
        squares = np.einsum("ij,ij->i", X, X)
        return float(np.mean(squares if self.name == "linear" else (squares + 1.0) ** 2)) or 1.0


def kinds_of(X: Array, kernels: Sequence[str], width: float | str, normalize: bool) -> list[Kind]:
    """The kinds among the kernels, in the order of KINDS."""
    names = np.asarray(kernels)
    found = []
    for name in KINDS:
        members = np.flatnonzero(names == name)
        if len(members) == 0:
            continue
        radius = (nearest_distance(X) if width == "auto" else float(width)) if name == "gaussian" else 1.0
        kind = Kind(name, members, radius)
        found.append(replace(kind, scale=kind.mean_diagonal(X)) if normalize else kind)
    return found


def nearest_distance(X: Array) -> float:
    """Mean distance of a row to its nearest other row."""
    distances = euclidean_distances(X)
    np.fill_diagonal(distances, np.inf)
    mean = float(distances.min(axis=1).mean())
    return mean if 0.0 < mean < np.inf else 1.0


def gates(X: Array, gating: Array) -> Array:
    """eta (n, P) of the rows, from v and v_0 of each kernel, gating (P, d + 1)."""
    return np.asarray(softmax(X @ gating[:, :-1].T + gating[:, -1], axis=1))


def localized_gram(parts: Parts, shares: Array) -> Array:
    """K_eta (n, n) from the gates (n, P)."""
    total = np.zeros_like(parts[0][0])
    for gram, members in parts:
        mixed = shares[:, members] @ shares[:, members].T
        mixed *= gram
        total += mixed
    return total


def gating_gradient(X: Array, parts: Parts, shares: Array, duals: Array) -> Array:
    """dJ/dv (P, d + 1) of the optimal value J = sum y a - 1/2 a' K_eta a, at its signed duals a.

    The duals are optimal, so only K_eta moves with the gating:

        dJ / d eta_m(x_i) = -a_i sum_j K_m(x_i, x_j) eta_m(x_j) a_j
        d eta_m / d(<v_k, x> + v_k0) = eta_m (delta_mk - eta_k)
    """
    pulls = np.empty_like(shares)
    for gram, members in parts:
        pulls[:, members] = gram @ (shares[:, members] * duals[:, None])
    pulls *= shares * duals[:, None]
    slopes = shares * pulls.sum(axis=1, keepdims=True) - pulls
    return np.hstack([slopes.T @ X, slopes.sum(axis=0)[:, None]])


class LMKLClassifier(Baseline):
    """Localized multiple kernel learning of Gonen and Alpaydin, with softmax gates that are linear in the features.

    P copies of the linear kernel make a piecewise linear machine. Features are used as they are, by the kernels and by
    the gates: scale them first. More than two classes are one against the rest, each with its own gating. Memory
    and time grow with n^2: use it for some thousand rows.

    Parameters
    ----------
    kernels : sequence of {"linear", "polynomial", "gaussian"}
        `<x, z>`; `(<x, z> + 1)^2`; `exp(-|x - z|^2 / width^2)`. A name may come several times.
    width : float or "auto"
        Width of the Gaussian; "auto" is the mean distance of a training row to its nearest neighbour.
    normalize : bool
        Divide each kernel by its mean diagonal over the training rows; useful if kinds of kernels are mixed.
    C : float
        Bound of the duals.
    n_steps : int
        Largest number of steps of the gating.
    tol : float
        Relative decrease of J below which the steps stop.
    n_starts : int
        Number of random starts of the gating; the one with the lowest final J is kept.
    random_state : int or None
        Seed of the starts.

    Attributes
    ----------
    gating_ : ndarray (K, P, d + 1)
        v and v_0 of each class and kernel.
    coef_ : ndarray (K, P, d)
        w of the linear kernels, 0 for the others.
    intercept_ : ndarray (K,)
    support_ : ndarray (s,)
        Indices of the rows that are support vectors of any class.
    objectives_ : list of K arrays
        J at the start and after each step.

    References
    ----------
    M. Gonen and E. Alpaydin, "Localized Multiple Kernel Learning", ICML 2008.

    Examples
    --------
    The middle one of three classes in a row takes two linear pieces.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> X, y = (X - X.mean(axis=0)) / X.std(axis=0), y == 1
    >>> [round(LMKLClassifier(kernels=("linear",) * count).fit(X, y).score(X, y), 1) for count in (1, 2)]
    [0.7, 1.0]
    """

    def __init__(
        self,
        kernels: Sequence[str] = ("linear", "linear", "linear"),
        width: float | str = "auto",
        normalize: bool = False,
        C: float = 1.0,
        n_steps: int = 100,
        tol: float = 1e-3,
        n_starts: int = 1,
        random_state: int | None = 0,
    ) -> None:
        self.kernels = kernels
        self.width = width
        self.normalize = normalize
        self.C = C
        self.n_steps = n_steps
        self.tol = tol
        self.n_starts = n_starts
        self.random_state = random_state

    def _learn(self, X: Array, signs: Array) -> None:
        self._check()
        rng = np.random.default_rng(seed_of(self.random_state))
        self._kinds = kinds_of(X, self.kernels, self.width, self.normalize)
        parts = [(kind.gram(X, X), kind.members) for kind in self._kinds]
        # Gates of a start differ by a factor of e or so over the data: equal gates are a saddle point of J.
        spread = np.sqrt(np.mean(np.einsum("ij,ij->i", X, X))) or 1.0
        starts = rng.normal(size=(signs.shape[1], self.n_starts, len(self.kernels), X.shape[1] + 1)) / spread
        self._keep(X, [self._best(X, parts, y, mine) for y, mine in zip(signs.T, starts, strict=True)])

    def _best(self, X: Array, parts: Parts, signs: Array, starts: Array) -> LocalizedMachine:
        """Of the machines of all starts the one of the lowest J."""
        machines = [descend(X, parts, signs, start, self.C, self.n_steps, self.tol) for start in starts]
        return min(machines, key=lambda machine: float(machine.objectives[-1]))

    def _keep(self, X: Array, machines: list[LocalizedMachine]) -> None:
        """What prediction needs: w of the linear kernels, support vectors and their weights for the others."""
        self.gating_ = np.stack([machine.gating for machine in machines])
        self.intercept_ = np.array([machine.bias for machine in machines])
        self.objectives_ = [machine.objectives for machine in machines]
        self.support_ = np.flatnonzero(np.any([machine.duals != 0.0 for machine in machines], axis=0))
        rows = X[self.support_]
        # a_i eta_m(x_i), (K, P, s): the weights of the support vectors in w_m.
        self._expansion = np.stack([(gates(rows, m.gating) * m.duals[self.support_, None]).T for m in machines])
        self.coef_ = np.zeros((*self._expansion.shape[:2], X.shape[1]))
        for kind in self._kinds:
            if kind.name == "linear":
                self.coef_[:, kind.members] = self._expansion[:, kind.members] @ rows / kind.scale
        self._curved = [kind for kind in self._kinds if kind.name != "linear"]
        self._support_rows = rows if self._curved else rows[:0]

    def _scores(self, X: Array) -> Array:
        count, kernels, features = self.coef_.shape
        local = (X @ self.coef_.reshape(-1, features).T).reshape(len(X), count, kernels)
        for kind in self._curved:
            gram = kind.gram(X, self._support_rows)
            for k in range(count):
                local[:, k, kind.members] = gram @ self._expansion[k, kind.members].T
        shares = np.stack([gates(X, gating) for gating in self.gating_], axis=1)
        return np.einsum("nkp,nkp->nk", shares, local) + self.intercept_

    def _check(self) -> None:
        if isinstance(self.kernels, str) or len(self.kernels) == 0:
            raise ParameterError(f"kernels={self.kernels!r}: give a sequence of names, such as ('linear', 'linear')")
        for name in self.kernels:
            check_choice(KINDS, kernels=name)
        if self.width != "auto":
            if isinstance(self.width, str):
                raise ParameterError(f"width={self.width!r}: give a positive number, or 'auto'")
            check_positive(width=self.width)
        check_positive(C=self.C, tol=self.tol)
        check_count(n_steps=self.n_steps, n_starts=self.n_starts)


@dataclass(frozen=True)
class LocalizedMachine:
    """What the descent ends with: gating (P, d + 1), signed duals (n,), bias, and J after each step."""

    gating: Array
    duals: Array
    bias: float
    objectives: Array


def descend(
    X: Array, parts: Parts, signs: Array, gating: Array, C: float, n_steps: int, tol: float
) -> LocalizedMachine:
    """Gradient steps on the gating (P, d + 1), each with a backtracking line search on J."""
    shares = gates(X, gating)
    value, duals, bias = solve_svm(localized_gram(parts, shares), signs, C)
    objectives = [value]
    rate = 0.0
    for _ in range(n_steps if len(gating) > 1 else 0):
        gradient = gating_gradient(X, parts, shares, duals)
        slope = float(np.sum(gradient**2))
        if slope == 0.0:
            break
        rate = 2.0 * rate if rate > 0.0 else 1.0 / np.sqrt(slope)
        # A step that promises less than a share of tol is not worth its SVM.
        while rate * slope > 1e-3 * tol * value:
            trial = gating - rate * gradient
            moved = gates(X, trial)
            reached, tried, offset = solve_svm(localized_gram(parts, moved), signs, C)
            if reached <= value - ENOUGH * rate * slope:
                break
            rate /= 2.0
        else:
            break
        gating, shares, duals, bias = trial, moved, tried, offset
        objectives.append(reached)
        decrease, value = value - reached, reached
        if decrease < tol * value:
            break
    return LocalizedMachine(gating, duals, bias, np.array(objectives))


def solve_svm(gram: Array, signs: Array, C: float) -> tuple[float, Array, float]:
    """Optimal value J, signed duals alpha_i y_i, and bias of the SVM on a Gram matrix."""
    svm = SVC(kernel="precomputed", C=C, tol=1e-4).fit(gram, signs)
    duals = np.zeros(len(signs))
    duals[svm.support_] = svm.dual_coef_[0]
    return float(duals @ (signs - 0.5 * (gram @ duals))), duals, float(svm.intercept_[0])
