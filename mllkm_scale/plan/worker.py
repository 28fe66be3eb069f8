"""The part of the plan that is for a dask worker: what it holds, should there be one."""

from __future__ import annotations

from mllkm_scale.kernels.distances import ROW_BLOCK
from mllkm_scale.kernels.normalisation import REFERENCE_ROWS
from mllkm_scale.plan.passes import (
    blocks_bytes,
    chunk_bytes,
    coefficient_bytes,
    expected_kernels,
    expected_support,
    preparing_bytes,
    scanned_bytes,
)
from mllkm_scale.plan.sizes import Sizes

__all__ = ["WORKER_BASE_BYTES", "worker_rows"]

WORKER_BASE_BYTES = 320_000_000
"""Interpreter, libraries and compiled functions of a dask worker, as measured; so too what a main program imports."""


def worker_rows(sizes: Sizes, threads: int, support_bytes: int) -> tuple[tuple[str, int, str], ...]:
    """A worker keeps what was shared last of each kind, and does one range of a pass in each thread."""
    n_support, d, K = expected_support(sizes), sizes.n_features, sizes.n_outputs
    kernels = expected_kernels(sizes)
    read_bytes = min(n_support * d * 8, support_bytes)
    rows_bytes = read_bytes + max(read_bytes, scanned_bytes(sizes, support_bytes))
    reference = min(REFERENCE_ROWS, sizes.n_rows) * d * 8
    features = ROW_BLOCK * kernels * (4 if not sizes.componentwise else 4 * (d + 1)) * 8
    tasks = max(
        blocks_bytes(sizes, threads, support_bytes),
        threads * (min(features, 64 << 20) + 3 * chunk_bytes(sizes)),
        threads * preparing_bytes(sizes, 1),
        threads * ((64 << 20) if sizes.componentwise else (16 << 20)),
    )
    rows = [
        ("interpreter and libraries", WORKER_BASE_BYTES, "measured"),
        ("reading", sizes.read_bytes, ""),
        ("kernel scales", sizes.n_anchors * sizes.n_gammas * 8, f"{sizes.n_anchors} x {sizes.n_gammas} kernels"),
        ("support", rows_bytes + n_support * K * 8, f"at most {n_support} support vectors"),
        ("reference rows and local predictors", reference + coefficient_bytes(sizes), f"{kernels} kernels"),
        ("ranges under way", tasks, f"{threads} thread{'s' * (threads > 1)}"),
    ]
    rows.append(("reserve", sum(size for _, size, _ in rows[1:]) // 10, "for the allocator"))
    return tuple(rows)
