"""Probes the kernels of arrived samples: which of them violate the constraint of the active ones (the test of the
paper).

    q_m(alpha) > sum over the active kernels of beta_l q_l(alpha)

for each kernel m = (sample, gamma), whose q is a sum over the kept support vectors (F1). At the optimum, the right-hand
side is the largest q of the active kernels, as in the paper. Before convergence, the largest q would exclude too many
kernels. A probe uses the duals at its start, and runs concurrently with the steps on later samples, in a thread or on
dask workers.
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
"""Multiply-adds above which a probe runs on dask workers: more than a second of a core.

For 10,000 support vectors, 50 features and ten classes (4e9), a scan takes 0.13 s. Two workers on the same two cores
are not faster: writing, sending and fetching take 20 ms. Mean diagonals and the last sums stay in this process; they
take 60 ms, and are then not concurrent with the steps. No size was found at which workers on the same cores are clearly
faster. Above this limit, a probe takes longer than the steps of an episode, and workers on other machines save that
time.
"""

_PRECISION_TOL = 1e-2  # tolerance for the precision of the products of a scan


@dataclass(frozen=True)
class Candidates:
    """Violating kernels, best first, at most one per anchor."""

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
    """Shared parts of all probes, which run on dask workers if they are large, or in the thread `beside`."""

    family: Family
    gammas: Array
    n_features: int
    normalize: bool
    executor: Executor = field(default_factory=ThreadExecutor)
    beside: futures.Executor | None = None

    def begin(
        self, anchors: Array, reference: Array, support: Array, signed_duals: Array, threshold: float, count: int
    ) -> Probe:
        """Start the search for the `count` best kernels on these anchors with q above the threshold.

        `reference` are the samples for the mean diagonals.
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
            scan.scanner.scales.drop()  # they belong to this probe only

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
            with one_blas_thread():  # also if nobody waits for the result
                return finish(start())

        future = self.beside.submit(alone)
        return Probe(future.result, lambda: future.cancel() or futures.wait([future]))

    def __getstate__(self) -> dict[str, Any]:
        """The state without executors, which belong to this process."""
        return {name: value for name, value in vars(self).items() if name not in ("executor", "beside")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, executor=ThreadExecutor(), beside=None)

    def work(self, n_anchors: int, signed_duals: Array) -> float:
        """Approximate multiply-adds of a probe."""
        n_features, n_duals = self.n_features, int(np.count_nonzero(signed_duals))
        return n_anchors * scan_flops(self.family, len(self.gammas), n_features, len(signed_duals), n_duals)


class Probe:
    """A running probe, or its result; copying and saving wait for it."""

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
        """Wait for the result; later calls return the same result, or raise the same error."""
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
        """Stop the probe early."""
        if self._found is None:
            self._close()
