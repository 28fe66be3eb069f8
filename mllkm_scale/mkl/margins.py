"""The primal pass: f of every sample for the machine of a round, computed chunk by chunk, and P (F5)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.executor import Executor, PlainArrays, Shared
from mllkm_scale.base.threads import Threads
from mllkm_scale.kernels.grid import Family, KernelGrid, RowSource
from mllkm_scale.kernels.locally_linear import LocallyLinearKernels
from mllkm_scale.kernels.picked_rows import Rows
from mllkm_scale.kernels.predictors import Predictors
from mllkm_scale.mkl.certificate import primal_value
from mllkm_scale.solver.box import Box

__all__ = [
    "Coefficients",
    "DecisionWork",
    "NearMargin",
    "PrimalPass",
    "decide_all",
    "decisions",
    "near_margin",
    "primal_pass",
]

_making = threading.Lock()


@dataclass(frozen=True)
class Coefficients(PlainArrays):
    """Local linear predictors: kernels and their folded coefficients."""

    anchors: Array
    gammas: Array
    coef: Array
    local_coef: Array

    def predictors(self, family: Family) -> Predictors:
        """The predictors in a fast layout, made once and shared by all threads of a process."""
        with _making:
            if family not in self._laid_out:
                kernels = family.kernels(self.anchors, self.gammas)
                self._laid_out[family] = kernels.predictors(self.coef, self.local_coef)
            return self._laid_out[family]

    @cached_property
    def _laid_out(self) -> dict[Family, Predictors]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Only the arrays: everything derived from them is computed again after unpickling."""
        return {spec.name: getattr(self, spec.name) for spec in fields(self)}


@dataclass(frozen=True)
class DecisionWork:
    """Compute f (rows, K) of the rows of chunks."""

    family: Family
    data: RowSource
    coefficients: Shared[Coefficients]
    unit_work: float

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.data.paths + self.coefficients.paths

    def __call__(self, units: range) -> Array:
        predictors = self.coefficients.get().predictors(self.family)
        return np.concatenate([predictors.decide(self._chunk(unit)) for unit in units])

    def _chunk(self, unit: int) -> Array:
        start = unit * self.data.chunk_rows
        stop = min(start + self.data.chunk_rows, self.data.n_rows)
        return self.data.part(start, stop)

    def describe(self, units: range) -> str:
        return f"chunks {units[0]} to {units[-1]} of the samples"


def decide_all(
    family: Family, data: RowSource, kernels: LocallyLinearKernels, coef: Array, local_coef: Array, executor: Executor
) -> Array:
    """f (n, K) of all samples."""
    return np.concatenate(list(decisions(family, data, kernels, coef, local_coef, executor)))


def decisions(
    family: Family, data: RowSource, kernels: LocallyLinearKernels, coef: Array, local_coef: Array, executor: Executor
) -> Iterator[Array]:
    """f of all samples, some chunks at a time, in order."""
    K, s = local_coef.shape
    width = kernels.n_features if family.componentwise else 1
    flops = float(data.chunk_rows * s * (20 * width + (1 + K) * kernels.n_features))
    shared = executor.share("predictors", Coefficients(kernels.anchors, kernels.gammas, coef, local_coef))
    try:
        work = DecisionWork(family, data, shared, flops)
        yield from executor.start(work, -(-data.n_rows // data.chunk_rows))
    finally:
        shared.drop()


@dataclass(frozen=True)
class NearMargin:
    """Summary of the margins y f(x) (n, K) of a machine: sums over all margins, and the rows with a margin below a
    limit."""

    hinge: float  # sum of weight_i max(0, 1 - y f)
    within: float  # sum of weight_i y f over margins below 1
    limit: float
    rows: Array  # numbers of rows with a margin below the limit, in ascending order
    margins: Array  # of these rows (len(rows), K)


def near_margin(
    decided: Iterable[Array], signs: Array, weights: Array, chunk_rows: int, limits: Sequence[float], most_rows: int
) -> NearMargin:
    """Summarise the margins of samples with weights (n,) block by block; only rows near the margin are kept.

    The largest limit is used below which there are at most `most_rows` rows. If there are more even below the smallest
    limit, the first rows are kept. Sums are taken over chunks in order, so they do not depend on the executor.
    """
    limits = sorted(limits, reverse=True)
    rows: list[Array] = []
    kept: list[Array] = []
    hinge, within, start, count = 0.0, 0.0, 0, 0
    for F in decided:
        for first in range(0, len(F), chunk_rows):
            part = F[first : first + chunk_rows]
            own = slice(start, start + len(part))
            margins = signs[own] * part
            hinge += float((weights[own, None] * np.maximum(0.0, 1.0 - margins)).sum())
            within += float((weights[own, None] * margins)[margins < 1.0].sum())
            near = np.flatnonzero((margins < limits[0]).any(axis=1))
            rows.append(start + near)
            kept.append(margins[near])
            count += len(near)
            while count > most_rows and len(limits) > 1:
                del limits[0]
                below = [(of_part < limits[0]).any(axis=1) for of_part in kept]
                rows = [numbers[mask] for numbers, mask in zip(rows, below, strict=True)]
                kept = [of_part[mask] for of_part, mask in zip(kept, below, strict=True)]
                count = sum(map(len, rows))
            if count > most_rows:
                room = len(rows[-1]) - (count - most_rows)
                rows[-1], kept[-1], count = rows[-1][:room], kept[-1][:room], most_rows
            start += len(part)
    return NearMargin(hinge, within, limits[0], np.concatenate(rows), np.concatenate(kept))


@dataclass(frozen=True)
class PrimalPass:
    """The result of the primal pass of a machine: P, the margins of all samples, and the forms of the active
    kernels."""

    support: Rows  # of the samples with a nonzero dual in some class
    signed_duals: Array  # a = alpha y of these samples (n_sv, K)
    margins: Array  # y f(x) of all samples (n, K)
    primal: float  # P
    active_forms: Array  # q of the active kernels
    threshold: float  # the largest q among kernels of positive weight, which a violator must exceed
    seconds: float = 0.0


def primal_pass(
    grid: KernelGrid,
    data: RowSource,
    signs: Array,
    machine: tuple[Array, Array],
    support: tuple[Rows, Array],
    box: Box,
    executor: Executor,
    threads: Threads,
) -> PrimalPass:
    """The pass over all samples for a machine, given the ids and weights of its kernels, its support and signed
    duals."""
    started = time.perf_counter()
    active, weights = grid.take(machine[0]), machine[1]
    forms = active.quadratic_forms(*support, threads)
    weighted = weights > 0
    used, their_weights = active.take(weighted), weights[weighted]
    margins = signs * decide_all(grid.family, data, used, *used.coefficients(*support, their_weights), executor)
    primal = primal_value(weights, forms, box.loss(margins))
    threshold = float(forms[weighted].max(initial=0.0))
    return PrimalPass(*support, margins, primal, forms, threshold, time.perf_counter() - started)
