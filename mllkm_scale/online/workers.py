"""What a dask worker needs that probes the kernels of a stream."""

from __future__ import annotations

from mllkm_scale.data.labels import n_outputs
from mllkm_scale.online.learner import OnlineLearner
from mllkm_scale.online.machine import BLOCK, EPISODE
from mllkm_scale.online.plan import USUAL_SAMPLES
from mllkm_scale.online.setup import sizes_of_stream
from mllkm_scale.run.sizes import Sizes
from mllkm_scale.run.worker_plan import WORKER_BASE_BYTES, worker_rows

__all__ = ["worker_bytes_of"]


def worker_bytes_of(learner: OnlineLearner, threads: int) -> int:
    """Bytes of a worker with so many threads; as much as is known before the first sample has come."""
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
