"""The steps of LaSVM's listing: process, reprocess, and the two loops around them.

    max over alpha:   sum_i alpha_i y_i - 1/2 sum_ij alpha_i alpha_j K_ij
    subject to        sum alpha = 0,   A_i = min(0, C y_i) <= alpha_i <= B_i = max(0, C y_i)

with the gradient g_i = y_i - sum_j alpha_j K_ij. Members i and j are a tau-violating pair if alpha_i < B_i,
alpha_j > A_j and g_i - g_j > tau; a step moves lambda from alpha_j to alpha_i. All arrays are changed in place.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.baselines.kernel_cache import Rows, fetch_row, forget_row, insert_row
from mllkm_scale.baselines.support_sets import Machine, SupportUnion, add_member, drop_member, machine_of

__all__ = ["Problem", "Window", "extremes", "finish", "seed", "visit"]

_LEAST_CURVATURE = 1e-12  # of a pair of equal samples, which one step takes to a bound


class Problem(NamedTuple):
    """What does not change: samples (n, d), their labels (n, K) as signs, and the parameters."""

    X: Array
    signs: Array
    gamma: float
    C: float
    tau: float


class Window(NamedTuple):
    """The next few samples and their kernel rows, computed at once before any of them is processed."""

    samples: Array  # (b,)
    rows: Array  # (b, width) over the slots of the union
    mutual: Array  # (b, b) among themselves


@numba.njit(cache=True, nogil=True)
def extremes(machine: Machine, C: float) -> tuple[int, int]:
    """Places of the largest gradient that may go up and of the least that may go down; -1 where there is none."""
    up, down, highest, lowest = -1, -1, -np.inf, np.inf
    for place in range(machine.size[0]):
        gradient, dual, bound = machine.gradients[place], machine.duals[place], C * machine.signs[place]
        if gradient > highest and dual < max(0.0, bound):
            up, highest = place, gradient
        if gradient < lowest and dual > min(0.0, bound):
            down, lowest = place, gradient
    return up, down


@numba.njit(cache=True, nogil=True)
def _violation(machine: Machine, up: int, down: int) -> float:
    return machine.gradients[up] - machine.gradients[down] if up >= 0 and down >= 0 else -np.inf


@numba.njit(cache=True, nogil=True)
def _step(machine: Machine, union: SupportUnion, rows: Rows, problem: Problem, i: int, j: int) -> bool:
    """The best step along a violating pair of places; False if it is too small for the precision of the numbers."""
    slot_i, slot_j, size = machine.members[i], machine.members[j], machine.size[0]
    samples = union.samples[: union.counts[0]]
    row_i = fetch_row(rows, slot_i, rows.spare[:1], problem.X, problem.gamma, samples)
    row_j = fetch_row(rows, slot_j, rows.spare[1:], problem.X, problem.gamma, samples)
    high = max(0.0, problem.C * machine.signs[i])
    low = min(0.0, problem.C * machine.signs[j])
    before_i, before_j = machine.duals[i], machine.duals[j]
    room = min(high - before_i, before_j - low)
    curvature = max(row_i[slot_i] + row_j[slot_j] - 2.0 * row_i[slot_j], _LEAST_CURVATURE)
    change = min((machine.gradients[i] - machine.gradients[j]) / curvature, room)
    # A bound that is reached is taken as it is: rounding must not leave a sample beside it.
    machine.duals[i] = high if change == high - before_i else before_i + change
    machine.duals[j] = low if change == before_j - low else before_j - change
    for place in range(size):
        slot = machine.members[place]
        machine.gradients[place] -= change * (row_i[slot] - row_j[slot])
    return machine.duals[i] != before_i or machine.duals[j] != before_j


@numba.njit(cache=True, nogil=True)
def _slot_of(union: SupportUnion, rows: Rows, window: Window, t: int) -> int:
    """The slot of the t-th sample of the window; a new one if no class holds the sample."""
    sample = window.samples[t]
    slot = union.slots[sample]
    if slot >= 0:
        return slot
    if union.counts[1] > 0:
        union.counts[1] -= 1
        slot = union.free[union.counts[1]]
    else:
        slot = union.counts[0]
        union.counts[0] += 1
    union.slots[sample], union.samples[slot] = slot, sample
    for later in range(t, len(window.samples)):
        window.rows[later, slot] = window.mutual[later, t]
    insert_row(rows, slot, window.rows[t, : union.counts[0]])
    return slot


@numba.njit(cache=True, nogil=True)
def _process(
    machine: Machine, union: SupportUnion, rows: Rows, problem: Problem, window: Window, t: int, sign: float
) -> bool:
    """PROCESS: the t-th sample of the window enters the support set if it makes a violating pair with a member.

    The listing lets it enter in any case, and REPROCESS drop it as one with alpha = 0 that violates nothing.
    """
    slot = union.slots[window.samples[t]]
    if slot >= 0 and machine.places[slot] >= 0:
        return False
    gradient = sign
    for place in range(machine.size[0]):
        gradient -= machine.duals[place] * window.rows[t, machine.members[place]]
    up, down = extremes(machine, problem.C)
    partner = down if sign > 0.0 else up
    if partner < 0 or sign * (gradient - machine.gradients[partner]) <= problem.tau:
        return False
    entered = add_member(machine, union, _slot_of(union, rows, window, t), sign, gradient)
    if sign > 0.0:
        _step(machine, union, rows, problem, entered, partner)
    else:
        _step(machine, union, rows, problem, partner, entered)
    return True


@numba.njit(cache=True, nogil=True)
def _reprocess(machine: Machine, union: SupportUnion, rows: Rows, problem: Problem) -> bool:
    """REPROCESS: a step on the most violating pair, and removal of idle members; False if there is no pair."""
    up, down = extremes(machine, problem.C)
    if _violation(machine, up, down) <= problem.tau or not _step(machine, union, rows, problem, up, down):
        return False
    up, down = extremes(machine, problem.C)
    highest, lowest = machine.gradients[up], machine.gradients[down]
    for place in range(machine.size[0] - 1, -1, -1):
        gradient = machine.gradients[place]
        idle = gradient >= highest if machine.signs[place] < 0.0 else gradient <= lowest
        if idle and machine.duals[place] == 0.0:
            slot = machine.members[place]
            if drop_member(machine, union, place):
                forget_row(rows, slot)
    return True


@numba.njit(cache=True, nogil=True)
def seed(machines: Machine, union: SupportUnion, rows: Rows, problem: Problem, k: int, window: Window) -> None:
    """Class k starts with the samples of a window, at alpha = 0."""
    machine = machine_of(machines, k)
    for t in range(len(window.samples)):
        sign = problem.signs[window.samples[t], k]
        add_member(machine, union, _slot_of(union, rows, window, t), sign, sign)


@numba.njit(cache=True, nogil=True)
def visit(machines: Machine, union: SupportUnion, rows: Rows, problem: Problem, window: Window) -> int:
    """The online iterations over the samples of a window; returns how often one has entered a support set."""
    entered = 0
    for t in range(len(window.samples)):
        for k in range(len(machines.size)):
            machine = machine_of(machines, k)
            entered += _process(machine, union, rows, problem, window, t, problem.signs[window.samples[t], k])
            _reprocess(machine, union, rows, problem)
    return entered


@numba.njit(cache=True, nogil=True)
def finish(machines: Machine, union: SupportUnion, rows: Rows, problem: Problem, k: int, most: int) -> int:
    """REPROCESS class k until no violating pair is left that can move, so many times at most; returns how often."""
    machine = machine_of(machines, k)
    done = 0
    while done < most and _reprocess(machine, union, rows, problem):
        done += 1
    return done
