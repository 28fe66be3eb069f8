"""Locally linear SVM (Ladicky and Torr 2011): one linear machine an anchor, mixed by local coordinates.

    f(x) = gamma(x)' (W x + b) = sum_v gamma_v(x) (<w_v, x> + b_v)

    min over W, b:   lambda/2 (|W|^2 + |b|^2) + 1/n sum_i max(0, 1 - y_i f(x_i)),      lambda = 1 / (C n)

The anchors v are k-means centres. The local coordinates gamma(x) write a sample as a convex combination of its nearest
anchors, of which they are kept as two arrays (n, n_nearest), the anchors and their coordinates:

    gamma_v(x) = s_v(x) / sum_u s_u(x)  over the n_nearest anchors u of x, 0 for the others

    inverse_distance:  s_v(x) = 1 / |x - v|                            (Ladicky and Torr 2011)
    kernel_codebook:   s_v(x) = exp(-|x - v|^2 / (2 bandwidth^2))      (van Gemert et al. 2008)

With the coding fixed this is a linear SVM on gamma(x) (x) [x, 1]; it is solved by stochastic gradient descent with the
step 1 / (lambda (t + t0)). The paper leaves b out of the norm. Solved well, that lets each anchor's free bias memorise
the majority of its cell (USPS at C = 0.1: 8.8 % error instead of 7.7 %), so b is in the norm here.
"""

from __future__ import annotations

import numba
import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans
from threadpoolctl import threadpool_limits

from mllkm_scale.base.arrays import Array
from mllkm_scale.baselines.base import Baseline, check_choice, check_count, check_positive, seed_of
from mllkm_scale.errors import ParameterError

__all__ = ["CODINGS", "LLSVMClassifier", "automatic_bandwidth", "coordinates", "nearest_anchors"]

CODINGS = ("inverse_distance", "kernel_codebook")
ROWS = 2048  # of a block: its inner products with the anchors stay in the cache
MANY = 20_000  # rows above which the centres come from mini-batches


def nearest_anchors(X: Array, anchors: Array, n_nearest: int) -> tuple[Array, Array]:
    """The nearest anchors of each row (n, n_nearest), and their squared distances.

    >>> chosen, squares = nearest_anchors(np.array([[0.9]]), np.array([[0.0], [1.0], [3.0]]), 2)
    >>> chosen.tolist(), squares.round(2).tolist()
    ([[1, 0]], [[0.01, 0.81]])
    """
    chosen = np.empty((len(X), n_nearest), dtype=np.intp)
    squares = np.empty((len(X), n_nearest))
    norms = np.einsum("ij,ij->i", anchors, anchors)
    for start in range(0, len(X), ROWS):
        rows = slice(start, start + ROWS)
        # |x - v|^2 without |x|^2, which is the same for all anchors.
        select_smallest(norms - 2.0 * (X[rows] @ anchors.T), chosen[rows], squares[rows])
        measure_distances(X[rows], anchors, chosen[rows], squares[rows])
    return chosen, squares


def coordinates(squares: Array, coding: str, bandwidth: float) -> Array:
    """gamma(x) of the nearest anchors, from their squared distances; `bandwidth` is the kernel codebook's."""
    closest = squares.min(axis=1, keepdims=True)
    # Both codings are relative to the closest anchor, so that nothing divides by zero or underflows in every place:
    # a sample that is an anchor gets the coordinate 1 there by the inverse distance.
    if coding == "inverse_distance":
        shares = np.sqrt(np.divide(closest, squares, out=np.ones_like(squares), where=squares > closest))
    else:
        shares = np.exp((closest - squares) / (2.0 * bandwidth**2))
    return shares / shares.sum(axis=1, keepdims=True)


def automatic_bandwidth(squares: Array) -> float:
    """The spread of the nearest anchors: the mean over the rows of sqrt(farthest^2 - closest^2), halved.

    The farthest of the nearest anchors then weighs about exp(-2) of the closest: neither a hard assignment nor a
    plain mean, whatever a high dimension adds to all squared distances alike.
    """
    spread = float(np.sqrt(squares.max(axis=1) - squares.min(axis=1)).mean()) / 2.0
    return spread if spread > 0.0 else 1.0


@numba.njit(cache=True, nogil=True)
def select_smallest(values: Array, chosen: Array, smallest: Array) -> None:
    """The positions of the smallest values of each row, in their order, by insertion."""
    kept = chosen.shape[1]
    for i in range(len(values)):
        filled = 0
        for a in range(values.shape[1]):
            value = values[i, a]
            if filled == kept and value >= smallest[i, kept - 1]:
                continue
            place = min(filled, kept - 1)
            while place > 0 and smallest[i, place - 1] > value:
                smallest[i, place] = smallest[i, place - 1]
                chosen[i, place] = chosen[i, place - 1]
                place -= 1
            smallest[i, place] = value
            chosen[i, place] = a
            filled = min(filled + 1, kept)


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def measure_distances(X: Array, anchors: Array, chosen: Array, squares: Array) -> None:
    """|x - v|^2 of the chosen anchors from the differences: by norms and products it would lose what is small."""
    for i in range(len(X)):
        for j in range(chosen.shape[1]):
            a = chosen[i, j]
            total = 0.0
            for l in range(X.shape[1]):
                difference = X[i, l] - anchors[a, l]
                total += difference * difference
            squares[i, j] = total


class LLSVMClassifier(Baseline):
    """Locally linear support vector machine of Ladicky and Torr.

    Features are used as they are: scale them to comparable ranges first. More than two classes are one against the
    rest, with common anchors and codes.

    Parameters
    ----------
    n_anchors : int
        Number of k-means centres; at most one per training row.
    n_nearest : int
        Number of anchors in the code of a sample.
    coding : {"inverse_distance", "kernel_codebook"}
        Local coordinates: the paper's, or normalised Gaussian weights.
    bandwidth : float or "auto"
        Standard deviation of the kernel codebook; "auto" is the spread of the distances to the nearest anchors.
    C : float
        Weight of the hinge loss of one sample against the norm, as in an SVM: lambda = 1 / (C n).
    n_epochs : int
        Passes over the training rows.
    averaging : bool
        Return the mean of the iterates of the second half of the epochs, instead of the last one.
    random_state : int or None
        Seed of the centres and of the order of the rows.

    Attributes
    ----------
    anchors_ : ndarray (m, d)
    coef_ : ndarray (m, K, d)
        w of each anchor and class.
    intercept_ : ndarray (m, K)
    bandwidth_ : float

    References
    ----------
    L. Ladicky and P. H. S. Torr, "Locally Linear Support Vector Machines", ICML 2011.
    J. van Gemert et al., "Kernel Codebooks for Scene Categorization", ECCV 2008.
    A. Bordes, L. Bottou and P. Gallinari, "SGD-QN: Careful Quasi-Newton Stochastic Gradient Descent", JMLR 2009.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> machine = LLSVMClassifier(n_anchors=20).fit(X[:1200] / 16, y[:1200])
    >>> bool(machine.score(X[1200:] / 16, y[1200:]) > 0.9)
    True
    """

    def __init__(
        self,
        n_anchors: int = 100,
        n_nearest: int = 8,
        coding: str = "inverse_distance",
        bandwidth: float | str = "auto",
        C: float = 1.0,
        n_epochs: int = 20,
        averaging: bool = True,
        random_state: int | None = 0,
    ) -> None:
        self.n_anchors = n_anchors
        self.n_nearest = n_nearest
        self.coding = coding
        self.bandwidth = bandwidth
        self.C = C
        self.n_epochs = n_epochs
        self.averaging = averaging
        self.random_state = random_state

    def _learn(self, X: Array, signs: Array) -> None:
        check_count(n_anchors=self.n_anchors, n_nearest=self.n_nearest, n_epochs=self.n_epochs)
        check_positive(C=self.C)
        check_choice(CODINGS, coding=self.coding)
        if self.bandwidth != "auto":
            if isinstance(self.bandwidth, str):
                raise ParameterError(f"bandwidth={self.bandwidth!r}: give a positive number, or 'auto'")
            check_positive(bandwidth=self.bandwidth)
        seed = seed_of(self.random_state)
        self.anchors_ = cluster_centres(X, min(self.n_anchors, len(X)), seed)
        chosen, squares = nearest_anchors(X, self.anchors_, min(self.n_nearest, len(self.anchors_)))
        self.bandwidth_ = automatic_bandwidth(squares) if self.bandwidth == "auto" else float(self.bandwidth)
        codes = coordinates(squares, self.coding, self.bandwidth_)
        affine = np.hstack([X, np.ones((len(X), 1))])
        weights = np.zeros((len(self.anchors_), signs.shape[1], X.shape[1] + 1))
        descend(affine, signs, chosen, codes, 1.0 / (self.C * len(X)), self.n_epochs, self.averaging, seed, weights)
        self.coef_ = np.ascontiguousarray(weights[:, :, :-1])
        self.intercept_ = np.ascontiguousarray(weights[:, :, -1])

    def _scores(self, X: Array) -> Array:
        chosen, squares = nearest_anchors(X, self.anchors_, min(self.n_nearest, len(self.anchors_)))
        codes = coordinates(squares, self.coding, self.bandwidth_)
        scores = np.zeros((len(X), self.coef_.shape[1]))
        add_local_scores(X, chosen, codes, self.coef_, self.intercept_, scores)
        return scores


def cluster_centres(X: Array, number: int, seed: int) -> Array:
    """k-means centres (number, d); from mini-batches if there are many rows."""
    if len(X) > MANY:
        means = MiniBatchKMeans(number, batch_size=4096, n_init=1, max_iter=20, random_state=seed % 2**32)
    else:
        means = KMeans(number, n_init=1, random_state=seed % 2**32)
    # Threads would add up the centres in the order in which they end: other bits each time.
    with threadpool_limits(limits=1):
        return np.asarray(means.fit(X).cluster_centers_)


def descend(
    X: Array,
    signs: Array,
    chosen: Array,
    codes: Array,
    regularization: float,
    n_epochs: int,
    averaging: bool,
    seed: int,
    sums: Array,
) -> None:
    """Turn `sums` (m, K, d), zeros at first, into weights near the minimum of lambda/2 |W|^2 + mean hinge loss.

    At the step 1 / (lambda (t + t0)) the decay telescopes: lambda (t + t0) W_t is the plain sum of y gamma(x) (x) x
    over the margin violations met so far. That sum is what is kept, so the decay is exact at every step and free, where
    the paper skips it in most steps. The first step, 1 / (lambda t0), is the inverse of the mean squared feature norm.
    """
    norms = np.einsum("ij,ij->i", X, X) * np.einsum("ij,ij->i", codes, codes)
    start = float(norms.mean()) / regularization
    earlier = np.zeros_like(sums) if averaging else sums  # not used without averaging
    # Steps taken; and of those averaged over: their number, and the sum of their step sizes.
    clock = np.zeros(3)
    rng = np.random.default_rng(seed)
    for epoch in range(n_epochs):
        averaged = averaging and epoch >= n_epochs // 2
        order = rng.permutation(len(X))
        sgd_epoch(X, signs, chosen, codes, order, regularization, start, averaged, clock, sums, earlier)
    if averaging:
        sums *= clock[2]
        sums -= earlier
        sums /= clock[1]
    else:
        sums /= regularization * (start + clock[0])


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def sgd_epoch(
    X: Array,
    signs: Array,
    chosen: Array,
    codes: Array,
    order: Array,
    regularization: float,
    start: float,
    averaged: bool,
    clock: Array,
    sums: Array,
    earlier: Array,
) -> None:
    """One epoch; `sums` = lambda (t + t0) W, `clock` and `earlier` are changed in place.

    The sum of the iterates W_t = eta_t sums_t over the averaged steps is clock[2] * sums - earlier, where `earlier`
    takes from each gradient the step sizes that had passed before it came.
    """
    features = X.shape[1]
    for i in order:
        scale = 1.0 / (regularization * (start + clock[0]))
        for k in range(signs.shape[1]):
            output = 0.0
            for j in range(chosen.shape[1]):
                a = chosen[i, j]
                local = 0.0
                for l in range(features):
                    local += sums[a, k, l] * X[i, l]
                output += codes[i, j] * local
            if signs[i, k] * output * scale < 1.0:
                for j in range(chosen.shape[1]):
                    a = chosen[i, j]
                    gradient = signs[i, k] * codes[i, j]
                    for l in range(features):
                        sums[a, k, l] += gradient * X[i, l]
                    if averaged:
                        for l in range(features):
                            earlier[a, k, l] += clock[2] * gradient * X[i, l]
        clock[0] += 1.0
        if averaged:
            clock[1] += 1.0
            clock[2] += 1.0 / (regularization * (start + clock[0]))


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def add_local_scores(X: Array, chosen: Array, codes: Array, coef: Array, intercept: Array, scores: Array) -> None:
    """scores_k(x) += sum over the nearest anchors of gamma_v(x) (<w_vk, x> + b_vk).

    MNIST, ten classes, 10,000 rows: 0.10 s; a product an anchor over its own rows 0.33 s, one with all anchors 0.42 s.
    """
    for i in range(len(X)):
        for j in range(chosen.shape[1]):
            a = chosen[i, j]
            for k in range(coef.shape[1]):
                local = intercept[a, k]
                for l in range(X.shape[1]):
                    local += coef[a, k, l] * X[i, l]
                scores[i, k] += codes[i, j] * local
