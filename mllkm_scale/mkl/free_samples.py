"""MKL on many working samples of which most are at a bound: the interior point on the others, with these held (F8).

SVMs at the weights of before tell which samples are well within their bound: alpha = 0 beyond the margin, or alpha =
C_i within it. With these held, the interior point solves for the weights and the duals of the free samples. Then all
margins are looked at. Near the solution few samples are held on the wrong side; they are set free, until none is. Far
from it, held samples do not answer as they would, and the weights go too far: these are taken back towards those of
before until SVMs there lower P, which tell anew what is to be held. Noisy data have several times more samples at C
than free ones, and the cost of the factors is the cube of their number. Of too many, a random half is solved for, with
the others held where they are.
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


_HELD = 0.05  # a sample at a bound is held if its margin is so far on the right side
_SVM_TOL = 0.003  # gap of the SVMs that tell what is to be held
_JOINT = 0.6  # of the tolerance, for the interior point
_LEAST_EPOCHS = 5  # of them, after which duals are at their bounds, and not near
_NEAR = 0.05  # gap below which a solution is near, if that is not less than what is known
_PATIENCE = 8  # steps in which less is gained than a hundredth of the gap
_MOST_FREE = 5000  # of a class at a time: the time of a step is the cube of it
_FEW = 50  # free samples of a class: if these do not fit the memory, nothing does
_SHARE = 0.05  # of the weight, for kernels that have none: samples that they reach are not held as if they did not
_BACK = 3.0  # by which a step that is too long is divided
_FARTHEST, _SHORTEST = 0.95, 0.01  # parts of a step


class JointSolver(Protocol):
    """Solves for weights and duals of the free samples: masks of them, and duals of all, which are changed in place.

    Returns the weights, or None if so many free samples do not fit the memory.
    """

    def __call__(self, weights: Array, duals: list[Array], free: list[Array], tol: float) -> Array | None: ...


@dataclass(frozen=True)
class _Step:
    """Where the interior point leads from an evaluation."""

    start: Evaluation
    weights: Array
    duals: list[Array]

    def part(self, length: float) -> tuple[Array, list[Array]]:
        """Weights and duals at this part of the way, which is not all of it: SVMs should answer to every kernel."""
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

    Before each step `go_on` is asked, with masks of the free samples; if not, what was reached stands.
    """
    now = oracle.evaluate(with_a_share(weights, _SHARE), max(_SVM_TOL, tol), _LEAST_EPOCHS)
    best: Evaluation | None = None  # of the steps taken whole: others have weight on kernels that may not deserve it
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
    """The least P and the largest D, which need not be of one pair."""
    return Objective(min(o.primal for o in objectives), max(o.dual for o in objectives))


def _not_held(now: Evaluation) -> list[Array]:
    """Masks of the samples that are free at first."""
    return [
        ~(((duals <= 0.0) & (margins > 1.0 + _HELD)) | ((duals >= box.upper) & (margins < 1.0 - _HELD)))
        for duals, margins, box in zip(now.duals, now.margins, now.boxes, strict=True)
    ]


def _held_wrongly(now: Evaluation, free: list[Array]) -> list[Array]:
    """Masks of the samples that are held, but whose duals would rise or fall."""
    return [
        ~mask & (((duals < box.upper) & (margins < 1.0)) | ((duals > 0.0) & (margins > 1.0)))
        for mask, duals, margins, box in zip(free, now.duals, now.margins, now.boxes, strict=True)
    ]


def _thinned(free: list[Array], rng: np.random.Generator) -> list[Array]:
    """A random half of the free samples of each class; the others are held where they are."""
    return [mask & (rng.random(len(mask)) < 0.5) for mask in free]
