"""The budget plan: where every byte goes, by arithmetic over sizes, before anything is allocated.

The fixed parts are bounded by the sizes of the data; what they leave of the budget belongs to the inner problem, whose
form is chosen for the working sets that are expected here, and again in each round for those that there are.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.grid import default_chunk_rows
from mllkm_scale.data.labels import encode_labels
from mllkm_scale.errors import BudgetError, ParameterError
from mllkm_scale.kernels.distances import ROW_BLOCK
from mllkm_scale.kernels.locally_linear import FEATURE_BLOCK_BYTES, kernels_at_once
from mllkm_scale.kernels.maps import MapName, check_map
from mllkm_scale.kernels.normalisation import REFERENCE_ROWS, trace_block_bytes
from mllkm_scale.kernels.predictors import rows_at_once
from mllkm_scale.mkl.forms import Choice, InnerSizes, choose_form, tile_bytes
from mllkm_scale.mkl.sequential import Settings
from mllkm_scale.params import Params
from mllkm_scale.scan.component_sizes import component_bytes
from mllkm_scale.scan.work import block_bytes, component_block_bytes, scan_dtype
from mllkm_scale.team import n_threads
from mllkm_scale.units import format_bytes

__all__ = ["BASE_BYTES", "Plan", "Sizes", "make_plan", "plan_for"]

BASE_BYTES = 280_000_000
"""Interpreter, libraries and compiled functions of a training from HDF5: 185 to 215 MB as measured, and room for pages
of libraries that some systems map beside those that are used.

With dask's client it is no more, for the functions of the passes are then compiled in the workers.
"""

WORKER_BASE_BYTES = 320_000_000
"""Interpreter, libraries and compiled functions of a dask worker, as measured; so too what a main program imports."""

_PLANNED_THREADS = 2  # for which it is decided whether the data are kept in memory: not those of this machine

_LEAST_STORE_BYTES = 24_000_000
_LEAST_SUPPORT_BYTES = 16_000_000  # of support rows are held in memory in any case
_EXPECTED_KERNELS = 500


@dataclass(frozen=True)
class Sizes:
    """What the plan is a function of."""

    n_rows: int
    n_features_in: int
    n_features: int  # after projection
    itemsize: int  # of the prepared data
    n_outputs: int  # K: columns of signs and duals
    n_anchors: int
    n_gammas: int
    componentwise: bool
    threads: int
    read_bytes: int = 0  # that reading a chunk takes beside the chunk
    projected: bool = False  # whether principal components are taken
    map: MapName = "gaussian"
    scan_itemsize: int = 4  # of the support as it is scanned


@dataclass(frozen=True)
class Plan:
    """Rows of (what, bytes, note), and the choices that they rest on."""

    sizes: Sizes
    rows: tuple[tuple[str, int, str], ...]
    in_memory: bool
    inner_bytes: int
    disk_bytes: int
    budget_bytes: int
    expected: Choice

    def worker_rows(self, threads: int = 1) -> tuple[tuple[str, int, str], ...]:
        """What a dask worker with so many threads holds, should there be one."""
        return _worker_rows(self.sizes, threads, self.support_bytes)

    def worker_bytes(self, threads: int = 1) -> int:
        """What a dask worker with so many threads needs."""
        return sum(size for _, size, _ in self.worker_rows(threads))

    @property
    def support_bytes(self) -> int:
        """The most that rows of support vectors take in memory; if they are more, runs of them are read from disk."""
        return _support_bytes(self.sizes, self.inner_bytes)

    @property
    def inner(self) -> str:
        """The form expected of the inner problem: "dense", "lean", "features" or "tiles"."""
        return self.expected.form

    @property
    def reason(self) -> str:
        return self.expected.reason

    @property
    def total_bytes(self) -> int:
        return sum(size for _, size, _ in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "budget_bytes": self.budget_bytes,
            "total_bytes": self.total_bytes,
            "inner": self.inner,
            "reason": self.reason,
            "inner_bytes": self.inner_bytes,
            "support_bytes": self.support_bytes,
            "disk_bytes": self.disk_bytes,
            "prepared_data": "memory" if self.in_memory else "disk",
            "rows": [{"what": what, "bytes": size, "note": note} for what, size, note in self.rows],
            "sizes": asdict(self.sizes),
            "worker_bytes": self.worker_bytes(),
            "worker_rows": [{"what": what, "bytes": size, "note": note} for what, size, note in self.worker_rows()],
        }

    def as_text(self) -> str:
        """A table for people."""
        width = max(len(what) for what, _, _ in self.rows)
        lines = [f"{what:<{width}}  {format_bytes(size):>9}  {note}" for what, size, note in self.rows]
        lines.append(f"{'total':<{width}}  {format_bytes(self.total_bytes):>9}  of {format_bytes(self.budget_bytes)}")
        lines.append(f"inner form: {self.inner} ({self.reason})")
        lines.append(f"dask workers, if any: {format_bytes(self.worker_bytes())} each, with one thread")
        return "\n".join(lines)


def make_plan(dataset: Dataset, params: Params, held_bytes: int = 0) -> Plan:
    """The plan for training on this data set; reads nothing but its labels.

    `held_bytes` is what the program holds beside the training, and what is to count within the budget.
    """
    if held_bytes < 0:
        raise ParameterError(f"held_bytes={held_bytes!r}: give a number of bytes, at least 0")
    classes, _ = encode_labels(dataset.labels())
    sizes, base_bytes = sizes_of(dataset, params, len(classes)), BASE_BYTES + held_bytes
    return plan_for(sizes, params.budget_bytes, base_bytes=base_bytes, scratch_dir=params.scratch_dir)


def sizes_of(dataset: Dataset, params: Params, n_classes: int) -> Sizes:
    """Sizes of the problem that these parameters make of the data set."""
    d = dataset.n_features
    components = params.n_components
    if components is None or isinstance(components, float | np.floating):
        n_features = d  # a share of variance may keep all of them
    else:
        n_features = int(components)
        if not 1 <= n_features <= d:
            raise ParameterError(f"n_components={components}: give a whole number from 1 to {d}, or a share below 1")
    shared = params.multi_class == "shared" and n_classes > 2
    return Sizes(
        n_rows=dataset.n_rows,
        n_features_in=d,
        n_features=n_features,
        itemsize=dataset.work_dtype.itemsize,
        n_outputs=n_classes if shared else 1,
        n_anchors=_n_anchors(params.anchors, dataset.n_rows),
        n_gammas=5 if isinstance(params.gammas, str) else int(np.size(params.gammas)),
        componentwise=params.componentwise,
        threads=n_threads(params.n_jobs),
        read_bytes=dataset.buffer_bytes,
        projected=components is not None,
        map=check_map(params.map),
        scan_itemsize=scan_dtype(params.tol, params.componentwise).itemsize,
    )


def _n_anchors(anchors: Any, n_rows: int) -> int:
    if isinstance(anchors, str):
        if anchors == "all":
            return n_rows
        kind, _, count = anchors.partition(":")
        if kind != "kmeans" or not count.isdigit() or int(count) < 1:
            raise ParameterError(f"anchors={anchors!r}: give 'all', a number, 'kmeans:N' or an array")
        return min(int(count), n_rows)
    if isinstance(anchors, int | np.integer) and not isinstance(anchors, bool):
        if anchors < 1:
            raise ParameterError(f"anchors={anchors!r}: at least one anchor is needed")
        return min(int(anchors), n_rows)
    return len(np.atleast_2d(np.asarray(anchors)))


def plan_for(sizes: Sizes, budget_bytes: int, *, base_bytes: int = BASE_BYTES, scratch_dir: str | None = None) -> Plan:
    """The plan for these sizes, or a BudgetError that names the least budget that works.

    What is left for the inner problem decides its form, and so the bits: it depends on sizes and budget, and not on
    the threads or workers that there are.
    """
    n, d, K = sizes.n_rows, sizes.n_features, sizes.n_outputs
    chunk_rows = min(default_chunk_rows(sizes.n_features_in), n)
    fixed = [
        ("interpreter and libraries", base_bytes, "measured"),
        ("reading", _chunk_bytes(sizes) + sizes.read_bytes, f"chunks of {chunk_rows} rows"),
        ("duals, signs and margins", n * K * 41, f"{n} samples x {K} outputs"),
        (
            "kernel scales",
            sizes.n_anchors * (8 * sizes.n_gammas + 32),
            f"{sizes.n_anchors} x {sizes.n_gammas} kernels",
        ),
    ]
    data_bytes = n * d * sizes.itemsize
    used = sum(size for _, size, _ in fixed)
    store_bytes = _LEAST_STORE_BYTES + tile_bytes(_expected(sizes, kernels=100))

    def least_for(threads: int) -> int:
        passes = max(_scan_bytes(sizes, threads), _preparing_bytes(sizes, threads))
        return used + int(1.1 * max(passes, store_bytes))

    least = least_for(sizes.threads)
    if budget_bytes < least:
        raise BudgetError(
            f"memory_budget={format_bytes(budget_bytes)} is too small for {n} x {sizes.n_features_in} samples:"
            f" at least {format_bytes(-(-least // 10**7) * 10**7)} is needed (or fewer threads, components or anchors)"
        )
    room = data_bytes <= 0.5 * (budget_bytes - least_for(_PLANNED_THREADS))
    in_memory = room and data_bytes <= budget_bytes - least
    where = "in memory" if in_memory else f"{format_bytes(data_bytes)} on disk"
    fixed.append(("prepared data", data_bytes if room else 0, where))
    used += data_bytes if room else 0
    inner_bytes = int((budget_bytes - used) / 1.1)
    disk_bytes = _disk_quota(scratch_dir, budget_bytes)
    choice = choose_form(_expected(sizes), inner_bytes, disk_bytes)
    scan = format_bytes(_scan_bytes(sizes, sizes.threads, _support_bytes(sizes, inner_bytes)))
    expected = f"{choice.form}, {format_bytes(choice.bytes)} expected; scan {scan}"
    fixed.append(("inner problem and scan, in turn", inner_bytes, expected))
    fixed.append(("reserve", budget_bytes - used - inner_bytes, "for the allocator"))
    return Plan(sizes, tuple(fixed), in_memory, inner_bytes, disk_bytes, budget_bytes, choice)


def _chunk_bytes(sizes: Sizes) -> int:
    """A chunk as read, scaled and centred."""
    return 3 * min(default_chunk_rows(sizes.n_features_in), sizes.n_rows) * sizes.n_features_in * 8


def _preparing_bytes(sizes: Sizes, threads: int) -> int:
    """Chunks in each thread, and the covariances of groups of chunks if the data are projected."""
    covariances = (2 * threads + 4) * 8 * sizes.n_features_in**2 if sizes.projected else 0
    return threads * _chunk_bytes(sizes) + covariances


def _expected(sizes: Sizes, kernels: int = _EXPECTED_KERNELS) -> InnerSizes:
    """Working sets as they were seen on real data: a few hundred samples and an eighth of all, or less a class."""
    working = min(sizes.n_rows, 200 + sizes.n_rows // (8 if sizes.n_outputs == 1 else 20))
    kernels = min(kernels, _n_kernels(sizes))
    union = min(sizes.n_rows, working * sizes.n_outputs)
    return InnerSizes(
        [working] * sizes.n_outputs, kernels, sizes.n_features, sizes.componentwise, union, sizes.itemsize
    )


def _n_kernels(sizes: Sizes) -> int:
    return min(_EXPECTED_KERNELS, sizes.n_anchors * sizes.n_gammas)


def _n_support(sizes: Sizes) -> int:
    return min(sizes.n_rows, 400 + sizes.n_rows // 2)


def _scan_bytes(sizes: Sizes, threads: int, support_bytes: int = _LEAST_SUPPORT_BYTES) -> int:
    """The largest of what the passes take in turn, beside the support that a round keeps.

    Rows of the support take `support_bytes` at most, but for the tables of component-wise kernels all are needed.
    """
    n_support, d, K = _n_support(sizes), sizes.n_features, sizes.n_outputs
    gathered = min(n_support * d * sizes.itemsize, support_bytes)
    kept = gathered + n_support * (K * 16 + 8)
    scanned = n_support * d * sizes.scan_itemsize
    scanned = scanned if sizes.componentwise else min(scanned, support_bytes)
    passes = max(
        gathered + scanned,
        scanned + _block_bytes(sizes, threads),
        gathered + _evaluating_bytes(sizes),
        _comparing_bytes(sizes),
        _deciding_bytes(sizes, threads),
    )
    return max(kept + passes, _normalising_bytes(sizes, threads))


def _support_bytes(sizes: Sizes, inner_bytes: int) -> int:
    """A third of what the scan leaves: there are rows of the round, rows gathered for a scan, and rows scanned."""
    return max(_LEAST_SUPPORT_BYTES, (inner_bytes - _scan_bytes(sizes, sizes.threads, 0)) // 3)


def _evaluating_bytes(sizes: Sizes) -> int:
    """Candidates whose q is evaluated in double precision, some at a time."""
    d, K = sizes.n_features, sizes.n_outputs
    candidates = min(Settings.candidates, sizes.n_anchors)
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
    d, K, kernels = sizes.n_features, sizes.n_outputs, _n_kernels(sizes)
    coefficients = _coefficient_bytes(sizes)
    if sizes.componentwise:
        return coefficients + threads * 4 * FEATURE_BLOCK_BYTES
    rows = min(sizes.n_rows, rows_at_once(K, d))
    return coefficients + threads * 8 * rows * (K * (d + 1) + 3 * kernels + 2 * d) + 8 * K * sizes.n_rows


def _coefficient_bytes(sizes: Sizes) -> int:
    """Coefficients and anchors of the active kernels, as they are and laid out."""
    return 8 * _n_kernels(sizes) * 2 * (sizes.n_outputs * (sizes.n_features + 1) + sizes.n_features)


def _normalising_bytes(sizes: Sizes, threads: int) -> int:
    """Reference rows as read and in double precision, and a block of anchors in each thread."""
    rows = min(REFERENCE_ROWS, sizes.n_rows)
    block = trace_block_bytes(sizes.n_anchors, rows, sizes.n_features, sizes.componentwise)
    return rows * sizes.n_features * (8 + sizes.itemsize) + threads * block


def _block_bytes(sizes: Sizes, threads: int) -> int:
    """What is made of the support and the anchors to scan in so many threads."""
    n_support, d, K = _n_support(sizes), sizes.n_features, sizes.n_outputs
    if not sizes.componentwise:
        return threads * block_bytes(d, K, sizes.n_gammas, sizes.scan_itemsize)
    tables = component_bytes(n_support, d, K, sizes.map, sizes.n_gammas)
    return tables + threads * component_block_bytes(d, K, sizes.n_gammas)


def _worker_rows(sizes: Sizes, threads: int, support_bytes: int) -> tuple[tuple[str, int, str], ...]:
    """A worker keeps what was shared last of each kind, and does one range of a pass in each thread."""
    n_support, d, K = _n_support(sizes), sizes.n_features, sizes.n_outputs
    kernels = _n_kernels(sizes)
    rows_bytes = n_support * 2 * d * 8 if sizes.componentwise else min(n_support * 2 * d * 8, 2 * support_bytes)
    reference = min(REFERENCE_ROWS, sizes.n_rows) * d * 8
    features = ROW_BLOCK * kernels * (4 if not sizes.componentwise else 4 * (d + 1)) * 8
    tasks = max(
        _block_bytes(sizes, threads),
        threads * (min(features, 64 << 20) + 3 * _chunk_bytes(sizes)),
        threads * _preparing_bytes(sizes, 1),
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


def _disk_quota(scratch_dir: str | None, budget_bytes: int) -> int:
    """Bytes for tiles on disk: four budgets, if a scratch folder was given and half its free space allows."""
    if scratch_dir is None:
        return 0
    import shutil

    folder = Path(scratch_dir)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return int(min(4 * budget_bytes, 0.5 * shutil.disk_usage(folder).free))
