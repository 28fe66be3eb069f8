"""Probing the kernels of samples that have come: which violate the constraint of the active ones (the paper's test).

    q_m(alpha) > sum over the active kernels of beta_l q_l(alpha)

for each of their kernels m = (sample, gamma), whose q is a sum over the support vectors that are kept (F1). At the
optimum the right-hand side is the largest q of the active kernels, as in the paper; while weights and duals are on
their way there, the largest would keep too many out. A probe is about the duals at its start, and goes on beside the
steps of the samples after it: on a thread, or on dask workers.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.executor import Executor, ThreadExecutor
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.kernels.grid import Family, KernelGrid
from mllkm_scale.kernels.locally_linear import LocallyLinearKernels
from mllkm_scale.kernels.normalisation import trace_scales
from mllkm_scale.scan.scanner import Scan, Scanner
from mllkm_scale.scan.work import scan_dtype, scan_flops

__all__ = ["LEAST_REMOTE_WORK", "Candidates", "Probe", "Probing"]

LEAST_REMOTE_WORK = 4e10
"""Multiply-adds from which on a probe goes to dask workers: more than a second of a core.

For 10,000 support vectors, 50 features and ten classes (4e9) a scan takes 0.13 s, and two workers on the same two cores
take no less: writing, sending and fetching are 20 ms of it. What the workers cannot take over, mean diagonals and last
sums, is 60 ms, and is then not done beside the steps. No size was found at which workers on the same cores win for
sure; from this one on, a probe takes longer than the steps of an episode, and workers elsewhere take that off them.
"""

_PRECISION_TOL = 1e-2  # for which the products of a scan are precise enough


@dataclass(frozen=True)
class Candidates:
    """Kernels that violate, best first, at most one per anchor."""

    anchors: Array
    gammas: Array
    scales: Array

    def __len__(self) -> int:
        return len(self.gammas)

    def kernels(self, family: Family) -> LocallyLinearKernels:
        return family.kernels(self.anchors, self.gammas, self.scales)

    @classmethod
    def none(cls, n_features: int) -> Candidates:
        return cls(np.empty((0, n_features)), np.empty(0), np.empty(0))


@dataclass(frozen=True)
class Probing:
    """What all probes have in common: dask workers do those that are worth it, or a thread of `beside`."""

    family: Family
    gammas: Array
    n_features: int
    normalize: bool
    executor: Executor = field(default_factory=ThreadExecutor)
    beside: futures.Executor | None = None

    def begin(
        self, anchors: Array, reference: Array, support: Array, signed_duals: Array, threshold: float, count: int
    ) -> Probe:
        """Begin to look for the `count` best kernels of these anchors whose q is above the threshold.

        `reference` are the samples over which mean diagonals are taken.
        """

        remote = self.executor.remote and self.work(len(anchors), signed_duals) >= LEAST_REMOTE_WORK
        executor = self.executor if remote else ThreadExecutor()

        def start() -> Scan:
            data = Dataset.from_arrays(anchors, name="anchors")
            scales = np.ones((len(anchors), len(self.gammas)))
            if self.normalize:
                scales = trace_scales(self.family, data, self.gammas, reference)
            grid = KernelGrid(self.family, data, self.gammas, scales)
            scanner = Scanner(grid, executor, scan_dtype(_PRECISION_TOL, self.family.componentwise))
            return scanner.start(lambda: (support, signed_duals), count)

        def end(scan: Scan) -> None:
            scan.close()
            scan.scanner.scales.drop()  # they are of this probe alone

        def finish(scan: Scan) -> Candidates:
            try:
                found = scan.result()
            finally:
                end(scan)
            kernels = scan.scanner.grid.take(found.ids[found.values > threshold])
            return Candidates(kernels.anchors, kernels.gammas, kernels.scales)

        if remote:
            scan = start()
            return Probe(lambda: finish(scan), lambda: end(scan))
        if self.beside is None:
            return Probe(lambda: finish(start()))

        def alone() -> Candidates:
            with one_blas_thread():  # also while nobody waits
                return finish(start())

        future = self.beside.submit(alone)
        return Probe(future.result, lambda: future.cancel() or futures.wait([future]))

    def __getstate__(self) -> dict[str, Any]:
        """Without those who do the work: they belong to this process."""
        return {name: value for name, value in vars(self).items() if name not in ("executor", "beside")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, executor=ThreadExecutor(), beside=None)

    def work(self, n_anchors: int, signed_duals: Array) -> float:
        """Multiply-adds of a probe, about."""
        n_features, n_duals = self.n_features, int(np.count_nonzero(signed_duals))
        return n_anchors * scan_flops(self.family, len(self.gammas), n_features, len(signed_duals), n_duals)


class Probe:
    """A probe under way, or its result; it can be copied and saved by waiting for it."""

    def __init__(self, finish: Callable[[], Candidates], close: Callable[[], object] = lambda: None) -> None:
        self._finish, self._close = finish, close
        self._found: Candidates | None = None
        self._failure: BaseException | None = None

    @classmethod
    def done(cls, found: Candidates) -> Probe:
        probe = cls(lambda: found)
        probe._found = found
        return probe

    def result(self) -> Candidates:
        """Waits for it, once: asked for again, the same, also if it has failed or the wait was interrupted."""
        if self._failure is not None:
            raise self._failure
        if self._found is None:
            try:
                self._found = self._finish()
            except BaseException as failure:
                self._failure = failure
                raise
        return self._found

    def __getstate__(self) -> dict[str, Any]:
        return {"_found": self.result(), "_failure": None}

    def close(self) -> None:
        """End it early."""
        if self._found is None:
            self._close()
