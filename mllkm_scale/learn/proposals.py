"""The stage between preparation and MKL: kernels that a descent proposes, in the space of the prepared rows.

The descent works on rows that are centred and divided by one number, the root of their mean variance. So step lengths
have no unit, and single precision is sufficient for distances. The results are converted to the units of the rows:
anchors, scales, a metric, and local predictors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.events import Epoch
from mllkm_scale.base.threads import Threads
from mllkm_scale.kernels.anchors import random_rows
from mllkm_scale.kernels.grid import Family, RowSource
from mllkm_scale.kernels.maps import uses_plain_distance
from mllkm_scale.learn.batches import Batches, Units
from mllkm_scale.learn.descent import Descent, DescentState, Held, first_machine
from mllkm_scale.learn.machine import LearnedMachine
from mllkm_scale.learn.settings import HELD_SHARE, MOST_HELD, MOST_LEARNED, SAMPLE_ROWS, LearnSettings

__all__ = ["Keeper", "Learned", "NothingKept", "held_out_rows", "learn_kernels", "rows_to_learn"]


_VANISHED = 1e-3  # of the largest spread of a feature in the metric: features with less are dropped


class Keeper(Protocol):
    """Stores the state of a descent, so that it can be resumed."""

    def load(self) -> DescentState | None: ...
    def save(self, state: DescentState) -> None: ...
    def due(self) -> bool:
        """Whether it is time to save in the middle of an epoch."""


class NothingKept:
    """The keeper of a descent without a folder."""

    def load(self) -> DescentState | None:
        return None

    def save(self, state: DescentState) -> None:
        """Do nothing."""

    def due(self) -> bool:
        return False


@dataclass(frozen=True)
class Learned:
    """A learned machine in the units of the prepared rows, with facts about the descent."""

    machine: LearnedMachine
    spread: Array  # approximate standard deviations of the features of the prepared rows
    held: Array  # numbers of the rows that were held out
    held_error: float | None
    epochs: tuple[Epoch, ...]
    hurried: bool = False  # the time was too short for all steps

    @property
    def importance(self) -> Array:
        """Spread of every feature in the metric, divided by the largest; for a linear map, the column norms."""
        metric = self.machine.metric
        if metric is None:
            factors = np.ones(len(self.spread))
        elif metric.ndim == 2:
            factors = np.linalg.norm(metric, axis=0)
        else:
            factors = np.exp(metric.astype(np.float64))
        spread = factors * self.spread
        return spread / max(spread.max(), np.finfo(float).tiny)

    @property
    def kept_features(self) -> Array:
        """Mask of the features that are kept: those whose spread in the metric is not negligible.

        All features are kept if none has a spread, and for component-wise kernels, whose local bias is a mean over
        them.
        """
        kept = self.importance > _VANISHED
        every = self.machine.layout.family.componentwise or not kept.any()
        return np.ones_like(kept) if every else kept


def held_out_rows(codes: Array, seed: int, share: float = HELD_SHARE, most: int = MOST_HELD) -> Array:
    """A share of the rows of each class in ascending order, at most `most` in all; at least one row of each class is
    not held out."""
    rng = np.random.default_rng([seed, 14])
    share = min(share, most / len(codes))
    picked = []
    for code in range(int(codes.max()) + 1):
        rows = rng.permutation(np.flatnonzero(codes == code))
        picked.append(rows[: min(max(0, len(rows) - 1), round(share * len(rows)))])
    return np.sort(np.concatenate(picked))


def rows_to_learn(n_rows: int, chunk_rows: int, seed: int) -> Array:
    """Mask of the rows from which kernels are learned: all rows, or those of sufficiently many chunks."""
    used = np.ones(n_rows, dtype=bool)
    n_chunks = -(-n_rows // chunk_rows)
    for chunk in np.random.default_rng([seed, 16]).permutation(n_chunks)[max(1, MOST_LEARNED // chunk_rows) :]:
        used[chunk * chunk_rows : (chunk + 1) * chunk_rows] = False
    return used


def learn_kernels(
    data: RowSource,
    signs: Array,
    codes: Array,
    family: Family,
    settings: LearnSettings,
    threads: Threads,
    *,
    weights: Array | None = None,
    hold_out: bool = True,
    keeper: Keeper | None = None,
    listener: Callable[[Epoch], None] = lambda epoch: None,
    poll: Callable[[], None] = lambda: None,
    seconds: float | None = None,
) -> Learned:
    """Minimise the hinge over rows (n, d) with signs (n, K), and convert the learned machine to the units of the rows.

    `codes` are the numbers of the classes, for holding out rows and measuring the error. `weights` (n,) are the weights
    of the rows in the loss and in the error. The descent takes at most about this number of `seconds`.
    """
    keeper = keeper or NothingKept()
    seed, n = settings.seed, data.n_rows
    held = held_out_rows(codes, seed) if hold_out else np.empty(0, np.int64)
    used = rows_to_learn(n, data.chunk_rows, seed)
    used[held] = False
    rng = np.random.default_rng([seed, 15])
    learning = np.flatnonzero(used)
    numbers = learning[random_rows(len(learning), max(SAMPLE_ROWS, settings.n_kernels), rng)]
    sample = data.rows(numbers).astype(np.float64)[rng.permutation(len(numbers))]
    spread, units = _spread(sample, data), Units.of_sample(sample)
    sample = units.of(sample)
    machine = first_machine(family, sample[:SAMPLE_ROWS], sample, signs.shape[1], settings)
    kept: Held | None = None
    if len(held):
        own = np.ones(len(held)) if weights is None else weights[held]
        kept = units.of(data.rows(held)).astype(np.float32), codes[held], own

    def ask() -> None:
        try:
            poll()
        except BaseException:
            keeper.save(descent.state)
            raise
        if keeper.due():
            keeper.save(descent.state)

    epochs = []
    with Batches(data, signs, used, settings.batch_rows, units, seed, weights, settings.epochs) as batches:
        descent = Descent(machine, batches, settings, threads)
        state = keeper.load()
        if state is not None:
            descent.resume(state)
        for epoch in descent.epochs(kept, ask, seconds):
            epochs.append(epoch)
            listener(epoch)  # an epoch that was not saved is reported again
            keeper.save(descent.state)
    error = None if kept is None else descent.state.best_error
    return Learned(_in_units(descent.best, units), spread, held, error, tuple(epochs), descent.pace.hurried)


def _spread(sample: Array, data: RowSource) -> Array:
    """Standard deviations of a sample; of all rows for features that are constant in the sample, such as rare
    indicators."""
    spread = np.asarray(sample.std(axis=0))
    same = spread == 0
    if same.any():
        centre, squares, total = sample[0, same], np.zeros(same.sum()), np.zeros(same.sum())
        for _, chunk in data.chunks():
            offsets = chunk[:, same] - centre
            total += offsets.sum(axis=0)
            squares += np.einsum("ij,ij->j", offsets, offsets)
        spread[same] = np.sqrt(np.maximum(squares / data.n_rows - (total / data.n_rows) ** 2, 0.0))
    return spread


def _in_units(machine: LearnedMachine, units: Units) -> LearnedMachine:
    """The same function of rows that are not in `units`, in double precision."""
    layout = machine.layout
    out = LearnedMachine(layout, machine.values.astype(np.float64))
    out.anchors *= units.length
    out.anchors += units.centre
    out.log_gammas -= np.log(units.length) * (1.0 if uses_plain_distance(layout.family.map) else 2.0)
    table = out.predictors.reshape(layout.n_kernels, layout.n_outputs, layout.width)
    table[:, :, :-1] /= units.length
    if not layout.family.componentwise:  # there, predictors are of z - c
        table[:, :, -1] -= table[:, :, :-1] @ out.map(units.centre[None])[0]
    return out
