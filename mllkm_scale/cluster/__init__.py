"""Training on a dask cluster: starting and joining clusters, and the work of the workers.

`ClusterSpec` describes a cluster, and `open_client` opens it. `distributed` is imported only when it is used: the
import takes a second, and a training run without a cluster does not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mllkm_scale.base.lazy import lazy_names

__all__ = [
    "Client",
    "ClusterSpec",
    "DaskExecutor",
    "current_client",
    "dashboard_link",
    "describe",
    "open_client",
    "performance_report",
]

if TYPE_CHECKING:
    from distributed import Client

    from mllkm_scale.cluster.client import current_client, performance_report
    from mllkm_scale.cluster.executor import DaskExecutor
    from mllkm_scale.cluster.start import dashboard_link, describe, open_client
    from mllkm_scale.run.job.cluster import ClusterSpec

_HOMES = {
    "Client": "distributed",
    "ClusterSpec": "mllkm_scale.run.job.cluster",
    "DaskExecutor": "mllkm_scale.cluster.executor",
    "current_client": "mllkm_scale.cluster.client",
    "dashboard_link": "mllkm_scale.cluster.start",
    "describe": "mllkm_scale.cluster.start",
    "open_client": "mllkm_scale.cluster.start",
    "performance_report": "mllkm_scale.cluster.client",
}

__getattr__ = lazy_names(__name__, _HOMES)
