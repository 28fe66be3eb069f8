"""The memory plan of online learning: how many kernels and samples are kept, computed from sizes.

The requested number of kernels is planned first, and the rest of the memory is for samples. Their number is limited by
`max_samples`, or by `USUAL_SAMPLES`, because the time of probes is proportional to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mllkm_scale.base.units import format_at_least, format_bytes
from mllkm_scale.data.labels import n_outputs
from mllkm_scale.data.preparation.quantile_sketch import sketch_bytes
from mllkm_scale.errors import BudgetError
from mllkm_scale.kernels.maps import MapName
from mllkm_scale.online.machine import BLOCK, EPISODE, REFERENCE
from mllkm_scale.plan.training import BASE_BYTES, rows_as_dicts
from mllkm_scale.scan.component.sizes import component_bytes
from mllkm_scale.scan.work import block_bytes, component_block_bytes

__all__ = ["LEAST_SAMPLES", "USUAL_KERNELS", "USUAL_SAMPLES", "OnlinePlan", "OnlineSizes", "plan_online"]

USUAL_KERNELS = 500
"""Default for `max_kernels`."""

USUAL_SAMPLES = 30_000
"""Default for `max_samples`."""

LEAST_SAMPLES = 1000
"""A budget for fewer samples is refused, unless fewer are requested."""

_F = 8
_SKETCHED_ROWS = 10**6  # assumed number of rows for the size of a quantile sketch
_SPARE = 1.25  # arrays of samples grow by a quarter at a time
_CANDIDATES = 400  # largest number of kernels whose responses are compared


@dataclass(frozen=True)
class OnlineSizes:
    """The arguments of the plan."""

    n_features_in: int
    n_features: int  # after projection
    n_classes: int
    n_gammas: int
    warm_up: int
    componentwise: bool
    map: MapName
    max_kernels: int
    max_samples: int | None
    projected: bool = False  # whether principal components are taken
    chunk_rows: int = 1024
    n_columns: int = 0  # after the scaling and before the projection; 0 for as many as features
    sketched: bool = False  # whether quantiles are taken

    @property
    def n_outputs(self) -> int:
        return n_outputs(self.n_classes)


@dataclass(frozen=True)
class OnlinePlan:
    """Rows of (name, bytes, note), and the numbers of kernels and samples."""

    rows: tuple[tuple[str, int, str], ...]
    max_kernels: int
    max_samples: int
    budget_bytes: int

    @property
    def total_bytes(self) -> int:
        return sum(size for _, size, _ in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "budget_bytes": self.budget_bytes,
            "total_bytes": self.total_bytes,
            "max_kernels": self.max_kernels,
            "max_samples": self.max_samples,
            "rows": rows_as_dicts(self.rows),
        }


def plan_online(sizes: OnlineSizes, budget_bytes: int, held_bytes: int = 0) -> OnlinePlan:
    """The plan for these sizes, or a BudgetError that names the smallest budget that works."""
    rows = [
        ("interpreter and libraries", BASE_BYTES + held_bytes, "measured"),
        ("reading", reading_bytes(sizes), f"chunks of {sizes.chunk_rows} rows, and {sizes.warm_up} of the warm-up"),
        ("kernels", kernel_bytes(sizes), f"{sizes.max_kernels} with their sums, {sizes.n_outputs} outputs"),
        ("steps", step_bytes(sizes), f"blocks of {BLOCK} samples"),
        ("probing", probe_bytes(sizes), f"kernels of {EPISODE * BLOCK} samples"),
    ]
    used, each = sum(size for _, size, _ in rows), sample_bytes(sizes)
    wanted = sizes.max_samples or USUAL_SAMPLES
    least_samples = min(wanted, max(LEAST_SAMPLES, sizes.warm_up)) if sizes.max_samples is None else wanted
    least = int(1.1 * (used + least_samples * each))
    if budget_bytes < least:
        raise BudgetError(
            f"memory_budget={format_bytes(budget_bytes)} is too small to keep {least_samples} samples of"
            f" {sizes.n_features} features and {sizes.max_kernels} kernels: at least"
            f" {format_at_least(least)} is needed (or smaller max_kernels, max_samples or warm_up)"
        )
    n = min(wanted, int(budget_bytes / 1.1 - used) // each)
    rows.append(("samples", n * each, f"{n} of them, as kept, probed and saved"))
    rows.append(("reserve", budget_bytes - used - n * each, "for the allocator"))
    return OnlinePlan(tuple(rows), sizes.max_kernels, n, budget_bytes)


def reading_bytes(sizes: OnlineSizes) -> int:
    """Chunks as read and as checked, pending rows, the warm-up as prepared; covariances or quantiles, if any."""
    width = max(sizes.n_features_in, sizes.n_columns)
    covariances = 4 * _F * width**2 if sizes.projected else 0
    rows = 3 * sizes.chunk_rows + 3 * sizes.warm_up
    prepared = max(covariances, sketch_bytes(_SKETCHED_ROWS, sizes.n_features_in, 1) if sizes.sketched else 0)
    return _F * (rows * width + (sizes.warm_up + REFERENCE) * sizes.n_features) + prepared


def kernel_bytes(sizes: OnlineSizes) -> int:
    """Bytes of the sums: current, growing, as a table, as a copy, and as coefficients; and of the anchors twice."""
    return _F * sizes.max_kernels * (6 * sizes.n_outputs * (sizes.n_features + 1) + 3 * sizes.n_features)


def step_bytes(sizes: OnlineSizes) -> int:
    """Bytes of the bumps and products of a block, or its features, and its Gram matrix."""
    S, width = sizes.max_kernels, sizes.n_features + 1
    if sizes.componentwise:
        return _F * BLOCK * (6 * S * width + 2 * BLOCK)
    return _F * BLOCK * (8 * S + 3 * sizes.n_outputs * width + 4 * BLOCK)


def probe_bytes(sizes: OnlineSizes) -> int:
    """Bytes of a scan in one thread, mean diagonals, and responses of candidates."""
    d, K, G = sizes.n_features, sizes.n_outputs, sizes.n_gammas
    width = d + 1 if sizes.componentwise else 1
    scanning = component_block_bytes(d, K, G) if sizes.componentwise else block_bytes(d, K, G)
    diagonals = 6 * min(_F * REFERENCE * width * EPISODE * BLOCK, 4 << 20) + _F * REFERENCE * d
    candidates = _F * _CANDIDATES * (3 * K * (d + 1) + 200 * K) + 8 * (2 << 20)
    return scanning + diagonals + candidates


def sample_bytes(sizes: OnlineSizes) -> int:
    """Bytes of a kept sample, with space to grow; as support of a probe, gathered and scanned; or as a copy."""
    d, K = sizes.n_features, sizes.n_outputs
    kept = int(_SPARE * _F * (d + K + 4)) + _F * d  # the arrays are copied when they grow
    support = _F * (d + 2 * K) + 4 * d + _F * K
    tables = component_bytes(1000, d, K, sizes.map, sizes.n_gammas) // 1000 + 2 * _F * d if sizes.componentwise else 0
    copy = _F * (d + K + 4)  # at the end of a stream
    return kept + max(support + tables, copy) + _F * 6
