"""The relaxed problem of Local Deep Kernel Learning, and its gradient.

One tree per class, P = (Theta, V, W) its parameters, x with a constant 1 appended, signs y = -1 or +1:

    min over P:   lambda_theta/2 |Theta|^2 + lambda_V/2 |V|^2 + lambda_W/2 |W|^2 + mean_i max(0, 1 - y_i f(x_i))

    f(x) = sum over nodes k of  I_k(x) tanh(sigma v_k'x) w_k'x,     I_k(x) the soft path of `ldkl_tree`

All parameters are rows of one array, so that a mini-batch costs two matrix products whatever the number of classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.baselines.ldkl_tree import route_slopes, soft_paths

__all__ = ["Forest", "mean_hinge", "slopes_in_place"]

TINY = 1e-300  # in place of a mean that is zero


@dataclass(frozen=True)
class Forest:
    """Parameters (K, J + 2M, d + 1) of K trees of one depth: routes Theta, gates V and predictors W, in this order."""

    parameters: Array
    depth: int

    @property
    def n_routes(self) -> int:
        """J, the inner nodes of a tree."""
        return 2**self.depth - 1

    @property
    def n_nodes(self) -> int:
        """M, all nodes of a tree."""
        return 2 ** (self.depth + 1) - 1

    @property
    def parts(self) -> tuple[slice, slice, slice]:
        """Where routes, gates and predictors are along the axis of length J + 2M."""
        J, M = self.n_routes, self.n_nodes
        return slice(J), slice(J, J + M), slice(J + M, None)

    def project(self, rows: Array) -> Array:
        """All inner products (b, K, J + 2M) of rows (b, d + 1), the constant included."""
        K, width, _ = self.parameters.shape
        return (rows @ self.parameters.reshape(K * width, -1).T).reshape(len(rows), K, width)


def mean_hinge(forest: Forest, rows: Array, signs: Array, sigma: float, steepness: float) -> tuple[float, Array]:
    """Mean hinge loss over rows (b, d + 1), summed over trees, and its gradient in the shape of the parameters.

    The sharpness of a tree is s = steepness / mean |theta'x|, so that `steepness` says how hard its turns are whatever
    the scale that Theta has reached; s counts as a constant in the gradient.
    """
    projected = forest.project(rows)
    spread = np.abs(projected[..., forest.parts[0]]).mean(axis=(0, 2), keepdims=True)
    loss = slopes_in_place(forest, projected, signs, sigma, steepness / np.maximum(spread, TINY))
    gradient = projected.reshape(len(rows), -1).T @ rows
    return loss, gradient.reshape(forest.parameters.shape)


def slopes_in_place(forest: Forest, projected: Array, signs: Array, sigma: float, sharpness: Array) -> float:
    """The mean hinge loss, from all inner products (b, K, J + 2M), each of which is replaced by its derivative."""
    routes, gates, outputs = (projected[..., part] for part in forest.parts)
    turns, opened = np.tanh(sharpness * routes), np.tanh(sigma * gates)
    paths, slopes = np.empty_like(opened), np.empty_like(turns)
    soft_paths(turns, paths)
    shares = paths * opened * outputs
    slack = 1.0 - signs * shares.sum(axis=2)
    route_slopes(turns, shares, slopes)

    pull = np.where(slack > 0.0, -signs, 0.0)[..., None] / len(signs)  # d loss / d f
    routes[...] = pull * sharpness * slopes
    gates[...] = pull * sigma * paths * outputs * (1.0 - opened**2)
    outputs[...] = pull * paths * opened
    return float(np.maximum(slack, 0.0).sum() / len(signs))
