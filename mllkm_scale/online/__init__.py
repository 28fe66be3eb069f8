"""Streams: kernels that arrive while the samples are known, and samples that arrive with their kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mllkm_scale.lazy import lazy_names

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
    from mllkm_scale.online.csv_source import CSVSamples
    from mllkm_scale.online.dataset_source import DatasetSamples
    from mllkm_scale.online.json_source import JSONSamples
    from mllkm_scale.online.kernel_certificate import StreamCertificate
    from mllkm_scale.online.kernel_mkl import OnlineKernelMKL
    from mllkm_scale.online.learner import OnlineLearner
    from mllkm_scale.online.opening import open_samples
    from mllkm_scale.online.params import OnlineParams
    from mllkm_scale.online.sources import IterableSamples
    from mllkm_scale.online.stream import StreamResult, stream

_HOMES = {
    "CSVSamples": "mllkm_scale.online.csv_source",
    "DatasetSamples": "mllkm_scale.online.dataset_source",
    "IterableSamples": "mllkm_scale.online.sources",
    "JSONSamples": "mllkm_scale.online.json_source",
    "OnlineKernelMKL": "mllkm_scale.online.kernel_mkl",
    "OnlineLearner": "mllkm_scale.online.learner",
    "OnlineParams": "mllkm_scale.online.params",
    "StreamCertificate": "mllkm_scale.online.kernel_certificate",
    "StreamResult": "mllkm_scale.online.stream",
    "open_samples": "mllkm_scale.online.opening",
    "stream": "mllkm_scale.online.stream",
}

__getattr__ = lazy_names(__name__, _HOMES)
