"""The primal pass: f of every sample for the machine of a round, chunk by chunk, and P, which follows from it (F5)."""

from __future__ import annotations

import threading
import time
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

__all__ = ["Coefficients", "DecisionWork", "PrimalPass", "decide_all", "primal_pass"]

_making = threading.Lock()


@dataclass(frozen=True)
class Coefficients(PlainArrays):
    """Local linear predictors: kernels and their folded coefficients."""

    anchors: Array
    gammas: Array
    coef: Array
    local_coef: Array

    def predictors(self, family: Family) -> Predictors:
        """Laid out for speed, once: all threads of a process get the same ones."""
        with _making:
            if family not in self._laid_out:
                kernels = family.kernels(self.anchors, self.gammas)
                self._laid_out[family] = kernels.predictors(self.coef, self.local_coef)
            return self._laid_out[family]

    @cached_property
    def _laid_out(self) -> dict[Family, Predictors]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """The arrays alone: what was made of them is made again where they arrive."""
        return {spec.name: getattr(self, spec.name) for spec in fields(self)}


@dataclass(frozen=True)
class DecisionWork:
    """f (rows, K) of the rows of chunks."""

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
    K, s = local_coef.shape
    width = kernels.n_features if family.componentwise else 1
    flops = float(data.chunk_rows * s * (20 * width + (1 + K) * kernels.n_features))
    shared = executor.share("predictors", Coefficients(kernels.anchors, kernels.gammas, coef, local_coef))
    try:
        work = DecisionWork(family, data, shared, flops)
        return np.concatenate(list(executor.start(work, -(-data.n_rows // data.chunk_rows))))
    finally:
        shared.drop()


@dataclass(frozen=True)
class PrimalPass:
    """What a machine is worth on all samples: P, its margins, and the forms of the active kernels."""

    support: Rows  # of the samples with a nonzero dual in some class
    signed_duals: Array  # a = alpha y of these samples (n_sv, K)
    margins: Array  # y f(x) of all samples (n, K)
    primal: float  # P
    active_forms: Array  # q of the active kernels
    threshold: float  # the largest q among the kernels with a weight: what an open kernel must exceed to violate
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
    """The pass over all samples for a machine: ids of its kernels and their weights, its support and signed duals."""
    started = time.perf_counter()
    active, weights = grid.take(machine[0]), machine[1]
    forms = active.quadratic_forms(*support, threads)
    weighted = weights > 0
    used, their_weights = active.take(weighted), weights[weighted]
    margins = signs * decide_all(grid.family, data, used, *used.coefficients(*support, their_weights), executor)
    primal = primal_value(weights, forms, box.loss(margins))
    threshold = float(forms[weighted].max(initial=0.0))
    return PrimalPass(*support, margins, primal, forms, threshold, time.perf_counter() - started)
