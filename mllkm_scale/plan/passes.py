"""Memory of the passes over all samples and all kernels, in this process and in a dask worker, computed from sizes.

The passes run one after the other, so the largest of them counts. The numbers of support vectors and active kernels are
not known before training; they are estimated from runs on real data.
"""

from __future__ import annotations

import math
from dataclasses import replace

from mllkm_scale.data.grid import default_chunk_rows
from mllkm_scale.data.preparation.moments import ROWS_A_FEATURE
from mllkm_scale.data.preparation.quantile_sketch import sketch_bytes
from mllkm_scale.kernels.distances import ROW_BLOCK
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.locally_linear import FEATURE_BLOCK_BYTES, TASK_BYTES, kernels_at_once
from mllkm_scale.kernels.maps import MapName
from mllkm_scale.kernels.normalisation import REFERENCE_ROWS, trace_block_bytes
from mllkm_scale.kernels.predictors import rows_at_once
from mllkm_scale.learn.batches import learn_bytes
from mllkm_scale.learn.machine import Layout
from mllkm_scale.learn.settings import learn_settings
from mllkm_scale.mkl.state import Settings
from mllkm_scale.model.profile import LEVELS
from mllkm_scale.plan.sizes import Sizes
from mllkm_scale.scan.component.sizes import component_bytes
from mllkm_scale.scan.work import block_bytes, block_height, component_block_bytes, component_walk_bytes

__all__ = [
    "EXPECTED_KERNELS",
    "WORKER_BASE_BYTES",
    "chunk_bytes",
    "expected_kernels",
    "finishing_bytes",
    "learning_bytes",
    "preparing_bytes",
    "scan_bytes",
    "selecting_bytes",
    "support_bytes_within",
    "worker_rows",
]

EXPECTED_KERNELS = 500
FOLDS, FOLD_FEATURE_BYTES = (
    3,
    150,
)  # for the calibration, and the memory of each per feature, as measured on 5 rows of 200,000 features
LEAST_SUPPORT_BYTES = 16_000_000  # of support rows are always held in memory

WORKER_BASE_BYTES = 320_000_000
"""Memory of the interpreter, libraries and compiled functions of a dask worker, and of what a main program imports, as
measured."""


def expected_kernels(sizes: Sizes) -> int:
    """Expected number of active kernels: at most that of candidates, and that of support vectors of all classes."""
    return min(EXPECTED_KERNELS, sizes.n_anchors * sizes.n_gammas, _expected_support(sizes) * sizes.n_outputs)


def _expected_support(sizes: Sizes) -> int:
    """Largest number of support vectors; for a learned machine without MKL, the rows near its margin."""
    if sizes.as_learned:
        return sizes.near_rows
    return min(sizes.n_rows, 400 + sizes.n_rows // 2)


def chunk_bytes(sizes: Sizes) -> int:
    """Bytes of a chunk as read, scaled and centred."""
    rows = min(default_chunk_rows(sizes.n_features_in), sizes.n_rows)
    return 8 * rows * (sizes.n_features_in + 2 * max(sizes.width, sizes.n_features_in))


def preparing_bytes(sizes: Sizes, threads: int) -> int:
    """Chunks in each thread, and the covariances of groups of chunks if the data are projected, or their quantiles."""
    merged = math.ceil(math.log2(1 + sizes.n_rows / (ROWS_A_FEATURE * sizes.width)))
    covariances = (2 * threads + 4 + merged) * 8 * sizes.width**2 if sizes.projected else 0
    sketches = sketch_bytes(sizes.n_rows, sizes.n_features_in, threads) if sizes.sketched else 0
    return threads * chunk_bytes(sizes) + max(covariances, sketches)


def learning_bytes(sizes: Sizes) -> int:
    """The descent that learns kernels, if there is one, and the learned kernels in double precision."""
    if not sizes.n_learned:
        return 0
    n, d = sizes.n_rows, sizes.n_unmapped
    K = sizes.n_signs
    layout = Layout(Family(sizes.map, sizes.componentwise), sizes.n_learned, d, K, sizes.metric)
    settings = learn_settings(n, sizes.n_learned, sizes.metric, 0, K)
    return learn_bytes(layout, n, min(default_chunk_rows(d), n), settings)


def selecting_bytes(sizes: Sizes) -> int:
    """Bytes to try a setting: a descent, its training rows and its held-out rows."""
    if not sizes.n_tried:
        return 0
    rows = 2 * sizes.n_tried * max(sizes.width, sizes.n_unmapped)
    smaller = replace(sizes, n_rows=sizes.n_tried)
    return learning_bytes(smaller) + rows * (sizes.itemsize + 8)


def scan_bytes(sizes: Sizes, threads: int, support_bytes: int = LEAST_SUPPORT_BYTES) -> int:
    """The largest memory of a pass, besides the support that a round keeps.

    Rows of the support take `support_bytes` at most, with their tables if the kernels are component-wise.
    """
    n_support, d, K = _expected_support(sizes), sizes.n_features, sizes.n_outputs
    gathered = min(n_support * d * sizes.itemsize, support_bytes)
    kept = gathered + n_support * (K * 16 + 8)
    scanned = _scanned_bytes(sizes, support_bytes)
    passes = max(
        gathered + scanned,
        scanned + _blocks_bytes(sizes, threads, support_bytes),
        gathered + _evaluating_bytes(sizes, threads),
        _comparing_bytes(sizes, threads),
        _deciding_bytes(sizes, threads),
    )
    return max(kept + passes, _normalising_bytes(sizes, threads))


def finishing_bytes(sizes: Sizes) -> int:
    """Bytes to finish a model: its profile, in memory and as it is written, and the folds before it. They matter with
    few rows of many features.
    """
    return sizes.n_features * (2 * 8 * LEVELS + FOLDS * FOLD_FEATURE_BYTES)


def support_bytes_within(sizes: Sizes, inner_bytes: int) -> int:
    """A third of what the scan leaves free: for the rows of the round, the rows gathered for a scan, and the scanned
    rows."""
    return max(LEAST_SUPPORT_BYTES, (inner_bytes - scan_bytes(sizes, sizes.threads, 0)) // 3)


def _evaluating_bytes(sizes: Sizes, threads: int) -> int:
    """Candidates of up to three scans, whose q is evaluated in double precision, some at a time, by all threads."""
    d, K = sizes.n_features, sizes.n_outputs
    candidates = min(3 * Settings().n_candidates(K), sizes.n_anchors)
    at_once = min(candidates, kernels_at_once(d, K))
    rows = min(sizes.n_rows, ROW_BLOCK)
    made = max(TASK_BYTES, 8 * rows * (d + 1)) if sizes.componentwise else TASK_BYTES
    task = 5 * made + 8 * rows * d
    if sizes.componentwise:
        task = max(task, 4 * FEATURE_BLOCK_BYTES // threads)
    return 8 * (candidates * d * 2 + at_once * (K + 2) * (d + 1) + 2 * rows * d) + threads * task


def _comparing_bytes(sizes: Sizes, threads: int) -> int:
    """Responses of candidates, raw and normalised."""
    candidates = min(Settings().n_candidates(sizes.n_outputs), sizes.n_anchors)
    witnesses = min(Settings().n_witnesses(sizes.n_outputs), sizes.n_rows) * sizes.n_outputs
    return _evaluating_bytes(sizes, threads) + 8 * 2 * candidates * witnesses


def _deciding_bytes(sizes: Sizes, threads: int) -> int:
    """The coefficients, and the sums of rows in each thread."""
    d, K, kernels = sizes.n_features, sizes.n_outputs, expected_kernels(sizes)
    coefficients = _coefficient_bytes(sizes)
    decided = 0 if sizes.as_learned else 8 * K * sizes.n_rows
    if sizes.componentwise:
        return coefficients + threads * 4 * FEATURE_BLOCK_BYTES
    rows = min(sizes.n_rows, rows_at_once(K, d))
    return coefficients + threads * 8 * rows * (K * (d + 1) + 3 * kernels + 2 * d) + decided


def _coefficient_bytes(sizes: Sizes) -> int:
    """Coefficients and anchors of the active kernels, in two layouts."""
    return 8 * expected_kernels(sizes) * 2 * (sizes.n_outputs * (sizes.n_features + 1) + sizes.n_features)


def _normalising_bytes(sizes: Sizes, threads: int) -> int:
    """Reference rows as read and in double precision, and a block of anchors in each thread."""
    rows = min(REFERENCE_ROWS, sizes.n_rows)
    block = trace_block_bytes(sizes.n_anchors, rows, sizes.n_features, sizes.componentwise)
    return rows * sizes.n_features * (8 + sizes.itemsize) + threads * block


def _scanned_bytes(sizes: Sizes, support_bytes: int) -> int:
    """The support for a scan: its rows, with the tables of component-wise kernels; or the part that is not in a
    file."""
    rows = _expected_support(sizes) * sizes.n_features * sizes.scan_itemsize
    if not sizes.componentwise:
        return min(rows, support_bytes)
    whole = rows + component_bytes(*_component_sizes(sizes))
    return whole if whole <= support_bytes else 0


def _blocks_bytes(sizes: Sizes, threads: int, support_bytes: int) -> int:
    """Blocks of the support and of the anchors, for a scan with this number of threads."""
    d, K = sizes.n_features, sizes.n_outputs
    if not sizes.componentwise:
        n_blocks = -(-sizes.n_anchors // block_height(d, K, sizes.n_gammas))
        block = block_bytes(d, K, sizes.n_gammas, sizes.scan_itemsize, _expected_support(sizes), sizes.n_anchors)
        return min(threads, n_blocks) * block
    if _scanned_bytes(sizes, support_bytes):
        return threads * component_block_bytes(d, K, sizes.n_gammas)
    return threads * component_walk_bytes(sizes.n_anchors, *_component_sizes(sizes))


def _component_sizes(sizes: Sizes) -> tuple[int, int, int, MapName, int]:
    return _expected_support(sizes), sizes.n_features, sizes.n_outputs, sizes.map, sizes.n_gammas


def worker_rows(sizes: Sizes, threads: int, support_bytes: int) -> tuple[tuple[str, int, str], ...]:
    """A worker keeps the last shared value of each kind, and runs one range of a pass in each thread."""
    n_support, d, K = _expected_support(sizes), sizes.n_features, sizes.n_outputs
    kernels = expected_kernels(sizes)
    read_bytes = min(n_support * d * 8, support_bytes)
    rows_bytes = read_bytes + max(read_bytes, _scanned_bytes(sizes, support_bytes))
    reference = min(REFERENCE_ROWS, sizes.n_rows) * d * 8
    features = ROW_BLOCK * kernels * (4 if not sizes.componentwise else 4 * (d + 1)) * 8
    tasks = max(
        _blocks_bytes(sizes, threads, support_bytes),
        threads * (min(features, 64 << 20) + 3 * chunk_bytes(sizes)),
        threads * preparing_bytes(sizes, 1),
        threads * ((64 << 20) if sizes.componentwise else (16 << 20)),
    )
    rows = [
        ("interpreter and libraries", WORKER_BASE_BYTES, "measured"),
        ("reading", sizes.read_bytes, ""),
        ("kernel scales", sizes.n_anchors * sizes.n_gammas * 8, f"{sizes.n_anchors} x {sizes.n_gammas} kernels"),
        ("support", rows_bytes + n_support * K * 8, f"at most {n_support} support vectors"),
        ("reference rows and local predictors", reference + _coefficient_bytes(sizes), f"{kernels} kernels"),
        ("ranges under way", tasks, f"{threads} thread{'s' * (threads > 1)}"),
    ]
    rows.append(("reserve", sum(size for _, size, _ in rows[1:]) // 10, "for the allocator"))
    return tuple(rows)
