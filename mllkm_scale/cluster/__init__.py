"""Training on a dask cluster: how it is started and joined, and what its workers do.

`ClusterSpec` says which cluster, `open_client` opens it. Nothing here imports `distributed` before it is used: it
takes a second, and a training without a cluster has no need of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "Client",
    "ClusterSpec",
    "DaskCrew",
    "current_client",
    "dashboard_link",
    "describe",
    "open_client",
    "performance_report",
]

if TYPE_CHECKING:
    from distributed import Client

    from mllkm_scale.cluster.crew import DaskCrew
    from mllkm_scale.cluster.current import current_client
    from mllkm_scale.cluster.report import performance_report
    from mllkm_scale.cluster.spec import ClusterSpec
    from mllkm_scale.cluster.start import dashboard_link, describe, open_client

_HOMES = {
    "Client": "distributed",
    "ClusterSpec": "mllkm_scale.cluster.spec",
    "DaskCrew": "mllkm_scale.cluster.crew",
    "current_client": "mllkm_scale.cluster.current",
    "dashboard_link": "mllkm_scale.cluster.start",
    "describe": "mllkm_scale.cluster.start",
    "open_client": "mllkm_scale.cluster.start",
    "performance_report": "mllkm_scale.cluster.report",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
