"""Which form the inner problem takes, and the memory of each: pure arithmetic over sizes (F11).

dense      interior point: factors of every class and the maps of every class in memory
lean       the same with bumps in single precision, rows that the classes share, and the rest made again in each step
features   SVMs by SDCA on explicit features, class by class, and the interior point on the free samples
tiles      likewise on tiles of the combined Gram
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mllkm_scale.gram.lean import KERNELS_AT_ONCE
from mllkm_scale.kernels.distances import ROW_BLOCK
from mllkm_scale.kernels.locally_linear import FEATURE_BLOCK_BYTES, TASK_BYTES
from mllkm_scale.mkl.restricted import PANEL

__all__ = [
    "THREADS",
    "Choice",
    "InnerSizes",
    "choose_form",
    "dense_bytes",
    "feature_bytes",
    "inner_flops",
    "interior_form",
    "kept_bytes",
    "lean_bytes",
    "threads_that_fit",
    "tile_bytes",
]

_F = 8  # the inner problem is solved in double precision
_SMALL = 600  # working samples of a class up to which nothing is gained by holding some of them
_STEPS = 12  # of the interior point, as seen
_EPOCHS = 20  # of SDCA for one set of weights
_ALTERNATIONS = 3  # of SVMs and joint steps
_FREE = 0.4  # share of the samples that are free
THREADS = 2  # tasks in flight that are counted: were it their real number, the form and the bits would follow it


@dataclass(frozen=True)
class InnerSizes:
    """Sizes of the restricted problem: working samples of each class, active kernels, features.

    `union` is the number of different samples among those of all classes, if it is known; `itemsize` the bytes of a
    number of them.
    """

    working: Sequence[int]
    kernels: int
    features: int
    componentwise: bool
    union: int | None = None
    itemsize: int = 8

    @property
    def largest(self) -> int:
        return max(self.working)

    @property
    def n_rows(self) -> int:
        """Different samples, or a bound on them."""
        return sum(self.working) if self.union is None else self.union

    @property
    def width(self) -> int:
        """Numbers that a kernel keeps for a sample: bumps and B (global), or its explicit features."""
        return self.features + 1 if self.componentwise else 2


@dataclass(frozen=True)
class Choice:
    """The form chosen, the bytes it needs, and why."""

    form: str
    bytes: int
    reason: str


def dense_bytes(sizes: InnerSizes) -> int:
    """Interior point: per class the factor, rows, maps, U and Y, and panels in flight; and the Schur complement."""
    S, total = sizes.kernels, sum(sizes.working)
    squares = sum(w * w for w in sizes.working)
    maps = (sizes.width + 2) * total * S + total * sizes.features
    return _F * (squares + maps + S * S) + THREADS * _in_flight_bytes(sizes, "dense")


def lean_bytes(sizes: InnerSizes) -> int:
    """Interior point on lean blocks: the shared rows, per class the factor, bumps and U, which becomes Y; panels."""
    S, total = sizes.kernels, sum(sizes.working)
    squares = sum(w * w for w in sizes.working)
    held = sizes.n_rows * sizes.features * sizes.itemsize + total * S * 4 + _F * (squares + total * S + S * S)
    return held + THREADS * _in_flight_bytes(sizes, "lean")


def _in_flight_bytes(sizes: InnerSizes, form: str) -> int:
    """What a task of the interior point takes, and two of its results."""
    S, L, products = sizes.kernels, sizes.largest, 2 * _F * sizes.kernels**2
    if form == "dense":
        return products + _F * L * (3 * S + 6 * PANEL + (S * sizes.width if sizes.componentwise else 0))
    width = L if L <= 2 * PANEL else PANEL
    rows = L * sizes.features * (_F + sizes.itemsize)
    gram = _F * L * (2 * KERNELS_AT_ONCE + 3 * width) + _F * width * 2 * KERNELS_AT_ONCE
    sums = _F * (3 * L + 3 * sizes.features) * KERNELS_AT_ONCE
    return products + rows + max(gram, sums)


def threads_that_fit(sizes: InnerSizes, choice: Choice, available_bytes: int) -> int:
    """Threads of the interior point: as many as were counted for the form, and more as far as memory allows."""
    return THREADS + max(0, available_bytes - choice.bytes) // _in_flight_bytes(sizes, choice.form)


def feature_bytes(sizes: InnerSizes) -> int:
    """Of the classes whose SVMs are solved at a time: bumps in single precision or features, rows, and sums."""
    per_kernel = 3 * _F * (sizes.features + 1) if sizes.componentwise else 4
    rows = sizes.largest * (sizes.kernels * per_kernel + (2 * _F + sizes.itemsize) * sizes.features)
    return min(THREADS, len(sizes.working)) * (rows + 3 * _F * sizes.kernels * (sizes.features + 1 + 1024))


def tile_bytes(sizes: InnerSizes, tile_rows: int = 1024) -> int:
    """Rows of the classes whose SVMs are solved at a time, a tile and forms in the making; the store takes the rest."""
    tile_rows = min(tile_rows, sizes.largest)
    making = tile_rows * sizes.kernels * _F * (6 * (sizes.features + 1) if sizes.componentwise else 6)
    if sizes.componentwise:
        making = min(making, 6 * FEATURE_BLOCK_BYTES)
    forms = 5 * min(TASK_BYTES, _F * min(ROW_BLOCK, sizes.largest) * sizes.kernels)
    rows = sizes.largest * sizes.features
    return min(THREADS, len(sizes.working)) * (_F * (rows + 4 * tile_rows**2) + making + forms)


def kept_bytes(sizes: InnerSizes, tile_rows: int = 1024) -> int:
    """Tiles of the classes at work, if the store keeps them all: those on the diagonal and below."""
    whole, rest = divmod(sizes.largest, tile_rows)
    diagonal = whole * tile_rows**2 + rest**2
    return min(THREADS, len(sizes.working)) * _F * (sizes.largest**2 + diagonal) // 2


def feature_flops(sizes: InnerSizes) -> float:
    """Multiply-adds of SVMs on features: the products of a block with the sums and the anchors, for every epoch."""
    return 3.0 * _EPOCHS * sum(sizes.working) * sizes.kernels * (sizes.features + 1)


def tile_flops(sizes: InnerSizes, kept: bool) -> float:
    """Multiply-adds of SVMs on tiles, which are made once, or in every epoch if the store cannot keep them."""
    per_kernel = sizes.features + 1 if sizes.componentwise else 3
    making = 0.5 * (per_kernel * sizes.kernels + sizes.features) * (1 if kept else _EPOCHS)
    return sum(float(w) * w for w in sizes.working) * (making + _EPOCHS)


def inner_flops(sizes: InnerSizes, form: str) -> float:
    """Multiply-adds that solving takes, roughly: with as many steps as were seen."""
    per_kernel = sizes.features + 1 if sizes.componentwise else 3
    squares = sum(float(w) * w for w in sizes.working)
    if form in ("dense", "lean"):
        return _STEPS * squares * sizes.kernels * per_kernel
    joint = _STEPS * _FREE**2 * squares * sizes.kernels * per_kernel
    svms = feature_flops(sizes) if form == "features" else tile_flops(sizes, kept=True)
    return _ALTERNATIONS * (joint + svms)


def interior_form(sizes: InnerSizes, available_bytes: int) -> Choice | None:
    """The interior point on all these samples, dense or else lean; None if neither fits."""
    dense = dense_bytes(sizes)
    if dense <= available_bytes:
        return Choice("dense", dense, f"the interior point fits: {_mb(dense)} of {_mb(available_bytes)}")
    lean = lean_bytes(sizes)
    if sizes.componentwise or lean > available_bytes:
        return None
    reason = f"the interior point fits with bumps alone: {_mb(lean)} of {_mb(available_bytes)}"
    return Choice("lean", lean, f"{reason}, all its maps would need {_mb(dense)}")


def choose_form(sizes: InnerSizes, available_bytes: int, disk_bytes: int = 0) -> Choice:
    """The interior point if the samples are few and it fits; else the cheaper of features and tiles that fits."""
    interior = interior_form(sizes, available_bytes)
    small = sizes.componentwise or sizes.largest <= _SMALL
    if interior is not None and small:
        return interior
    features, tiles = feature_bytes(sizes), tile_bytes(sizes)
    gram, store = kept_bytes(sizes), max(0, available_bytes - tiles)
    kept = tiles <= available_bytes and gram <= store + disk_bytes
    by_features, by_tiles = feature_flops(sizes), tile_flops(sizes, kept)
    why = "the interior point does not fit" if small else f"{sizes.largest} samples of a class are many"
    costs = f"{by_features:.1e} multiply-adds on features, {by_tiles:.1e} on tiles"
    if features <= available_bytes and by_features <= by_tiles:
        return Choice("features", features, f"{why}; {costs}")
    if interior is not None and not kept:
        return interior
    return Choice("tiles", tiles + min(store, gram), f"{why}; {costs}{'' if kept else ', which do not fit the store'}")


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"
