"""Streamed kernels: SequentialMKL on known samples and arriving kernels."""

from __future__ import annotations

from mllkm_scale.online.streamed_kernels.bounds import StreamCertificate
from mllkm_scale.online.streamed_kernels.mkl import OnlineKernelMKL

__all__ = ["OnlineKernelMKL", "StreamCertificate"]
