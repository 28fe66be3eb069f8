"""An independent reference: all kernels of the grid by plain formulas, and l1-MKL by a conic solver.

Nothing here uses the package. A kernel is given by its features F (n, p), K = F F'. With several classes the
weights are shared:

    max  1'a - 1/2 s^2    s.t.   |(F_m' (a_k o y_k))_k| <= s  for all m,    0 <= a <= C

where C is a number, or (n, 1): C_i of samples with weights. Kernel `anchor * len(gammas) + gamma` has that anchor and
that gamma.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import cvxpy as cp
import numpy as np

BUMPS = {
    "exponential": lambda t, gamma: np.exp(-gamma * t),
    "gaussian": lambda t, gamma: np.exp(-gamma * t**2),
    "linear": lambda t, gamma: np.maximum(0.0, 1.0 - gamma * t),
    "squared": lambda t, gamma: np.maximum(0.0, 1.0 - gamma * t**2),
}
LEAST_REACH = 10.0


@dataclass(frozen=True)
class Reference:
    """Optimal value, duals (n, K) and kernel weights of the problem with all kernels."""

    value: float
    duals: np.ndarray
    weights: np.ndarray


def kernel_features(X, anchor, gamma, *, map, componentwise, local_bias=0.0):
    """phi(x) of one kernel for every row of X, (n, d + 1)."""
    offsets = X - anchor
    if componentwise:
        bumps = BUMPS[map](np.abs(offsets), gamma)
        constant = bumps.mean(axis=1)
    else:
        constant = BUMPS[map](np.sqrt((offsets**2).sum(axis=1)), gamma)
        bumps = constant[:, None]
    return np.column_stack([bumps * offsets, np.sqrt(local_bias) * constant])


def unit_trace_scale(features):
    """1 / mean diagonal u; 0 for a kernel whose effective size (sum u)^2 / sum u^2 is below ten."""
    u = (features**2).sum(axis=1)
    if u.sum() ** 2 <= min(LEAST_REACH, 0.5 * len(u)) * (u**2).sum():
        return 0.0
    return 1.0 / u.mean()


def grid_features(X, gammas, *, map, componentwise, normalize=None, local_bias=0.0, anchors=None):
    """Features of every kernel of the grid, in the order of their ids; the anchors are the rows of X."""
    family = {"map": map, "componentwise": componentwise, "local_bias": local_bias}
    X = np.asarray(X, dtype=np.float64)
    features = []
    for anchor in X if anchors is None else anchors:
        for gamma in gammas:
            F = kernel_features(X, anchor, gamma, **family)
            features.append(F * np.sqrt(unit_trace_scale(F)) if normalize == "trace" else F)
    return features


def gram_features(K):
    """Features of a kernel that is given by its Gram."""
    values, vectors = np.linalg.eigh(K)
    used = values > 1e-13 * values.max(initial=0.0)
    return vectors[:, used] * np.sqrt(values[used])


def quadratic_forms(features, signed_duals):
    """q_m = sum over classes of |F_m' a|^2."""
    return np.array([np.sum((F.T @ signed_duals) ** 2) for F in features])


def solve(features, signs, C):
    """The optimum over all the kernels given by their features; `signs` is (n, K)."""
    n, K = signs.shape
    features = [_narrow(F) for F in features]
    width = max(F.shape[1] for F in features)
    padded = [np.pad(F, ((0, 0), (0, width - F.shape[1]))) for F in features]
    a, s = cp.Variable((n, K)), cp.Variable()
    # One column per kernel: its moments F_m' (a_k o y_k) of all classes on top of each other.
    stacked = np.concatenate(padded, axis=1).T
    parts = [
        cp.reshape(stacked @ cp.multiply(signs[:, k], a[:, k]), (width, len(features)), order="F") for k in range(K)
    ]
    rows = cp.norm(cp.vstack(parts), 2, axis=0) <= s
    problem = cp.Problem(cp.Maximize(cp.sum(a) - 0.5 * cp.square(s)), [rows, a >= 0, a <= np.broadcast_to(C, (n, K))])
    for tol in (1e-9, 1e-8):  # rounding does not always allow the smaller one
        with warnings.catch_warnings(action="ignore"):
            problem.solve(solver=cp.CLARABEL, tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol)
        if problem.status == "optimal":
            break
    else:
        raise AssertionError(f"the conic solver ended with {problem.status!r}")
    multipliers = np.maximum(rows.dual_value, 0.0)
    return Reference(float(problem.value), np.clip(a.value, 0.0, C), multipliers / multipliers.sum())


def _narrow(F):
    """Features with the same Gram, and no more of them than samples."""
    if F.shape[1] <= len(F):
        return F
    left, values, _ = np.linalg.svd(F, full_matrices=False)
    return left * values


def bounds(features, signs, C, duals, weights):
    """Dual and primal value: dual <= optimum <= primal, for any duals in the box and any weights >= 0.

    The primal point is w_m = beta_m sum_i a_i y_i phi_m(x_i).
    """
    signed = duals * signs
    q = quadratic_forms(features, signed)
    F = sum(b * (phi @ (phi.T @ signed)) for b, phi in zip(weights, features, strict=True) if b > 0)
    primal = 0.5 * (weights @ np.sqrt(q)) ** 2 + (C * np.maximum(0.0, 1.0 - signs * F)).sum()
    return float(duals.sum() - 0.5 * q.max()), float(primal)


def optimum(X, signs, map, componentwise, gammas, normalize=None, local_bias=0.0, C=1.0):
    """Optimal value over ALL kernels, anchors (the rows of X) x gammas."""
    features = grid_features(
        X, gammas, map=map, componentwise=componentwise, normalize=normalize, local_bias=local_bias
    )
    return solve(features, signs, C).value


def certified_gap(X, signs, map, componentwise, gammas, normalize, local_bias, C, *, duals, active, weights):
    """(P - D) / P over ALL kernels, by brute force; `weights` belong to the kernels with the ids `active`."""
    features = grid_features(
        X, gammas, map=map, componentwise=componentwise, normalize=normalize, local_bias=local_bias
    )
    dense = np.zeros(len(features))
    dense[active] = weights
    dual, primal = bounds(features, signs, C, duals, dense)
    return (primal - dual) / primal
