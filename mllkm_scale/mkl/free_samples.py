"""MKL on many working samples, most of them at a bound: the interior point on the others, the free samples (F8).

SVMs at the previous weights show which samples are clearly at a bound: alpha = 0 beyond the margin, or alpha = C_i
within it. These duals are held fixed, while the interior point solves for the weights and the duals of the free
samples. Then all margins are checked. Near the solution, few samples are held at the wrong bound. They are set free,
until there are none. Far from the solution, the held duals do not respond to the weights, and the weights go too far.
They are then moved back towards the previous weights until SVMs there lower P; these SVMs determine anew which samples
are held. Noisy data have several times more samples at C than free ones, and the cost of a factorisation grows with the
cube of their number. If there are too many free samples, a random half of them is solved for, and the others are held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.mkl.ascent import with_a_share
from mllkm_scale.mkl.oracle import Evaluation, Oracle
from mllkm_scale.mkl.restricted import Objective, Solution

__all__ = ["JointSolver", "free_samples_mkl"]


_HELD = 0.05  # a sample at a bound is held if its margin is this far on the right side
_SVM_TOL = 0.003  # gap of the SVMs that determine which samples are held
_JOINT = 0.6  # of the tolerance, for the interior point
_LEAST_EPOCHS = 5  # of an SVM, after which duals are exactly at their bounds
_NEAR = 0.05  # gap below which a solution counts as near, unless a better one is known
_PATIENCE = 8  # steps that gain less than a hundredth of the gap
_MOST_FREE = 5000  # of a class at a time: the time of a step grows with its cube
_FEW = 50  # free samples of a class, which always fit into memory
_SHARE = 0.05  # of the weight, for kernels of zero weight: samples on which they are nonzero are not held at C
_BACK = 3.0  # divisor of a step that is too long
_FARTHEST, _SHORTEST = 0.95, 0.01  # parts of a step


class JointSolver(Protocol):
    """Solves for the weights and the duals of the free samples, given their masks; changes the duals of all samples in
    place.

    Returns the weights, or None if the free samples do not fit into memory.
    """

    def __call__(self, weights: Array, duals: list[Array], free: list[Array], tol: float) -> Array | None: ...


@dataclass(frozen=True)
class _Step:
    """The step of the interior point from an evaluation."""

    start: Evaluation
    weights: Array
    duals: list[Array]

    def part(self, length: float) -> tuple[Array, list[Array]]:
        """Weights and duals at this part of the step, which is less than 1, so that every kernel has a positive
        weight."""
        length = min(length, _FARTHEST)
        weights = self.start.weights + length * (self.weights - self.start.weights)
        duals = [a + length * (b - a) for a, b in zip(self.start.duals, self.duals, strict=True)]
        return weights / weights.sum(), duals


def free_samples_mkl(
    oracle: Oracle,
    joint: JointSolver,
    weights: Array,
    tol: float,
    *,
    poll: Callable[[], None] = lambda: None,
    go_on: Callable[[list[Array]], bool] = lambda free: True,
) -> Solution:
    """From the given weights and the duals of the oracle to the relative gap `tol`.

    Before each step, `go_on` is called with masks of the free samples; if it returns false, the current solution is
    returned.
    """
    now = oracle.evaluate(with_a_share(weights, _SHARE), max(_SVM_TOL, tol), _LEAST_EPOCHS)
    best: Evaluation | None = None  # of full steps only: others have positive weights for all kernels
    rng = np.random.default_rng(0)
    known, free, length, steps, idle = now.objective, _not_held(now), 1.0, 0, 0
    while best is None or (best.objective.gap > tol and idle < _PATIENCE):
        poll()
        while max(int(mask.sum()) for mask in free) > _MOST_FREE:
            free = _thinned(free, rng)
        if not go_on(free):
            break
        duals, joint_tol = [part.copy() for part in now.duals], max(_JOINT * tol, 0.03 * known.gap)
        following = joint(now.weights, duals, free, joint_tol)
        if following is None:
            if max(int(mask.sum()) for mask in free) <= _FEW:
                break
            free = _thinned(free, rng)
            continue
        step, steps = _Step(now, following, duals), steps + 1
        ahead = oracle.evaluate(following, np.inf, start=duals)
        best = min(best or ahead, ahead, key=_gap)
        back = None
        if ahead.objective.gap >= max(_NEAR, known.gap):
            length = min(1.0, _BACK * length)
            back, length = _step_back(oracle, step, length, max(_SVM_TOL, tol))
        if back is None:
            wrong = _held_wrongly(ahead, free)
            if joint_tol <= _JOINT * tol and not any(mask.any() for mask in wrong):
                break
            now, free = ahead, [mask | more for mask, more in zip(free, wrong, strict=True)]
        else:
            now, free = back, _not_held(back)
        before, known = known, _best_known(known, ahead.objective, now.objective)
        idle = 0 if known.gap < 0.99 * before.gap else idle + 1
    if best is None or best.objective.gap > tol:
        best = min(best or now, now, key=_gap)
    return Solution(best.weights, np.concatenate(best.duals), best.objective, steps)


def _step_back(oracle: Oracle, step: _Step, length: float, tol: float) -> tuple[Evaluation | None, float]:
    """SVMs at the largest part of a step that lowers P, from `length` on; None if no part does."""
    while length >= _SHORTEST:
        weights, duals = step.part(length)
        now = oracle.evaluate(weights, tol, _LEAST_EPOCHS, start=duals)
        if now.objective.primal < step.start.objective.primal:
            return now, length
        length /= _BACK
    return None, 1.0


def _gap(evaluation: Evaluation) -> float:
    return evaluation.objective.gap


def _best_known(*objectives: Objective) -> Objective:
    """The smallest P and the largest D, which may be of different pairs."""
    return Objective(min(o.primal for o in objectives), max(o.dual for o in objectives))


def _not_held(now: Evaluation) -> list[Array]:
    """Masks of the initial free samples."""
    return [
        ~(((duals <= 0.0) & (margins > 1.0 + _HELD)) | ((duals >= box.upper) & (margins < 1.0 - _HELD)))
        for duals, margins, box in zip(now.duals, now.margins, now.boxes, strict=True)
    ]


def _held_wrongly(now: Evaluation, free: list[Array]) -> list[Array]:
    """Masks of the held samples whose duals should increase or decrease."""
    return [
        ~mask & (((duals < box.upper) & (margins < 1.0)) | ((duals > 0.0) & (margins > 1.0)))
        for mask, duals, margins, box in zip(free, now.duals, now.margins, now.boxes, strict=True)
    ]


def _thinned(free: list[Array], rng: np.random.Generator) -> list[Array]:
    """A random half of the free samples of each class; the others are held."""
    return [mask & (rng.random(len(mask)) < 0.5) for mask in free]
