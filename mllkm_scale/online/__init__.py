"""Streams: kernels that arrive for known samples, and samples that arrive with their kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mllkm_scale.base.lazy import lazy_names

__all__ = [
    "CSVSamples",
    "DatasetSamples",
    "IterableSamples",
    "JSONSamples",
    "OnlineKernelMKL",
    "OnlineLearner",
    "OnlineParams",
    "StreamCertificate",
    "StreamResult",
    "open_samples",
    "stream",
]

if TYPE_CHECKING:
    from mllkm_scale.online.learner import OnlineLearner
    from mllkm_scale.online.params import OnlineParams
    from mllkm_scale.online.sources.csv_samples import CSVSamples
    from mllkm_scale.online.sources.dataset_samples import DatasetSamples
    from mllkm_scale.online.sources.json_samples import JSONSamples
    from mllkm_scale.online.sources.opening import open_samples
    from mllkm_scale.online.sources.samples import IterableSamples
    from mllkm_scale.online.streamed_kernels.bounds import StreamCertificate
    from mllkm_scale.online.streamed_kernels.mkl import OnlineKernelMKL
    from mllkm_scale.online.streaming import StreamResult
    from mllkm_scale.online.streams import stream

_HOMES = {
    "CSVSamples": "mllkm_scale.online.sources.csv_samples",
    "DatasetSamples": "mllkm_scale.online.sources.dataset_samples",
    "IterableSamples": "mllkm_scale.online.sources.samples",
    "JSONSamples": "mllkm_scale.online.sources.json_samples",
    "OnlineKernelMKL": "mllkm_scale.online.streamed_kernels.mkl",
    "OnlineLearner": "mllkm_scale.online.learner",
    "OnlineParams": "mllkm_scale.online.params",
    "StreamCertificate": "mllkm_scale.online.streamed_kernels.bounds",
    "StreamResult": "mllkm_scale.online.streaming",
    "open_samples": "mllkm_scale.online.sources.opening",
    "stream": "mllkm_scale.online.streams",
}

__getattr__ = lazy_names(__name__, _HOMES)
