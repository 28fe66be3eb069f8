"""Which form the inner problem takes, and the memory of each: pure arithmetic over sizes (F11).

dense      interior point: factors of every class and the maps of every class in memory
lean       the same with bumps in single precision, rows that the classes share, and the rest made again in each step
features   first-order weights, SDCA on explicit features of one class at a time
tiles      first-order weights, SDCA on tiles of the combined Gram of one class at a time
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mllkm_scale.gram.lean import KERNELS_AT_ONCE
from mllkm_scale.mkl.restricted import PANEL

__all__ = [
    "Choice",
    "InnerSizes",
    "choose_form",
    "dense_bytes",
    "feature_bytes",
    "inner_flops",
    "lean_bytes",
    "threads_that_fit",
    "tile_bytes",
]

_F = 8  # the inner problem is solved in double precision
_INNER_STEPS = 12  # of the interior point, as seen
_INNER_EPOCHS = 200  # of SDCA, for all weights that are tried
_THREADS = 2  # tasks in flight that are counted: were it their real number, the form and the bits would follow it


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
    return _F * (squares + maps + S * S) + _THREADS * _in_flight_bytes(sizes, "dense")


def lean_bytes(sizes: InnerSizes) -> int:
    """Interior point on lean blocks: the shared rows, per class the factor, bumps and U, which becomes Y; panels."""
    S, total = sizes.kernels, sum(sizes.working)
    squares = sum(w * w for w in sizes.working)
    held = sizes.n_rows * sizes.features * sizes.itemsize + total * S * 4 + _F * (squares + total * S + S * S)
    return held + _THREADS * _in_flight_bytes(sizes, "lean")


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
    return _THREADS + max(0, available_bytes - choice.bytes) // _in_flight_bytes(sizes, choice.form)


def feature_bytes(sizes: InnerSizes) -> int:
    """Features of the largest class: A, distances and diagonals in flight; the coefficients."""
    per_kernel = sizes.features + 1 if sizes.componentwise else 1
    rows = sizes.largest * (sizes.kernels * (3 * per_kernel if sizes.componentwise else 4) + sizes.features)
    return _F * (rows + 2 * sizes.kernels * (sizes.features + 1))


def tile_bytes(sizes: InnerSizes, tile_rows: int = 1024) -> int:
    """Rows of the largest class, and a tile in the making; the store takes what is left."""
    per_kernel = 2 * (sizes.features + 1) if sizes.componentwise else 6
    making = tile_rows * sizes.kernels * per_kernel + 4 * tile_rows**2
    return _F * (sizes.largest * sizes.features + making)


def inner_flops(sizes: InnerSizes, form: str) -> float:
    """Multiply-adds that solving takes, roughly: with as many steps or epochs as were seen."""
    S, squares = sizes.kernels, float(sum(w * w for w in sizes.working))
    if form in ("dense", "lean"):
        return _INNER_STEPS * squares * S * (sizes.features + 1 if sizes.componentwise else 3)
    features = _INNER_EPOCHS * 2.0 * sum(sizes.working) * S * (sizes.features + 1)
    return features if form == "features" else _INNER_EPOCHS * squares


def choose_form(sizes: InnerSizes, available_bytes: int, disk_bytes: int = 0) -> Choice:
    """The fastest form that fits: dense, then lean; else the cheaper of features and tiles, by multiply-adds."""
    dense = dense_bytes(sizes)
    if dense <= available_bytes:
        return Choice("dense", dense, f"the interior point fits: {_mb(dense)} of {_mb(available_bytes)}")
    if not sizes.componentwise:
        lean = lean_bytes(sizes)
        if lean <= available_bytes:
            reason = f"the interior point fits with bumps alone: {_mb(lean)} of {_mb(available_bytes)}"
            return Choice("lean", lean, f"{reason}, all its maps would need {_mb(dense)}")
        dense = min(dense, lean)
    features, tiles = feature_bytes(sizes), tile_bytes(sizes)
    gram = _F * sizes.largest**2
    too_large = f"the interior point would need {_mb(dense)} of {_mb(available_bytes)}"
    step = sizes.kernels * sizes.features
    if features <= available_bytes and step <= sizes.largest:
        return Choice("features", features, f"{too_large}; a step costs s d = {step} on features, and |W| on a Gram")
    if features <= available_bytes and gram > available_bytes - tiles + disk_bytes:
        return Choice("features", features, f"{too_large}; the Gram of {_mb(gram)} does not fit the store either")
    store = max(0, available_bytes - tiles)
    return Choice(
        "tiles", tiles + min(store, gram), f"{too_large}; a step costs s d = {step} on features, |W| on tiles"
    )


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"
