"""First-order MKL on many samples: epochs of SDCA on every class alternate with closed-form updates of the weights.

    max over alpha  sum alpha - 1/2 sum_m beta_m q_m(alpha)      an epoch after the other, whatever beta is
    beta_m ~ beta_m q_m^(omega_m / 2)                            `reweighing`; omega_m = 1 is the closed form

The forms q are by-products of an epoch. No SVM is solved to convergence for weights that will change, so the weights
cost almost nothing: after the same number of epochs, P and D are as close as those of one SVM with the final weights.
An epoch is three matrix products of the size of the features (`solver.local_blocks`), where a step of the interior
point makes and factors matrices of samples x samples. Samples at C that are left out of an epoch cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.threads import Threads
from mllkm_scale.mkl.certificate import Objective, primal_value, proof_of
from mllkm_scale.mkl.restricted import Solution
from mllkm_scale.mkl.reweighing import Reweighing
from mllkm_scale.solver.box import Box
from mllkm_scale.solver.sdca import epoch_orders
from mllkm_scale.solver.svm import resting

__all__ = ["ClassSamples", "joint_ascent", "with_a_share"]


_EPOCHS = 5  # epochs between two passes for the margins, which take half the time of an epoch
_SHARES = 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4  # of the largest weight: smaller ones become zero, if the gap allows
_SURELY = 0.25  # of the allowed epochs, before which progress is not judged
_TIMES = 4  # of the allowed epochs, in total: a limit for progress that never arrives
_TINY = 1e-12


class ClassSamples(Protocol):
    """The samples of one class on explicit features; duals change in place."""

    duals: Array

    def reweigh(self, weights: Array) -> None: ...

    def epoch(self, order: Array) -> None: ...

    def margins(self) -> Array: ...

    def forms(self) -> Array: ...


def joint_ascent(
    classes: Sequence[ClassSamples],
    boxes: Sequence[Box],
    weights: Array,
    tol: float,
    most_epochs: float,
    seed: int = 0,
    threads: Threads | None = None,
    poll: Callable[[], None] = lambda: None,
) -> Solution:
    """Ascend from positive weights and the duals of the classes to the gap `tol`; give up if `most_epochs` would not
    suffice.

    That is, if the progress so far predicts that more epochs than these are needed. The best point is returned. D is
    the value of the best multiple of the duals.
    """
    threads = threads or Threads()
    best: Solution | None = None
    distances: list[float] = []
    epochs, reweigh = 0, Reweighing(len(weights))
    while True:
        poll()
        margins = threads.run(lambda c: c.margins(), classes)
        forms = np.sum([c.forms() for c in classes], axis=0)
        now = Solution(weights, _joined(classes), _objective(classes, boxes, weights, forms, margins), epochs)
        if best is None:
            best, known = now, now.objective
        best = min(best, now, key=lambda solution: solution.objective.gap)
        known = Objective(min(known.primal, now.objective.primal), max(known.dual, now.objective.dual))
        distances.append(_distance(known.gap))
        to_go = _epochs_to_go(distances, tol) if epochs > _SURELY * most_epochs else 0.0
        if now.objective.gap <= tol or max(to_go, epochs / _TIMES) > most_epochs:
            break
        rests = [resting(c.duals, part, box.upper) for c, part, box in zip(classes, margins, boxes, strict=True)]
        for _ in range(_EPOCHS):
            weights = reweigh(weights, forms)
            threads.run(partial(_advance, weights, (seed, epochs)), enumerate(zip(classes, rests, strict=True)))
            forms = np.sum([c.forms() for c in classes], axis=0)
            epochs += 1
    return _pruned(classes, boxes, now, forms, tol, threads) if now.objective.gap <= tol else best


def _advance(weights: Array, key: tuple[int, int], task: tuple[int, tuple[ClassSamples, Array]]) -> None:
    """An epoch of one class over the samples that are not left out."""
    (seed, epochs), (number, (samples, rests)) = key, task
    samples.reweigh(weights)
    order = epoch_orders(len(rests), 1, seed, number, epochs)[0]
    samples.epoch(order[~rests[order]])


def _distance(gap: float) -> float:
    """log(P / D - 1), which decreases by about the same amount in every epoch, for D near zero and near P."""
    return float(np.log(max(gap, _TINY) / max(1.0 - gap, _TINY)))


def _epochs_to_go(distances: Sequence[float], tol: float) -> float:
    """Predicted number of remaining epochs, at the rate of the second half of the epochs so far."""
    looked_at = len(distances) // 2
    rate = (distances[-1 - looked_at] - distances[-1]) / max(1, looked_at)
    return max(1.0, (distances[-1] - _distance(tol)) / rate) * _EPOCHS if rate > 0.0 else np.inf


def _pruned(
    classes: Sequence[ClassSamples],
    boxes: Sequence[Box],
    solution: Solution,
    forms: Array,
    tol: float,
    threads: Threads,
) -> Solution:
    """The solution without its smallest weights, as far as the tolerance allows."""
    if solution.objective.gap > tol:
        return solution
    for share in _SHARES:
        weights = np.where(solution.weights < share * solution.weights.max(), 0.0, solution.weights)
        weights /= weights.sum()
        for samples in classes:
            samples.reweigh(weights)
        margins = threads.run(lambda c: c.margins(), classes)
        objective = _objective(classes, boxes, weights, forms, margins)
        if objective.gap <= tol:
            return Solution(weights, solution.duals, objective, solution.steps)
    return solution


def _joined(classes: Sequence[ClassSamples]) -> Array:
    return np.concatenate([c.duals for c in classes])


def _objective(
    classes: Sequence[ClassSamples], boxes: Sequence[Box], weights: Array, forms: Array, margins: Sequence[Array]
) -> Objective:
    """P of the machine of these weights and duals, and D of these duals."""
    loss = sum(box.loss(part) for box, part in zip(boxes, margins, strict=True))
    return Objective(primal_value(weights, forms, loss), proof_of(_joined(classes), float(forms.max())).dual)


def with_a_share(weights: Array, share: float) -> Array:
    """Weights in which the kernels of zero weight share a part, so that they can grow.

    A kernel that is nonzero on few samples is large there. With zero weight, all these samples would go to C, although
    the smallest weight of the kernel would take them off this bound.
    """
    new = weights <= 0.0
    if not new.any() or new.all():
        return np.where(new, 1.0 / len(weights), weights / max(weights.sum(), np.finfo(float).tiny))
    return np.where(new, share / np.count_nonzero(new), (1.0 - share) * weights / weights.sum())
