"""The tree of Local Deep Kernel Learning: soft paths for training, the derivative of a route, one hard path to predict.

Nodes are numbered as in a heap: node j has the children 2j + 1 (taken where theta_j'x > 0) and 2j + 2. A tree of depth
D has J = 2^D - 1 inner nodes, which route, and M = 2^(D+1) - 1 nodes in all, each with a local predictor. Training
relaxes the indicator "x comes through node k" to a product over the ancestors of k,

    I_0 = 1,   I_(2j+1) = I_j (1 + t_j) / 2,   I_(2j+2) = I_j (1 - t_j) / 2,   t_j = tanh(s theta_j'x),

which becomes the hard one as the sharpness s grows. Arrays are (rows, trees, nodes): one tree per class.
"""

from __future__ import annotations

import numba
import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["path_scores", "route_slopes", "soft_paths"]


@numba.njit(cache=True, nogil=True)
def soft_paths(turns: Array, paths: Array) -> None:
    """Write I_k of every node into `paths` (b, K, M), from the turns t_j (b, K, J)."""
    b, K, J = turns.shape
    for i in range(b):
        for k in range(K):
            paths[i, k, 0] = 1.0
            for j in range(J):
                left = 0.5 * paths[i, k, j] * (1.0 + turns[i, k, j])
                paths[i, k, 2 * j + 1] = left
                paths[i, k, 2 * j + 2] = paths[i, k, j] - left


@numba.njit(cache=True, nogil=True)
def route_slopes(turns: Array, shares: Array, slopes: Array) -> None:
    """Write df / d(s theta_j'x) into `slopes` (b, K, J), where f is the sum of the nodes' `shares` (b, K, M).

    I_k (1 + t_j) / 2 has the logarithmic derivative 1 - t_j, and its sibling -(1 + t_j), so a route sees the shares of
    its two subtrees only through their sums. These are gathered from the leaves upwards in `shares` itself.
    """
    b, K, J = turns.shape
    for i in range(b):
        for k in range(K):
            for j in range(J - 1, -1, -1):
                left, right = shares[i, k, 2 * j + 1], shares[i, k, 2 * j + 2]
                slopes[i, k, j] = left * (1.0 - turns[i, k, j]) - right * (1.0 + turns[i, k, j])
                shares[i, k, j] += left + right


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def affine(x: Array, weights: Array) -> float:
    """weights'(x, 1)."""
    total = weights[len(x)]
    for l in range(len(x)):
        total += weights[l] * x[l]
    return total


@numba.njit(cache=True, nogil=True)
def path_scores(X: Array, routes: Array, gates: Array, predictors: Array, sigma: float, scores: Array) -> None:
    """Write f of every row and tree into `scores` (n, K): each row visits the D + 1 nodes of its path and no other."""
    K, J = routes.shape[0], routes.shape[1]
    for i in range(len(X)):
        for k in range(K):
            node, total = 0, 0.0
            while True:
                total += np.tanh(sigma * affine(X[i], gates[k, node])) * affine(X[i], predictors[k, node])
                if node >= J:
                    break
                node = 2 * node + (1 if affine(X[i], routes[k, node]) > 0.0 else 2)
            scores[i, k] = total
