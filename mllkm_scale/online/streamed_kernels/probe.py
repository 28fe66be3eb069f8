"""The probe: q_m of many kernels for given duals, computed by this process or, if that is faster, by an executor.

A unit is a fixed number of kernels for any executor, so the bits are the same. Workers need messages, and files that
each worker reads, so small batches are computed by this process (`pays`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.executor import Executor, Shared, ThreadExecutor
from mllkm_scale.base.threads import Threads
from mllkm_scale.online.streamed_kernels.bounds import SupportRows
from mllkm_scale.online.streamed_kernels.lists import Kernels

__all__ = ["KernelProbe", "PriceWork", "pays"]

_FLOP_S = 1e-10  # seconds per multiply-add, as measured for gaussian kernels on 256 features
_START_S = 0.1  # least time of a pass of workers
_BYTE_S = 2e-8  # per byte of kernels, to write, archive, read and check it
_AT_ONCE = 32 * 512  # number of kernels that are sent to workers at once


def pays(flops: float, n_bytes: int, n_here: int, n_workers: int) -> bool:
    """Whether the threads of the workers are faster than the threads of this process, for kernels of `n_bytes`.

    >>> pays(1e9, 10**6, 1, 16), pays(1e10, 10**6, 1, 16), pays(1e10, 10**6, 1, 1)
    (False, True, False)
    """
    return flops * _FLOP_S * (1.0 / n_here - 1.0 / max(1, n_workers)) > _START_S + n_bytes * _BYTE_S


@dataclass(frozen=True)
class PriceWork:
    """Computes q of units of kernels."""

    kernels: Shared[Any]
    support: Shared[SupportRows]
    unit: int
    unit_work: float

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.kernels.paths + self.support.paths

    def __call__(self, units: range) -> Array:
        kernels, support = self.kernels.get(), self.support.get()
        parts = [kernels.take(slice(i * self.unit, (i + 1) * self.unit)) for i in units]
        return np.concatenate([part.forms(support.rows, support.signed_duals) for part in parts])

    def describe(self, units: range) -> str:
        return f"kernels {units[0] * self.unit} to {(units[-1] + 1) * self.unit - 1} of a batch of the stream"


class KernelProbe:
    """Computes q by the threads of this process, or by an executor of workers for large batches."""

    def __init__(self, threads: Threads, workers: Executor | None = None) -> None:
        self.local, self.workers = ThreadExecutor(threads), workers
        self.n_sent = 0  # number of kernels that workers have probed

    def __call__(self, kernels: Kernels, support: SupportRows) -> Array:
        """q (s,) of these kernels."""
        flops = kernels.flops(len(support.rows), int(np.count_nonzero(support.signed_duals)))
        if self.workers is None or not self._pays(kernels, flops, self.workers):
            return self._price(self.local, kernels, support, flops)
        self.n_sent += len(kernels)
        parts = [kernels.take(slice(i, i + _AT_ONCE)) for i in range(0, len(kernels), _AT_ONCE)]
        return np.concatenate([self._price(self.workers, part, support, flops) for part in parts])

    def _pays(self, kernels: Kernels, flops: float, workers: Executor) -> bool:
        n_workers = workers.tally().n_threads
        return pays(len(kernels) * flops, kernels.n_bytes, self.local.threads.size, n_workers)

    def _price(self, executor: Executor, kernels: Kernels, support: SupportRows, flops: float) -> Array:
        if not len(kernels):
            return np.empty(0)
        shared, rows = kernels.shared(executor), executor.share("support", support)
        try:
            work = PriceWork(shared, rows, kernels.unit, kernels.unit * flops)
            return np.concatenate(list(executor.start(work, -(-len(kernels) // kernels.unit))))
        finally:
            shared.drop()
            rows.drop()
