"""The plan of the memory budget, made by arithmetic over sizes before anything is allocated.

The sizes of the data bound the fixed parts. The rest of the budget belongs to the inner problem. Its form is chosen
here for the expected working sets, and again in each round for the actual ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mllkm_scale.base.units import format_at_least, format_bytes
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.grid import default_chunk_rows
from mllkm_scale.data.weights import WEIGHT_BYTES
from mllkm_scale.errors import BudgetError, ParameterError
from mllkm_scale.mkl.forms import Choice, InnerSizes, choose_form, tile_bytes
from mllkm_scale.params import Params
from mllkm_scale.plan.contenders import TRIED_AT_ONCE
from mllkm_scale.plan.passes import (
    EXPECTED_KERNELS,
    chunk_bytes,
    expected_kernels,
    finishing_bytes,
    learning_bytes,
    preparing_bytes,
    scan_bytes,
    selecting_bytes,
    support_bytes_within,
    worker_rows,
)
from mllkm_scale.plan.sizes import NEAR_ROW_BYTES, Sizes, expected_working, sizes_of

__all__ = ["BASE_BYTES", "Plan", "make_plan", "plan_for", "rows_as_dicts"]

BASE_BYTES = 310_000_000
"""Interpreter, libraries and compiled functions of a training run from HDF5: 185 to 215 MB as measured, plus up to 70
MB for pages of libraries that are mapped but not used, just after an installation.

It is not more with a client of dask, because the functions of the passes are then compiled in the workers.
"""

_PLANNED_THREADS = 2  # assumed in deciding whether the data are kept in memory, on any machine

_FEW_LABELS = 1_000_000  # they take some megabytes

_LEAST_STORE_BYTES = 24_000_000


def rows_as_dicts(rows: Iterable[tuple[str, int, str]]) -> list[dict[str, Any]]:
    """Rows of a plan, for JSON."""
    return [{"what": what, "bytes": size, "note": note} for what, size, note in rows]


@dataclass(frozen=True)
class Plan:
    """Rows of (what, bytes, note), and the choices on which they rest."""

    sizes: Sizes
    rows: tuple[tuple[str, int, str], ...]
    in_memory: bool
    inner_bytes: int
    disk_bytes: int
    budget_bytes: int
    expected: Choice

    def worker_rows(self, threads: int = 1) -> tuple[tuple[str, int, str], ...]:
        """What a dask worker with this number of threads would hold."""
        return worker_rows(self.sizes, threads, self.support_bytes)

    def worker_bytes(self, threads: int = 1) -> int:
        """The memory that a dask worker with this number of threads needs."""
        return sum(size for _, size, _ in self.worker_rows(threads))

    @property
    def support_bytes(self) -> int:
        """Largest memory for rows of support vectors; if there are more, runs of them are read from disk."""
        return support_bytes_within(self.sizes, self.inner_bytes)

    @property
    def tried_at_once(self) -> int:
        """Largest number of settings that are tried at the same time: as many as fit, and at least one."""
        return min(TRIED_AT_ONCE, max(1, self.inner_bytes // max(1, selecting_bytes(self.sizes))))

    @property
    def near_rows(self) -> int:
        """Largest number of rows near the margin for D of a learned machine."""
        return self.sizes.near_rows

    @property
    def inner(self) -> str:
        """The expected form of the inner problem: "dense", "lean", "features", "streamed" or "tiles"."""
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
            "rows": rows_as_dicts(self.rows),
            "sizes": asdict(self.sizes),
            "worker_bytes": self.worker_bytes(),
            "worker_rows": rows_as_dicts(self.worker_rows()),
        }

    def as_text(self) -> str:
        """A table for people."""
        width = max(len(what) for what, _, _ in self.rows)
        lines = [f"{what:<{width}}  {format_bytes(size):>9}  {note}" for what, size, note in self.rows]
        lines.append(f"{'total':<{width}}  {format_bytes(self.total_bytes):>9}  of {format_bytes(self.budget_bytes)}")
        if self.sizes.as_learned:
            lines.append(
                f"MKL: not planned (about {self.sizes.mkl_flops:.0e} multiply-adds); the machine is as learned"
            )
        else:
            lines.append(f"inner form: {self.inner} ({self.reason})")
        lines.append(f"dask workers, if any: {format_bytes(self.worker_bytes())} each, with one thread")
        return "\n".join(lines)


def make_plan(dataset: Dataset, params: Params, held_bytes: int = 0) -> Plan:
    """The plan for training on this data set; it reads only the labels, and these only if the budget can work.

    `held_bytes` is other memory of the program that counts within the budget.
    """
    if held_bytes < 0:
        raise ParameterError(f"held_bytes={held_bytes!r}: give a number of bytes, at least 0")
    base_bytes = BASE_BYTES + held_bytes
    _require_room(sizes_of(dataset, params, 2), params.budget_bytes, base_bytes)
    classes, _ = dataset.label_codes()
    sizes = sizes_of(dataset, params, len(classes))
    return plan_for(sizes, params.budget_bytes, base_bytes=base_bytes, scratch_dir=params.scratch_dir)


def plan_for(sizes: Sizes, budget_bytes: int, *, base_bytes: int = BASE_BYTES, scratch_dir: str | None = None) -> Plan:
    """The plan for these sizes, or a BudgetError that names the smallest budget that works.

    What is left for the inner problem decides its form, and so the bits. It depends on sizes and budget, not on the
    number of threads or workers.
    """
    n, d = sizes.n_rows, sizes.n_features
    fixed = _fixed(sizes, base_bytes)
    data_bytes = n * max(d, sizes.n_unmapped) * sizes.itemsize
    learning = learning_bytes(sizes)
    used = sum(size for _, size, _ in fixed)
    store_bytes = _LEAST_STORE_BYTES + tile_bytes(_expected(sizes, kernels=100))

    def least_for(threads: int) -> int:
        before = max(preparing_bytes(sizes, threads), selecting_bytes(sizes), learning, sizes.judging_bytes)
        passes = max(scan_bytes(sizes, threads), before, finishing_bytes(sizes))
        return used + int(1.1 * max(passes, store_bytes))

    least = least_for(sizes.threads)
    if budget_bytes < least:
        raise BudgetError(
            f"memory_budget={format_bytes(budget_bytes)} is too small for {n} x {sizes.n_features_in} samples:"
            f" at least {format_at_least(least)} is needed (or fewer threads, components or anchors)"
        )
    room = data_bytes <= 0.5 * (budget_bytes - least_for(_PLANNED_THREADS))
    in_memory = room and data_bytes <= budget_bytes - least
    where = "in memory" if in_memory else f"{format_bytes(data_bytes)} on disk"
    fixed.append(("prepared data", data_bytes if room else 0, where))
    used += data_bytes if room else 0
    inner_bytes = int((budget_bytes - used) / 1.1)
    disk_bytes = _disk_quota(scratch_dir, budget_bytes)
    choice = choose_form(_expected(sizes), inner_bytes, disk_bytes)
    scan = format_bytes(scan_bytes(sizes, sizes.threads, support_bytes_within(sizes, inner_bytes)))
    expected = f"{choice.form}, {format_bytes(choice.bytes)} expected; scan {scan}"
    if sizes.as_learned:
        expected = f"scan {scan}"
    if learning:
        expected += f"; learning {format_bytes(learning)} before"
    fixed.append(("inner problem and scan, in turn", inner_bytes, expected))
    fixed.append(("reserve", budget_bytes - used - inner_bytes, "for the allocator"))
    return Plan(sizes, tuple(fixed), in_memory, inner_bytes, disk_bytes, budget_bytes, choice)


def _fixed(sizes: Sizes, base_bytes: int) -> list[tuple[str, int, str]]:
    """Memory that is held from beginning to end, for any inner problem."""
    n = sizes.n_rows
    chunk_rows = min(default_chunk_rows(sizes.n_features_in), n)
    weights = [("weights of the samples", n * WEIGHT_BYTES, f"{n} samples")] if sizes.weighted else []
    held = [("reduction of the columns", sizes.held_bytes, "its matrix, and the rows if they are in memory")]
    return [
        ("interpreter and libraries", base_bytes, "measured"),
        *(held if sizes.held_bytes else []),
        ("reading", chunk_bytes(sizes) + sizes.read_bytes, f"chunks of {chunk_rows} rows"),
        _samples(sizes),
        *weights,
        (
            "kernel scales",
            sizes.n_anchors * (8 * sizes.n_gammas + 32),
            f"{sizes.n_anchors} x {sizes.n_gammas} kernels",
        ),
    ]


def _samples(sizes: Sizes) -> tuple[str, int, str]:
    """Memory per sample; for a learned machine without MKL, only labels and signs."""
    n, K = sizes.n_rows, sizes.n_outputs
    if not sizes.as_learned:
        return "duals, signs and margins", n * (K * 73 + 9), f"{n} samples x {K} outputs"
    K, near = sizes.n_signs, sizes.near_rows
    held = n * (33 + 2 * K) + near * NEAR_ROW_BYTES * K
    return "signs, and rows near the margin", held, f"{n} samples x {K} outputs, {near} of them near"


def _require_room(sizes: Sizes, budget_bytes: int, base_bytes: int) -> None:
    """Refuse, before any label is read, too many rows for even two classes: a file may declare any number.

    More classes need more memory. Small numbers of labels are read first, and the plan then names the budget that
    works.
    """
    if sizes.n_rows <= _FEW_LABELS:
        return
    least = sum(size for _, size, _ in _fixed(sizes, base_bytes))
    if budget_bytes < least:
        raise BudgetError(
            f"memory_budget={format_bytes(budget_bytes)} is too small for {sizes.n_rows} x {sizes.n_features_in}"
            f" samples: more than {format_at_least(least)} is needed (or fewer rows, threads, components or anchors)"
        )


def _expected(sizes: Sizes, kernels: int = EXPECTED_KERNELS) -> InnerSizes:
    """Working sets as expected from runs on real data: per class, at most a few hundred samples and an eighth of all
    samples."""
    working = expected_working(sizes.n_rows, sizes.n_outputs)
    kernels = min(kernels, expected_kernels(sizes))
    return InnerSizes([working] * sizes.n_outputs, kernels, sizes.n_features, sizes.componentwise, sizes.itemsize)


def _disk_quota(scratch_dir: str | None, budget_bytes: int) -> int:
    """Bytes for tiles on disk: four budgets, if a scratch folder was given and half its free space allows."""
    if scratch_dir is None:
        return 0
    import shutil

    folder = Path(scratch_dir)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return int(min(4 * budget_bytes, 0.5 * shutil.disk_usage(folder).free))
