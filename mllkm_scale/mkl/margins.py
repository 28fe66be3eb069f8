"""The pass over all samples: f of every row for the machine of a round, chunk by chunk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.crew import Crew, PlainArrays, Shared
from mllkm_scale.kernels.grid import Family, RowSource
from mllkm_scale.kernels.locally_linear import LocallyLinearKernels

__all__ = ["DecisionWork", "Predictors", "decide_all"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Predictors(PlainArrays):
    """Local linear predictors: kernels and their folded coefficients."""

    anchors: Array
    gammas: Array
    coef: Array
    local_coef: Array


@dataclass(frozen=True)
class DecisionWork:
    """f (rows, K) of the rows of chunks."""

    family: Family
    data: RowSource
    predictors: Shared[Predictors]
    unit_work: float

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.data.paths + self.predictors.paths

    def __call__(self, units: range) -> Array:
        machine = self.predictors.get()
        kernels = self.family.kernels(machine.anchors, machine.gammas)
        parts = [kernels.decide(self._chunk(unit), machine.coef, machine.local_coef) for unit in units]
        return np.concatenate(parts)

    def _chunk(self, unit: int) -> Array:
        start = unit * self.data.chunk_rows
        stop = min(start + self.data.chunk_rows, self.data.n_rows)
        return self.data.part(start, stop).astype(np.float64)

    def describe(self, units: range) -> str:
        return f"chunks {units[0]} to {units[-1]} of the samples"


def decide_all(
    family: Family, data: RowSource, kernels: LocallyLinearKernels, coef: Array, local_coef: Array, crew: Crew
) -> Array:
    """f (n, K) of all samples."""
    K, s = local_coef.shape
    width = kernels.n_features if family.componentwise else 1
    flops = float(data.chunk_rows * s * (20 * width + (1 + K) * kernels.n_features))
    shared = crew.share("predictors", Predictors(kernels.anchors, kernels.gammas, coef, local_coef))
    try:
        work = DecisionWork(family, data, shared, flops)
        return np.concatenate(list(crew.start(work, -(-data.n_rows // data.chunk_rows))))
    finally:
        shared.drop()
