"""The descent (F12): weighted mean hinge + ridge |w|^2 over predictors, anchors, scales and metric together.

Steps of Adam over batches, with a step length that rises and falls once. A batch is cut into blocks of rows of a fixed
height, and the gradients of the blocks are added in order, so the bits do not depend on the threads. The state is
small, and a descent that is resumed from it continues with the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.events import Epoch
from mllkm_scale.base.schemas import conform_array
from mllkm_scale.base.threads import Threads
from mllkm_scale.base.weighted import effective_rows, weighted_mean
from mllkm_scale.errors import CheckpointError
from mllkm_scale.kernels.gammas import median_distance
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import gamma_of_half_width
from mllkm_scale.learn.batches import BLOCK_ROWS, Batches, Place
from mllkm_scale.learn.dropout import Dropout
from mllkm_scale.learn.gradients import make_block
from mllkm_scale.learn.loops import adam_steps
from mllkm_scale.learn.machine import Layout, LearnedMachine
from mllkm_scale.learn.pace import Pace
from mllkm_scale.learn.settings import LearnSettings

__all__ = ["Descent", "DescentState", "Held", "first_machine"]


Held = tuple[Array, Array, Array]
"""Held-out rows in the units of the descent, with the numbers of their classes and their weights."""


_RUN = 1 << 17  # parameters that one thread updates

_SHARED_FLOPS = 4e6  # multiply-adds of a block for which another thread pays off


@dataclass
class DescentState:
    """Everything that the remaining steps depend on."""

    place: Place
    values: Array
    mean: Array
    square: Array
    steps: int = 0
    loss: float = 0.0  # sum over the rows of the current epoch so far
    seen: int = 0
    within: int = 0
    best_error: float = np.inf
    best_values: Array | None = None

    def to_arrays(self) -> dict[str, Array]:
        """Plain arrays, for a file."""
        best = self.values if self.best_values is None else self.best_values
        counts = [self.place.epoch, self.place.window, self.place.batch, self.steps, self.seen, self.within]
        return {
            "values": self.values,
            "mean": self.mean,
            "square": self.square,
            "best_values": best,
            "counts": np.array(counts, np.int64),
            "sums": np.array([self.loss, self.best_error]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> DescentState:
        """The state that `to_arrays` was called on; a ValueError if it cannot have been one."""
        counts = conform_array(arrays, "counts", "i", (6,), least=0)
        epoch, window, batch, steps, seen, within = (int(v) for v in counts)
        sums = arrays.get("sums", counts)
        if sums.dtype.kind != "f" or sums.shape != (2,) or not 0 <= sums[0] < np.inf or not sums[1] >= 0:
            raise ValueError("the array sums holds no loss and no error")
        loss, best_error = (float(v) for v in sums)
        size = conform_array(arrays, "values", "f", (None,)).shape
        values, mean = (np.array(conform_array(arrays, name, "f", size)) for name in ("values", "mean"))
        square = np.array(conform_array(arrays, "square", "f", size, least=0.0))
        best = np.array(conform_array(arrays, "best_values", "f", size))
        if any(part.dtype != np.float32 for part in (values, mean, square, best)):
            raise ValueError("the parameters are not in single precision")
        return cls(Place(epoch, window, batch), values, mean, square, steps, loss, seen, within, best_error, best)


def first_machine(
    family: Family, sample: Array, candidates: Array, n_outputs: int, settings: LearnSettings
) -> LearnedMachine:
    """The start of the descent: anchors on rows, bumps of several widths, predictors zero.

    `candidates` are the rows for the anchors, and `sample` are rows for the median distance.
    """
    layout = Layout(family, settings.n_kernels, sample.shape[1], n_outputs, settings.metric)
    machine = LearnedMachine.zeros(layout)
    rng = np.random.default_rng([settings.seed, 13])
    if isinstance(settings.metric, int) and machine.metric is not None:
        machine.metric[:] = _leading_directions(sample, settings.metric)
    machine.anchors[:] = candidates[np.arange(layout.n_kernels) % len(candidates)]
    median = median_distance(family, machine.map(sample.astype(np.float32))) or 1.0
    widths = rng.permutation(np.geomspace(*settings.half_widths, layout.n_kernels)) * median
    machine.log_gammas[:] = np.log([gamma_of_half_width(family.map, width) for width in widths])
    return machine


def _leading_directions(sample: Array, count: int) -> Array:
    """Principal directions of a sample, as rows."""
    centred = sample.astype(np.float64) - sample.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    return vectors[:, ::-1][:, :count].T


class Descent:
    """One descent under way."""

    def __init__(self, machine: LearnedMachine, batches: Batches, settings: LearnSettings, threads: Threads) -> None:
        self.machine, self.batches, self.settings, self.threads = machine, batches, settings, threads
        layout = machine.layout
        self.dropout = Dropout(layout, settings.dropout, settings.seed) if settings.dropout > 0 else None
        of_a_step = layout if self.dropout is None else self.dropout.machine.layout
        n_blocks = -(-batches.most_rows // BLOCK_ROWS)
        height = min(BLOCK_ROWS, batches.most_rows)
        self.blocks = [make_block(of_a_step, height) for _ in range(n_blocks)]
        self._whole = self.blocks[0] if self.dropout is None else make_block(layout, height)
        self._gradients = np.zeros((n_blocks, of_a_step.size), np.float32)
        for block, target in zip(self.blocks, self._gradients, strict=True):
            block.write_to(target)
        zeros = np.zeros(layout.size, np.float32)
        self.state = DescentState(Place(), machine.values, zeros, zeros.copy())
        products = layout.n_mapped * (2 if layout.linear else 1) + 3 * layout.n_outputs * layout.width
        self._shares = BLOCK_ROWS * of_a_step.n_kernels * products >= _SHARED_FLOPS
        self._ends = np.array([run.stop for run in layout.runs.values()])
        self._rates = np.array([settings.metric_rate if name == "metric" else settings.rate for name in layout.runs])
        self._ridges = np.array([settings.ridge if name == "predictors" else 0.0 for name in layout.runs])
        self._rule = np.array([*settings.decays, settings.floor])
        self.pace = Pace(settings.epochs * batches.steps_per_epoch)

    def resume(self, state: DescentState) -> None:
        """Continue from a state; refuse the state of another machine, or of more epochs."""
        place, size = state.place, self.machine.layout.size
        if len(state.values) != size or place.epoch > self.settings.epochs or place.window > self.batches.n_windows:
            raise CheckpointError(
                f"the descent that was kept has {len(state.values)} parameters, {place.epoch} epochs and"
                f" {place.window} windows, not {size}, and at most {self.settings.epochs} and {self.batches.n_windows}:"
                " start again with --overwrite"
            )
        self.state = state
        self.machine = LearnedMachine(self.machine.layout, state.values)

    def epochs(
        self, held: Held | None, poll: Callable[[], None] = lambda: None, seconds: float | None = None
    ) -> Iterator[Epoch]:
        """Run the remaining epochs, and yield an event for each.

        `poll` is called after each step, and may raise. If `seconds` do not suffice for all steps, the descent ends
        with them.
        """
        settings, started, first = self.settings, time.perf_counter(), self.state.place.epoch
        self.pace = Pace(self.pace.n_steps, seconds)
        for number in range(first, settings.epochs):
            epoch_started, seen_before = time.perf_counter(), self.state.seen
            for following, X, signs in self.batches.after(self.state.place):
                self.step(X, signs)
                self.state.place = following
                poll()
                if self._over:
                    break
            error, last = None if held is None else self.held_error(*held), self._over or number + 1 == settings.epochs
            self._keep_best(error, 0 if held is None else effective_rows(held[2]), last)
            state, now = self.state, time.perf_counter()
            rows = max(1, state.seen)
            epoch_s = now - epoch_started
            event = Epoch(
                number + 1,
                settings.epochs,
                state.loss / rows,
                state.within / rows,
                error,
                (state.seen - seen_before) / max(epoch_s, 1e-9),
                now - started,
                (now - started) / (number + 1 - first) * (settings.epochs - number - 1),
            )
            following = Place(settings.epochs if last else number + 1)
            self.state = replace(state, place=following, loss=0.0, seen=0, within=0)
            yield event
            if last:
                return

    @property
    def _over(self) -> bool:
        """Whether the time was over before all steps were taken."""
        return self.pace.hurried and self.pace.done(self.state.steps) >= 1

    def step(self, X: Array, signs: Array) -> None:
        """One step of Adam on a batch."""
        settings, state, n = self.settings, self.state, len(X)
        parts = [slice(start, min(start + BLOCK_ROWS, n)) for start in range(0, n, BLOCK_ROWS)]
        machine = self.machine if self.dropout is None else self.dropout.draw(self.machine, state.steps)

        def work(at: int) -> tuple[float, int]:
            rows = parts[at]
            return self.blocks[at].step(machine, X[rows], signs[rows], 1.0 / n)

        results = self.threads.run(work, range(len(parts))) if self._shares else [work(at) for at in range(len(parts))]
        state.loss += sum(total for total, _ in results)
        state.within += sum(count for _, count in results)
        state.seen += n
        state.steps += 1
        length = settings.step_length(self.pace.done(state.steps))
        total = self._gradients[0]
        for gradients in self._gradients[1 : len(parts)]:
            total += gradients
        if self.dropout is not None:
            self.dropout.spread(total, self._whole.gradients)
            total = self._whole.gradients
        self._move(total, self._rates * length)

    def _move(self, gradients: Array, rates: Array) -> None:
        """Adam on all parameters; large numbers of them are divided among the threads."""
        state = self.state

        def move(run: slice) -> None:
            ends = np.clip(self._ends - run.start, 0, run.stop - run.start)
            values, mean, square = state.values[run], state.mean[run], state.square[run]
            adam_steps(values, gradients[run], mean, square, ends, rates, self._ridges, self._rule, state.steps)

        size = len(state.values)
        runs = [slice(start, min(start + _RUN, size)) for start in range(0, size, _RUN)]
        if self._shares:
            self.threads.run(move, runs)
        else:
            for run in runs:
                move(run)

    def decide(self, X: Array) -> Array:
        """f (rows, K) of rows in the units of the descent."""
        height = self._whole.height
        starts = range(0, len(X), height)
        return np.concatenate([self._whole.decide(self.machine, X[at : at + height]).copy() for at in starts])

    def held_error(self, X: Array, codes: Array, weights: Array) -> float:
        """Weighted share of the rows that are misclassified."""
        F = self.decide(X)
        said = (F[:, 0] > 0).astype(np.int64) if F.shape[1] == 1 else F.argmax(axis=1)
        return weighted_mean(said != codes, weights)

    def _keep_best(self, error: float | None, n_held: float, last: bool) -> None:
        """Keep the machine with the lowest error on held-out rows; the last one may have up to a standard error
        more."""
        state, allowed = self.state, 0.0
        if error is None:
            state.best_values = None
            return
        if last and state.best_error < 1:
            allowed = float(np.sqrt(state.best_error * (1.0 - state.best_error) / n_held))
        if state.best_values is None or error <= state.best_error + allowed:
            state.best_error, state.best_values = error, state.values.copy()

    @property
    def best(self) -> LearnedMachine:
        """The machine to continue with."""
        values = self.state.values if self.state.best_values is None else self.state.best_values
        return LearnedMachine(self.machine.layout, values)
