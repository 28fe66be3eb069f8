"""DC-Pred++: a kernel SVM for each cluster of the samples, each compressed to few landmarks for fast prediction.

Divide: k-means splits the samples into clusters. Conquer: in each cluster, and for each class, a gaussian kernel SVM

    min over f, b:   1/2 |f|^2 + C sum over the cluster of max(0, 1 - y_i (f(x_i) + b))

is solved by itself. Predict fast: a sample is answered by the cluster whose centre c is nearest, and its f is replaced
by an expansion in landmarks u_j and pseudo-landmarks, O(d (n_clusters + n_landmarks)) in all:

    g(x) = sum_r sum_j beta_rj k(x, c + r (u_j - c)),      r = 1 for the landmarks, and other scales

Landmarks. The error of the model that a Nystroem approximation gives is bounded by the k-means objective of the
landmarks in which row i has the weight a_i^2 (Hsieh, Si, Dhillon 2014): hence weighted k-means.

Pseudo-landmarks. |x - c - r (u - c)|^2 = |x - c|^2 - 2 r <x - c, u - c> + r^2 |u - c|^2 needs no inner product beyond
that of its landmark, so the points on the ray from the centre through a landmark cost O(1) each instead of O(d).

Weights. beta is the least squares fit of g to f on the rows of the cluster,

    min over beta:   sum_i (g(x_i) - f(x_i))^2 + ridge n |g|^2,      |g| the norm in the space of the kernel
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh, solve
from sklearn.cluster import KMeans
from sklearn.svm import SVC

from mllkm_scale.base.arrays import Array
from mllkm_scale.baselines.base import Baseline, check_choice, check_count, check_positive, seed_of
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.distances import row_blocks, squared_distances

__all__ = ["DCPredClassifier", "Expansion", "fitted_expansion", "weighted_centres"]

RIDGE = 1e-9  # against the rounding of kernels that are nearly dependent, not against the training samples
RANK = 1e-12  # least eigenvalue, relative to the largest, that counts in the span of the landmarks
SAMPLE = 20_000  # random rows that the clusters are found on
LANDMARK_WEIGHTS = ("duals", "uniform")


def weighted_centres(X: Array, weights: Array, count: int, seed: int) -> Array:
    """Centres of k-means with a weight for each row; the distinct rows themselves if they are not more than `count`."""
    points, which = np.unique(X[weights > 0.0], axis=0, return_inverse=True)
    if len(points) <= count:
        return points
    total = np.bincount(which.ravel(), weights[weights > 0.0])
    return np.asarray(KMeans(count, n_init=1, random_state=seed).fit(points, sample_weight=total).cluster_centers_)


@dataclass(frozen=True)
class Expansion:
    """g(x) = sum_rj beta_rj exp(-gamma |x - c - r (u_j - c)|^2) + intercept, for K outputs at once.

    With no landmarks it is the intercept alone: a cluster whose rows are all of one class.
    """

    centre: Array  # (d,)
    offsets: Array  # u_j - c, (m, d)
    scales: Array  # r, (R,), the landmarks themselves being 1
    gamma: float
    weights: Array  # beta, (R m, K)
    intercept: Array  # (K,)

    def kernels(self, X: Array) -> Array:
        """k(x, .) of rows (n, d) and all landmarks and pseudo-landmarks, (n, R m)."""
        centred = X - self.centre
        inner, lengths = centred @ self.offsets.T, np.einsum("jl,jl->j", self.offsets, self.offsets)
        D = np.einsum("il,il->i", centred, centred)[:, None, None] - 2.0 * self.scales[:, None] * inner[:, None, :]
        D += self.scales[:, None] ** 2 * lengths
        np.maximum(D, 0.0, out=D)
        D *= -self.gamma
        return np.exp(D, out=D).reshape(len(X), D.shape[1] * D.shape[2])

    def points(self) -> Array:
        """All landmarks and pseudo-landmarks, (R m, d)."""
        return self.centre + (self.scales[:, None, None] * self.offsets).reshape(-1, len(self.centre))

    def values(self, X: Array) -> Array:
        """g of rows (n, d), shape (n, K)."""
        return self.kernels(X) @ self.weights + self.intercept


def fitted_expansion(
    X: Array, targets: Array, intercept: Array, landmarks: Array, scales: Array, gamma: float
) -> Expansion:
    """The expansion in the landmarks whose sum is nearest to `targets` (n, K) on the rows (n, d)."""
    centre = X.mean(axis=0)
    bare = Expansion(centre, landmarks - centre, scales, gamma, np.zeros((0, len(intercept))), intercept)
    if len(landmarks) == 0:
        return bare
    # In the Nystroem features K Q L^(-1/2), with Q L Q' the kernel of the landmarks, |g| is the norm of the weights.
    eigenvalues, Q = eigh(bare.kernels(bare.points()))
    kept = eigenvalues > RANK * eigenvalues[-1]
    to_features = Q[:, kept] / np.sqrt(eigenvalues[kept])
    features = bare.kernels(X) @ to_features
    gram = features.T @ features
    gram.flat[:: len(gram) + 1] += RIDGE * len(X)
    return replace(bare, weights=to_features @ solve(gram, features.T @ targets, assume_a="pos"))


class DCPredClassifier(Baseline):
    """DC-Pred++: divide and conquer with kernel SVMs, compressed to landmarks and pseudo-landmarks.

    The division, one SVM per cluster, and landmarks from k-means weighted by the squared duals are those of the paper.
    Two details are specific to this package. Pseudo-landmarks lie on the ray from the centre of the cluster through a
    landmark, so they need no inner product of their own, as the paper asks. The weights of the expansion are a least
    squares fit to the SVM's decision function. More than two classes are one SVM each in every
    cluster, one against the rest, over landmarks they share (weighted by the sum of the squared duals).

    Parameters
    ----------
    n_clusters : int
        Number of clusters. One Gram matrix of a cluster is in memory at a time: choose n / n_clusters of at most some
        thousands.
    n_landmarks : int
        Landmarks per cluster; all of its support vectors if there are fewer.
    C : float
        Weight of the hinge loss.
    gamma : float or "scale"
        Scale of `exp(-gamma |x - z|^2)`; "scale" is 1 / (number of features times their variance).
    pseudo_scales : sequence of float
        The r, none of them 1, of the pseudo-landmarks c + r (u - c) that go with each landmark u, c the mean of the
        cluster; empty for none.
    landmark_weights : "duals" or "uniform"
        Weights of the k-means that finds the landmarks: the squared duals (the paper), or one for every row of the
        cluster. The first serves where the support vectors are a small part of the rows, the second can serve where
        the landmarks are few against the support vectors.
    random_state : int or None
        Seed of k-means.

    Attributes
    ----------
    classes_ : array (n_classes,)
        Labels.
    centres_ : array (number of clusters, d)
        Centres that choose the cluster of a sample; clusters without training samples are left out.
    expansions_ : list of Expansion
        The compressed machine of each cluster.
    n_support_ : array (number of clusters,)
        Support vectors of each cluster before they were compressed.

    References
    ----------
    C.-J. Hsieh, S. Si, I. S. Dhillon. Fast Prediction for Large-Scale Kernel Machines. NIPS 2014.

    C.-J. Hsieh, S. Si, I. S. Dhillon. A Divide-and-Conquer Solver for Kernel Support Vector Machines. ICML 2014.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> bool(DCPredClassifier(n_clusters=4).fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.96)
    True
    """

    def __init__(
        self,
        n_clusters: int = 10,
        n_landmarks: int = 50,
        *,
        C: float = 10.0,
        gamma: float | str = "scale",
        pseudo_scales: Sequence[float] = (0.5, 1.5),
        landmark_weights: str = "duals",
        random_state: int | None = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_landmarks = n_landmarks
        self.C = C
        self.gamma = gamma
        self.pseudo_scales = pseudo_scales
        self.landmark_weights = landmark_weights
        self.random_state = random_state

    def _learn(self, X: Array, signs: Array) -> None:
        check_count(n_clusters=self.n_clusters, n_landmarks=self.n_landmarks)
        check_positive(C=self.C)
        check_choice(LANDMARK_WEIGHTS, landmark_weights=self.landmark_weights)
        gamma, scales, seed = self._checked_gamma(X), self._checked_scales(), seed_of(self.random_state)

        sample = np.random.default_rng(seed).permutation(len(X))[:SAMPLE]
        centres = weighted_centres(X[sample], np.ones(len(sample)), self.n_clusters, seed)
        used, cluster = np.unique(_nearest(X, centres), return_inverse=True)
        self.centres_, self.expansions_, n_support = centres[used], [], []
        for c in range(len(used)):
            rows, y = X[cluster == c], signs[cluster == c]
            gram = np.exp(-gamma * squared_distances(rows, rows))
            duals, intercept = _cluster_svms(gram, y, self.C)
            importance = np.sum(duals**2, axis=1)
            n_support.append(np.count_nonzero(importance))
            if self.landmark_weights == "uniform":
                importance = np.full(len(rows), float(n_support[-1] > 0))
            landmarks = weighted_centres(rows, importance, self.n_landmarks, seed)
            self.expansions_.append(fitted_expansion(rows, gram @ duals, intercept, landmarks, scales, gamma))
        self.n_support_ = np.array(n_support)

    def _checked_gamma(self, X: Array) -> float:
        if isinstance(self.gamma, str):
            check_choice(("scale",), gamma=self.gamma)
            variance = float(X.var())
            return 1.0 / (X.shape[1] * variance) if variance > 0.0 else 1.0
        check_positive(gamma=self.gamma)
        return float(self.gamma)

    def _checked_scales(self) -> Array:
        """1 for the landmarks themselves, then the scales of the pseudo-landmarks."""
        scales = [1.0, *self.pseudo_scales]
        numbers = all(isinstance(r, int | float | np.number) and math.isfinite(r) for r in scales)
        if not numbers or len(set(scales)) < len(scales):
            raise ParameterError(
                f"pseudo_scales={self.pseudo_scales!r}: give numbers that differ from each other and from 1, or none"
            )
        return np.array(scales, dtype=np.float64)

    def _scores(self, X: Array) -> Array:
        scores, cluster = np.empty((len(X), len(self.expansions_[0].intercept))), _nearest(X, self.centres_)
        order = np.argsort(cluster, kind="stable")
        for together in np.split(order, np.flatnonzero(np.diff(cluster[order])) + 1):
            for block in row_blocks(len(together)):
                rows = together[block]
                scores[rows] = self.expansions_[cluster[rows[0]]].values(X[rows])
        return scores


def _nearest(X: Array, centres: Array) -> Array:
    """The centre nearest to each row: the largest of <x, c> - |c|^2 / 2."""
    half, nearest = 0.5 * np.einsum("cl,cl->c", centres, centres), np.empty(len(X), dtype=np.intp)
    for block in row_blocks(len(X)):
        nearest[block] = (X[block] @ centres.T - half).argmax(axis=1)
    return nearest


def _cluster_svms(gram: Array, signs: Array, C: float) -> tuple[Array, Array]:
    """Signed duals (n, K) and intercepts (K,) of the SVMs of one cluster; constant for a class that has all or none."""
    duals, intercept = np.zeros_like(signs), signs[0].copy()
    for k in np.flatnonzero(np.any(signs != signs[0], axis=0)):
        svm = SVC(C=C, kernel="precomputed").fit(gram, signs[:, k])
        duals[svm.support_, k], intercept[k] = svm.dual_coef_[0], svm.intercept_[0]
    return duals, intercept
