"""Which form the inner problem takes, and the memory of each: pure arithmetic over sizes (F11).

dense      interior point: factors of every class and the maps of every class in memory
features   SVMs by SDCA on explicit features, class by class, and the interior point on the free samples
tiles      likewise on tiles of the combined Gram
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Choice", "InnerSizes", "choose_form", "dense_bytes", "feature_bytes", "inner_flops", "tile_bytes"]

_F = 8  # the inner problem is solved in double precision
_SMALL = 600  # working samples of a class up to which nothing is gained by holding some of them
_STEPS = 12  # of the interior point, as seen
_EPOCHS = 20  # of SDCA for one set of weights
_ALTERNATIONS = 3  # of SVMs and joint steps
_FREE = 0.4  # share of the samples that are free
_THREADS = 2  # tasks in flight that are counted: were it their real number, the form and the bits would follow it


@dataclass(frozen=True)
class InnerSizes:
    """Sizes of the restricted problem: working samples of each class, active kernels, features."""

    working: Sequence[int]
    kernels: int
    features: int
    componentwise: bool

    @property
    def largest(self) -> int:
        return max(self.working)

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
    in_flight = _THREADS * sizes.largest * (3 * S + 3 * 768 + (S * sizes.width if sizes.componentwise else 0))
    return _F * (squares + maps + in_flight + (3 + _THREADS) * S * S)


def feature_bytes(sizes: InnerSizes) -> int:
    """Features of the classes whose SVMs are solved at a time: bumps (in double precision, at most), rows, and sums."""
    per_kernel = 3 * (sizes.features + 1) if sizes.componentwise else 1
    rows = sizes.largest * (sizes.kernels * per_kernel + 2 * sizes.features)
    return _F * _THREADS * (rows + 3 * sizes.kernels * (sizes.features + 1 + 1024))


def tile_bytes(sizes: InnerSizes, tile_rows: int = 1024) -> int:
    """Rows of the classes whose SVMs are solved at a time, and a tile in the making; the store takes what is left."""
    per_kernel = 2 * (sizes.features + 1) if sizes.componentwise else 6
    tile_rows = min(tile_rows, sizes.largest)
    making = tile_rows * sizes.kernels * per_kernel + 4 * tile_rows**2
    return _F * _THREADS * (sizes.largest * sizes.features + making)


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
    if form == "dense":
        return _STEPS * squares * sizes.kernels * per_kernel
    joint = _STEPS * _FREE**2 * squares * sizes.kernels * per_kernel
    svms = feature_flops(sizes) if form == "features" else tile_flops(sizes, kept=True)
    return _ALTERNATIONS * (joint + svms)


def choose_form(sizes: InnerSizes, available_bytes: int, disk_bytes: int = 0) -> Choice:
    """The fastest form that fits, by multiply-adds."""
    dense, features, tiles = dense_bytes(sizes), feature_bytes(sizes), tile_bytes(sizes)
    small = sizes.componentwise or sizes.largest <= _SMALL
    if dense <= available_bytes and small:
        return Choice("dense", dense, f"the interior point on all samples: {_mb(dense)} of {_mb(available_bytes)}")
    why = f"{sizes.largest} samples of a class are many" if not small else f"the interior point needs {_mb(dense)}"
    gram, store = _F * _THREADS * sizes.largest**2 // 2, max(0, available_bytes - tiles)
    kept = gram <= store + disk_bytes
    by_features, by_tiles = feature_flops(sizes), tile_flops(sizes, kept)
    costs = f"{by_features:.1e} multiply-adds on features, {by_tiles:.1e} on tiles"
    if features <= available_bytes and by_features <= by_tiles:
        return Choice("features", features, f"{why}; {costs}")
    return Choice("tiles", tiles + min(store, gram), f"{why}; {costs}{'' if kept else ', which do not fit the store'}")


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"
