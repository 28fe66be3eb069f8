"""Fits local predictors again to the scores of the model, with rounded bumps and features.

    min |Phi theta - f|^2 over theta = (slopes, levels),    Phi_im = [h_m o_m, h_m] of the integers of a row

by conjugate gradients from the predictors of the model, with columns of unit norm. Held-out rows determine when to
stop: the first steps correct rounding errors, and later steps would overfit the sample.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.export.integer.integers import Integers
from mllkm_scale.export.integer.machine import IntegerMachine
from mllkm_scale.plan.device import FITTED_NUMBERS

__all__ = ["design", "refitted", "rows_for"]

_LEAST_ROWS = 64
_STEPS, _PATIENCE, _HELD = 60, 5, 4  # largest steps, patience, and one of this number of rows is held out


def refitted(machine: IntegerMachine, U: Integers, targets: Array) -> tuple[Array, Array]:
    """Slopes (s, K, d) and levels (s, K) in z' with the best fit to the targets (rows, K) on integer rows."""
    s, K, d = machine.slopes.shape
    n = rows_for(machine, len(U))
    Phi, F = design(machine, U[:n]), targets[:n].astype(np.float64)
    start = np.concatenate(
        [
            (machine.slopes * machine.units[:, None, None]).transpose(0, 2, 1),
            (machine.levels * (machine.units * 2.0**machine.level_shift * machine.step)[:, None])[:, None, :],
        ],
        axis=1,
    ).reshape(-1, K)
    held = np.arange(n) % _HELD == 0
    with one_blas_thread():
        moved = _conjugate_gradients(Phi, F - Phi @ start.astype(np.float32), held)
    theta = (start + moved).reshape(s, d + 1, K)
    return np.ascontiguousarray(theta[:, :d].transpose(0, 2, 1)), theta[:, d].copy()


def rows_for(machine: IntegerMachine, n_rows: int) -> int:
    """Number of rows of Phi."""
    return min(n_rows, max(_LEAST_ROWS, FITTED_NUMBERS // (machine.n_kernels * (machine.n_features + 1))))


def design(machine: IntegerMachine, U: Integers) -> Array:
    """Phi (rows, s (d + 1)) in single precision, with offsets in units of z'."""
    Z = machine.preparation.apply(U)
    s, d = machine.anchors.shape
    Phi = np.empty((len(Z), s, d + 1), np.float32)
    for m in range(s):
        offsets = Z - (machine.anchors[m] << machine.anchor_shift)
        squares = offsets * offsets
        D = squares if machine.componentwise else squares.sum(axis=1, keepdims=True)
        h = machine.bumps.evaluate(D, m) / machine.bumps.heights[m]
        Phi[:, m, :d] = h * offsets * machine.step
        Phi[:, m, d] = h.sum(axis=1)
    return Phi.reshape(len(Z), -1)


def _conjugate_gradients(Phi: Array, F: Array, held: NDArray[np.bool_]) -> Array:
    """The change of theta for the residuals F: the iterate that is best on held-out rows, or zero."""
    norms = np.sqrt(np.einsum("ij,ij->j", Phi, Phi, dtype=np.float64))
    scales = (1.0 / np.where(norms > 0, norms, np.inf)).astype(np.float32)[:, None]
    A, B = Phi[~held], Phi[held]
    x = np.zeros((Phi.shape[1], F.shape[1]), np.float32)
    best, least, since = x, float(np.square(F[held]).sum()), 0
    residual = F[~held].astype(np.float32)
    gradient = scales * (A.T @ residual)
    direction, size = gradient, np.einsum("ij,ij->j", gradient, gradient)
    for _ in range(_STEPS):
        if not size.all() or since >= _PATIENCE:
            break
        image = A @ (scales * direction)
        step = size / np.maximum(np.einsum("ij,ij->j", image, image), np.finfo(np.float32).tiny)
        x = x + step * direction
        residual = residual - step * image
        loss = float(np.square(F[held] - B @ (scales * x)).sum())
        since += 1
        if loss < least:
            best, least, since = x, loss, 0
        gradient = scales * (A.T @ residual)
        grown = np.einsum("ij,ij->j", gradient, gradient)
        direction = gradient + grown / size * direction
        size = grown
    moved: Array = (scales * best).astype(np.float64)
    return moved
