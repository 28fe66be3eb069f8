"""A kernel machine in few landmarks: where they are, the pseudo-landmarks that come with each, and their weights.

A gaussian kernel machine f(x) = sum_i a_i k(x, x_i) over the rows of one cluster is replaced by

    g(x) = sum_r sum_j beta_rj k(x, c + r (u_j - c)),      c the centre of the cluster, u_j landmarks, r = 1 and others

Landmarks. The error of the model that a Nystroem approximation gives is bounded by the k-means objective of the
landmarks in which row i has the weight a_i^2 (Hsieh, Si, Dhillon 2014): hence weighted k-means.

Pseudo-landmarks. |x - c - r (u - c)|^2 = |x - c|^2 - 2 r <x - c, u - c> + r^2 |u - c|^2 needs no inner product beyond
that of its landmark, so the points on the ray from the centre through a landmark cost O(1) each instead of O(d).

Weights. beta is the least squares fit of g to f on the rows of the cluster,

    min over beta:   sum_i (g(x_i) - f(x_i))^2 + ridge n |g|^2,      |g| the norm in the space of the kernel
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh, solve
from sklearn.cluster import KMeans

from mllkm_scale.base.arrays import Array

__all__ = ["Expansion", "fitted_expansion", "weighted_centres"]

RIDGE = 1e-9  # against the rounding of kernels that are nearly dependent, not against the training samples
RANK = 1e-12  # least eigenvalue, relative to the largest, that counts in the span of the landmarks


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
