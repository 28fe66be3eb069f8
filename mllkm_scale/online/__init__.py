"""Streams: kernels that arrive while the samples are known (`OnlineKernelMKL`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mllkm_scale.lazy import lazy_names

__all__ = ["OnlineKernelMKL", "StreamCertificate"]

if TYPE_CHECKING:
    from mllkm_scale.online.kernel_certificate import StreamCertificate
    from mllkm_scale.online.kernel_mkl import OnlineKernelMKL

_HOMES = {
    "OnlineKernelMKL": "mllkm_scale.online.kernel_mkl",
    "StreamCertificate": "mllkm_scale.online.kernel_certificate",
}

__getattr__ = lazy_names(__name__, _HOMES)
