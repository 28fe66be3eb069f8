"""Starts of the outer loop: without a machine, from a known machine, or from the solution of another problem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.mkl.renewal import LOOSEST
from mllkm_scale.mkl.state import Settings, State

__all__ = ["cold_start", "heaviest", "start_from_heaviest", "start_from_machine", "start_from_other_C"]


_NEAR_TOL = 0.02  # inner tolerance of the first round, if training starts near the solution
_MOST_ROWS, _MOST_SHARE = (
    3000,
    0.25,
)  # most working samples of a class at the start from a known machine, whichever is larger
_AT_BOUND = 0.999  # of the box: interior points end slightly inside it


def cold_start(signs: Array, settings: Settings) -> State:
    """Random samples, half of them of each sign of a class, with duals proportional to their weights, and no
    kernels."""
    n, K = signs.shape
    working, duals, box = np.zeros((n, K), dtype=bool), np.zeros((n, K)), settings.box(n)
    mean = float(box.weights.mean())
    for k in range(K):
        rng = np.random.default_rng([settings.seed, 0, k])
        for sign in (1.0, -1.0):
            rows = rng.permutation(np.flatnonzero(signs[:, k] == sign))[: max(1, settings.first_samples // 2)]
            working[rows, k] = True
            own = box.take(rows)
            duals[rows, k] = own.upper / max(
                1.0, own.weights.sum() / mean
            )  # so that the duals of both signs have the same sum
    nothing = np.empty(0, np.int64)
    return State(
        round=0,
        active=nothing,
        weights=np.empty(0),
        working=working,
        duals=duals,
        inner_tol=LOOSEST,
        pool=nothing,
        priced=False,
        scanned=False,
        left=nothing,
        proof=np.zeros((n, K)),
        best_active=nothing,
        best_weights=np.empty(0),
        best_duals=np.zeros((n, K)),
    )


def start_from_machine(active: Array, weights: Array, margins: Array, signs: Array, settings: Settings) -> State:
    """Kernels and weights of a machine whose margins (n, K) are known.

    The working samples are those that are not well beyond the margin. If there are too many, they are chosen at random:
    the samples within the margin alone would be mostly errors. A class that is learned without errors has its nearest
    samples as working samples.
    """
    cold, working = cold_start(signs, settings), margins < settings.margin
    most = max(_MOST_ROWS, int(_MOST_SHARE * len(margins)))
    for k, column in enumerate(margins.T):
        working[np.argsort(column, kind="stable")[: settings.first_samples], k] = True
        rows = np.random.default_rng([settings.seed, 4, k]).permutation(np.flatnonzero(working[:, k]))
        working[rows[most:], k] = False
    duals = np.where(working & (margins < 1.0), settings.box(len(margins)).upper[:, None], 0.0)
    weights = weights / weights.sum()
    return replace(cold, active=active, weights=weights, working=working, duals=duals, priced=True)  # solve, then scan


def start_from_other_C(state: State, C_before: float, settings: Settings) -> State:
    """The solution of the problem with another C; duals at their bound stay there.

    Kernels, working samples and the candidates of the last scan are kept; the bounds are not.
    """
    box = settings.box(len(state.duals))
    upper, before = box.upper[:, None], replace(box, C=C_before).upper[:, None]
    duals = np.where(state.duals > _AT_BOUND * before, upper, np.minimum(state.duals, upper))
    return replace(
        state,
        round=0,
        duals=duals,
        inner_tol=_NEAR_TOL,
        priced=False,
        scanned=False,
        left=np.empty(0, np.int64),
        proof=np.zeros_like(duals),
        bound=0.0,
        best_primal=np.inf,
        idle=0,
    )


def start_from_heaviest(state: State, count: int, settings: Settings) -> State:
    """The kernels of the best machine with the largest weights, to be solved for again; the bounds remain valid."""
    best = state.machine
    primal = state.best_primal if len(best.active) <= count else np.inf
    state = replace(state, active=best.active, weights=best.weights, duals=best.duals)
    return replace(heaviest(state, count), inner_tol=0.2 * settings.tol, best_primal=primal, idle=0)


def heaviest(state: State, count: int) -> State:
    """The state with only the kernels of largest weight."""
    kept = np.sort(np.argsort(-state.weights, kind="stable")[:count])
    weights = state.weights[kept]
    return replace(state, active=state.active[kept], weights=weights / weights.sum())
