"""Rounding to few bits, one constant after the other: the remaining constants compensate the error.

With theta the constants of sums Phi theta over rows of the data, and H = Phi' Phi + lambda I, the loss of rounding
theta to q is (q - theta)' H (q - theta) for each sum. Once q_i is fixed, it is least for the others at

    theta_j += (H^-1)_ij / (H^-1)_ii (q_i - theta_i)

where H belongs to the constants that are not yet fixed; a row of the Cholesky factor of H^-1 gives the update of all
later ones. Constants with the largest cost of rounding come first. They are processed in groups with an H that fits
into memory; each group is fitted to the errors of the previous one. Constants are measured in their own steps, and
lambda is, too.
"""

from __future__ import annotations

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.plan.device import ROUNDED_TOGETHER

__all__ = ["rounded_in_turn"]

_DAMPING = 0.01  # of the mean of the diagonal of H, for constants in units of their steps


def rounded_in_turn(Phi: Array, theta: Array, units: Array, tops: Array) -> Array:
    """Integers q (P, K) within `tops`, such that Phi (n, P) times `units` q is close to Phi theta, theta (P, K).

    `tops` and `units` are (P, K), or (P, 1) or (1, K) if they are equal for all sums or constants.

    Examples
    --------
    >>> Phi = np.array([[1.0, 1.0], [1.0, 1.0]])
    >>> rounded_in_turn(Phi, np.array([[0.6], [0.6]]), np.ones((2, 1)), np.full((2, 1), 7.0)).ravel().tolist()
    [1.0, 0.0]
    """
    q = np.zeros_like(theta)
    units, tops = (np.broadcast_to(values, theta.shape) for values in (units, tops))
    lost = np.zeros((len(Phi), theta.shape[1]))
    scale = units.mean(axis=1)  # mean step of each constant
    with one_blas_thread():
        for start in range(0, len(theta), ROUNDED_TOGETHER):
            part = slice(start, start + ROUNDED_TOGETHER)
            own = scale[part, None]
            A = Phi[:, part] * own[:, 0]
            H = A.T @ A
            H[np.diag_indices_from(H)] += max(_DAMPING * float(np.mean(np.diag(H))), np.finfo(np.float64).tiny)
            wanted = theta[part] / own + np.linalg.solve(H, A.T @ lost)
            q[part] = _in_turn(H, wanted, units[part] / own, tops[part])
            lost += A @ ((theta[part] - units[part] * q[part]) / own)
    return q


def _in_turn(H: Array, theta: Array, units: Array, tops: Array) -> Array:
    """Round in the order of the individual losses, the largest first, so that all others can compensate it."""
    order = np.argsort(-np.diag(H) * np.square(units).max(axis=1), kind="stable")
    U = np.linalg.cholesky(np.linalg.inv(H[np.ix_(order, order)])).T
    left, q = theta[order], np.zeros_like(theta)
    for i, at in enumerate(order):
        q[at] = np.clip(np.rint(left[i] / units[at]), -tops[at], tops[at])
        left[i + 1 :] -= U[i, i + 1 :, None] * ((left[i] - units[at] * q[at]) / U[i, i])
    return q
