"""The gating of localized multiple kernel learning: which kernel counts where.

    eta_m(x) = exp(<v_m, x> + v_m0) / sum_k exp(<v_k, x> + v_k0)
    K_eta(x, z) = sum_m eta_m(x) K_m(x, z) eta_m(z)

Kernels of the same kind share their Gram G, so a kind costs one product: K_eta = sum over kinds of G o (E E'), where
the columns of E are the gates of its kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import softmax

from mllkm_scale.base.arrays import Array

__all__ = ["gates", "gating_gradient", "localized_gram"]

Parts = Sequence[tuple[Array, Array]]
"""Of each kind of kernel: its Gram (n, n), and which kernels (columns of the gates) are of that kind."""


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
