"""What the passes over all samples and all kernels hold in memory: arithmetic over sizes.

They are done in turn, so that the largest of them counts. How many support vectors and active kernels there will be is
not known before the training: it is as many as were seen on real data.
"""

from __future__ import annotations

from mllkm_scale.data.grid import default_chunk_rows
from mllkm_scale.kernels.distances import ROW_BLOCK
from mllkm_scale.kernels.locally_linear import FEATURE_BLOCK_BYTES, kernels_at_once
from mllkm_scale.kernels.normalisation import REFERENCE_ROWS, trace_block_bytes
from mllkm_scale.kernels.predictors import rows_at_once
from mllkm_scale.mkl.state import Settings
from mllkm_scale.run.sizes import Sizes
from mllkm_scale.scan.component_sizes import component_bytes
from mllkm_scale.scan.work import block_bytes, component_block_bytes

__all__ = [
    "EXPECTED_KERNELS",
    "blocks_bytes",
    "chunk_bytes",
    "coefficient_bytes",
    "expected_kernels",
    "expected_support",
    "preparing_bytes",
    "scan_bytes",
    "support_bytes_within",
]

EXPECTED_KERNELS = 500
LEAST_SUPPORT_BYTES = 16_000_000  # of support rows are held in memory in any case


def expected_kernels(sizes: Sizes) -> int:
    """Active kernels."""
    return min(EXPECTED_KERNELS, sizes.n_anchors * sizes.n_gammas)


def expected_support(sizes: Sizes) -> int:
    """Support vectors, at most."""
    return min(sizes.n_rows, 400 + sizes.n_rows // 2)


def chunk_bytes(sizes: Sizes) -> int:
    """A chunk as read, scaled and centred."""
    return 3 * min(default_chunk_rows(sizes.n_features_in), sizes.n_rows) * sizes.n_features_in * 8


def preparing_bytes(sizes: Sizes, threads: int) -> int:
    """Chunks in each thread, and the covariances of groups of chunks if the data are projected."""
    covariances = (2 * threads + 4) * 8 * sizes.n_features_in**2 if sizes.projected else 0
    return threads * chunk_bytes(sizes) + covariances


def scan_bytes(sizes: Sizes, threads: int, support_bytes: int = LEAST_SUPPORT_BYTES) -> int:
    """The largest of what the passes take in turn, beside the support that a round keeps.

    Rows of the support take `support_bytes` at most, but for the tables of component-wise kernels all are needed.
    """
    n_support, d, K = expected_support(sizes), sizes.n_features, sizes.n_outputs
    gathered = min(n_support * d * sizes.itemsize, support_bytes)
    kept = gathered + n_support * (K * 16 + 8)
    scanned = n_support * d * sizes.scan_itemsize
    scanned = scanned if sizes.componentwise else min(scanned, support_bytes)
    passes = max(
        gathered + scanned,
        scanned + blocks_bytes(sizes, threads),
        gathered + _evaluating_bytes(sizes),
        _comparing_bytes(sizes),
        _deciding_bytes(sizes, threads),
    )
    return max(kept + passes, _normalising_bytes(sizes, threads))


def support_bytes_within(sizes: Sizes, inner_bytes: int) -> int:
    """A third of what the scan leaves: there are rows of the round, rows gathered for a scan, and rows scanned."""
    return max(LEAST_SUPPORT_BYTES, (inner_bytes - scan_bytes(sizes, sizes.threads, 0)) // 3)


def _evaluating_bytes(sizes: Sizes) -> int:
    """Candidates of up to three scans, whose q is evaluated in double precision, some at a time."""
    d, K = sizes.n_features, sizes.n_outputs
    candidates = min(3 * Settings.candidates, sizes.n_anchors)
    at_once = min(candidates, kernels_at_once(d, K))
    if sizes.componentwise:
        return 8 * candidates * d * 2 + 8 * at_once * (K + 2) * (d + 1) + 4 * FEATURE_BLOCK_BYTES
    rows = min(sizes.n_rows, ROW_BLOCK)
    return 8 * (candidates * d * 2 + at_once * (K + 2) * (d + 1) + rows * (4 * at_once + 2 * d))


def _comparing_bytes(sizes: Sizes) -> int:
    """Responses of candidates, as they are and normalised."""
    candidates = min(Settings.candidates, sizes.n_anchors)
    witnesses = max(100 * sizes.n_outputs, Settings.witnesses)
    return _evaluating_bytes(sizes) + 8 * 2 * candidates * min(witnesses, sizes.n_rows * sizes.n_outputs)


def _deciding_bytes(sizes: Sizes, threads: int) -> int:
    """The coefficients, and the sums of rows in each thread."""
    d, K, kernels = sizes.n_features, sizes.n_outputs, expected_kernels(sizes)
    coefficients = coefficient_bytes(sizes)
    if sizes.componentwise:
        return coefficients + threads * 4 * FEATURE_BLOCK_BYTES
    rows = min(sizes.n_rows, rows_at_once(K, d))
    return coefficients + threads * 8 * rows * (K * (d + 1) + 3 * kernels + 2 * d) + 8 * K * sizes.n_rows


def coefficient_bytes(sizes: Sizes) -> int:
    """Coefficients and anchors of the active kernels, as they are and laid out."""
    return 8 * expected_kernels(sizes) * 2 * (sizes.n_outputs * (sizes.n_features + 1) + sizes.n_features)


def _normalising_bytes(sizes: Sizes, threads: int) -> int:
    """Reference rows as read and in double precision, and a block of anchors in each thread."""
    rows = min(REFERENCE_ROWS, sizes.n_rows)
    block = trace_block_bytes(sizes.n_anchors, rows, sizes.n_features, sizes.componentwise)
    return rows * sizes.n_features * (8 + sizes.itemsize) + threads * block


def blocks_bytes(sizes: Sizes, threads: int) -> int:
    """What is made of the support and the anchors to scan in so many threads."""
    n_support, d, K = expected_support(sizes), sizes.n_features, sizes.n_outputs
    if not sizes.componentwise:
        return threads * block_bytes(d, K, sizes.n_gammas, sizes.scan_itemsize)
    tables = component_bytes(n_support, d, K, sizes.map, sizes.n_gammas)
    return tables + threads * component_block_bytes(d, K, sizes.n_gammas)
