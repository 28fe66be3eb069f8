"""Dask workers that probe the kernels of a stream: their use, and their memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mllkm_scale.base.executor import ThreadExecutor
from mllkm_scale.data.labels import n_outputs
from mllkm_scale.online.learner import OnlineLearner
from mllkm_scale.online.machine import BLOCK, EPISODE
from mllkm_scale.online.plan import USUAL_SAMPLES
from mllkm_scale.online.setup import sizes_of_stream
from mllkm_scale.plan.passes import WORKER_BASE_BYTES, worker_rows
from mllkm_scale.plan.sizes import Sizes

if TYPE_CHECKING:
    from mllkm_scale.cluster import Client

__all__ = ["probing_workers"]


@contextmanager
def probing_workers(
    learner: OnlineLearner,
    client: Client | None,
    run_dir: Path | None = None,
    notify: Callable[[str], None] | None = None,
) -> Iterator[None]:
    """Context in which the workers of the client, if there is one, run large probes."""
    if client is None:
        yield
        return
    from mllkm_scale.cluster.executor import dask_executor

    with dask_executor(
        client,
        run_dir,
        None,
        timeout_s=learner.params.worker_timeout,
        worker_bytes=lambda threads: _worker_bytes_of(learner, threads),
        notify=notify or (lambda text: None),
    ) as executor:
        learner.work_with(executor)
        try:
            yield
        finally:
            learner.work_with(ThreadExecutor())


def _worker_bytes_of(learner: OnlineLearner, threads: int) -> int:
    """Bytes of a worker with this number of threads, as far as they are known before the first sample."""
    if not learner.pending.X.shape[1] or learner.classes is None:
        return WORKER_BASE_BYTES
    sizes = sizes_of_stream(learner.pending.X.shape[1], len(learner.classes), learner.params, learner.online)
    most = sizes.max_samples or USUAL_SAMPLES
    scanned = Sizes(
        n_rows=most,
        n_features_in=sizes.n_features,
        n_features=sizes.n_features,
        itemsize=8,
        n_outputs=n_outputs(sizes.n_classes),
        n_anchors=EPISODE * BLOCK,
        n_gammas=sizes.n_gammas,
        componentwise=sizes.componentwise,
        threads=threads,
        map=sizes.map,
    )
    return sum(size for _, size, _ in worker_rows(scanned, threads, most * sizes.n_features * 8))
