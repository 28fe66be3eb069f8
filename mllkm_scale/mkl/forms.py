"""The forms of the inner problem: their memory, and the choice among them, by arithmetic over sizes (F11).

dense      interior point: the factor, the bumps and the rows of every class in memory
lean       the same with bumps in single precision, and rows as they are stored
           both factor the smaller side of the features, samples or columns (F17)
features   epochs of SDCA on explicit features of all classes, bumps in memory, with weight updates between them
streamed   the same with bumps that are computed when they are needed
tiles      SVMs on tiles of the combined Gram, class by class, and the interior point on the free samples

Epochs as in "features" precede the interior point, as long as they are likely to be cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mllkm_scale.kernels.distances import ROW_BLOCK
from mllkm_scale.kernels.locally_linear import FEATURE_BLOCK_BYTES, TASK_BYTES
from mllkm_scale.mkl.interior.factors import PANEL
from mllkm_scale.mkl.restricted import ROWS
from mllkm_scale.solver.local_blocks import AHEAD_ROWS, PASS_ROWS
from mllkm_scale.solver.tiled_svm import TILE_ROWS
from mllkm_scale.solver.visits import BLOCK_ROWS

__all__ = [
    "COLUMN_TOL",
    "FIRST_ORDER",
    "FIRST_ORDER_TOL",
    "THREADS",
    "Choice",
    "InnerSizes",
    "choose_form",
    "dense_bytes",
    "feature_bytes",
    "feature_flops",
    "inner_flops",
    "interior_flops",
    "interior_form",
    "kept_bytes",
    "lean_bytes",
    "most_epochs",
    "streamed_bytes",
    "threads_that_fit",
    "tile_bytes",
]

_F = 8  # the inner problem is solved in double precision
_QUICK = 3e11  # multiply-adds of the interior point below which all samples stay free: seconds
_VECTORS = 8  # sets of vectors of every class: of the point, its direction, and temporary products
_DOUBLE = 2.0  # multiply-adds in single precision that take the time of one in double precision
_STEPS = 10  # of the interior point, as observed
_PRODUCTS = 16  # of a step, with the features or their transpose
_SMALL = 2.0  # multiply-adds of large products in the time of one in the small products of a block
_CALLS = 5e4  # likewise, in the time of the overhead per sample
_EPOCHS = 20  # of SDCA for one set of weights
_VISITED = 0.3  # share of the samples that an epoch with weight updates visits: the others rest at a bound
_ASCENT_EPOCHS = 100 * _VISITED  # of SDCA with weight updates, over all samples, as observed
_ALTERNATIONS = 3  # of SVMs and joint steps
_FREE = 0.4  # share of the samples that are free
COLUMN_TOL = 1e-5
"""Smallest gap for factors of columns: Woodbury's formula loses further digits."""
FIRST_ORDER = ("features", "streamed")
"""The forms that use epochs of SDCA."""
FIRST_ORDER_TOL = 1e-3
"""Smallest gap for epochs in single precision."""
THREADS = 2  # concurrent tasks that are counted; with the real number, the form and the bits would depend on it


@dataclass(frozen=True)
class InnerSizes:
    """Sizes of the restricted problem: working samples of each class, active kernels, features.

    `itemsize` is the size of a number of a sample in bytes, and `tol` the requested gap.
    """

    working: Sequence[int]
    kernels: int
    features: int
    componentwise: bool
    itemsize: int = 8
    tol: float = 1.0

    @property
    def columns(self) -> int:
        """Columns of the explicit features of all kernels."""
        return self.kernels * (self.features + 1)

    @property
    def by_columns(self) -> bool:
        """Whether factors of the columns are cheaper than those of the samples, and exact enough (F17)."""
        return self.tol >= COLUMN_TOL and _column_flops(self) < _sample_flops(self)

    @property
    def largest(self) -> int:
        return max(self.working)

    @property
    def single_bytes(self) -> int:
        """Bytes of a number of the first-order forms."""
        return 4 if self.tol >= FIRST_ORDER_TOL else _F

    @property
    def width(self) -> int:
        """Numbers per kernel and sample: a bump (global), or the explicit features."""
        return self.features + 1 if self.componentwise else 1


@dataclass(frozen=True)
class Choice:
    """The chosen form, the bytes that it needs, and the reason."""

    form: str
    bytes: int
    reason: str


def dense_bytes(sizes: InnerSizes) -> int:
    """Interior point: per class the factor, rows, bumps, U and Y, vectors; the Schur complement; and tasks in flight.

    The factors are counted in double precision, which may become necessary. Factors of columns have explicit features
    instead of Y.
    """
    return _interior_bytes(sizes, (sizes.width + 1) * _F, _F)


def lean_bytes(sizes: InnerSizes) -> int:
    """Likewise with bumps in single precision, without U, and with rows in their stored type."""
    return _interior_bytes(sizes, 4, sizes.itemsize)


def _interior_bytes(sizes: InnerSizes, map_bytes: int, row_bytes: int) -> int:
    """Interior point with these numbers of bytes per kernel and sample, and per feature of a sample."""
    S, total = sizes.kernels, sum(sizes.working)
    p = sizes.columns
    factors = sum(p * (w + p + 2 * S) if sizes.by_columns else w * w for w in sizes.working)
    kept = total * (S * (map_bytes + _F) + sizes.features * row_bytes) + _F * (factors + S * S)
    vectors = _VECTORS * _F * len(sizes.working) * S * (sizes.features + 1)
    return kept + vectors + THREADS * _in_flight_bytes(sizes)


def _in_flight_bytes(sizes: InnerSizes) -> int:
    """Bytes of a task of the interior point, and of two of its results: maps and a panel, a block of rows, Y'Y."""
    S, L = sizes.kernels, sizes.largest
    if sizes.by_columns:
        p = sizes.columns
        panel = p if p <= 2 * PANEL else PANEL
        return _F * (3 * min(L, ROWS) * p + 4 * p * panel)
    maps = S * sizes.width if sizes.componentwise else 2 * S + sizes.features
    panel, rows = L if L <= 2 * PANEL else PANEL, min(L, ROWS)
    return _F * (2 * S * S + L * (maps + 4 * panel) + 2 * rows * (S + sizes.features))


def threads_that_fit(sizes: InnerSizes, choice: Choice, available_bytes: int) -> int:
    """Threads of the interior point: the number counted for the form, and more if memory allows."""
    return THREADS + max(0, available_bytes - choice.bytes) // _in_flight_bytes(sizes)


def feature_bytes(sizes: InnerSizes) -> int:
    """Bytes for all classes: bumps or features, rows, duals and sums; and concurrent tasks."""
    per_kernel = 3 * _F * (sizes.features + 1) if sizes.componentwise else sizes.single_bytes
    return sum(sizes.working) * sizes.kernels * per_kernel + streamed_bytes(sizes)


def streamed_bytes(sizes: InnerSizes) -> int:
    """Likewise without the bumps."""
    width, single, S = sizes.features + 1, sizes.single_bytes, sizes.kernels
    rows = (
        sum(sizes.working) * (single * width + _VECTORS * _F)
        + min(THREADS, len(sizes.working)) * sizes.largest * sizes.features * sizes.itemsize
    )
    sums = len(sizes.working) * 5 * single * S * width
    ready = 2 * AHEAD_ROWS * (4 * S + width) * single
    return rows + sums + THREADS * (ready + PASS_ROWS * 3 * _F * S)


def tile_bytes(sizes: InnerSizes) -> int:
    """Rows of the classes whose SVMs are solved at the same time, a tile and temporary forms; the store gets the
    rest."""
    tile_rows = min(TILE_ROWS, sizes.largest)
    making = tile_rows * sizes.kernels * _F * (6 * (sizes.features + 1) if sizes.componentwise else 6)
    if sizes.componentwise:
        making = min(making, 6 * FEATURE_BLOCK_BYTES)
    forms = 5 * min(TASK_BYTES, _F * min(ROW_BLOCK, sizes.largest) * sizes.kernels)
    rows = sizes.largest * sizes.features
    return min(THREADS, len(sizes.working)) * (_F * (rows + 4 * tile_rows**2) + making + forms)


def kept_bytes(sizes: InnerSizes) -> int:
    """Bytes of all tiles of the current classes: those on the diagonal and below."""
    whole, rest = divmod(sizes.largest, TILE_ROWS)
    diagonal = whole * TILE_ROWS**2 + rest**2
    return min(THREADS, len(sizes.working)) * _F * (sizes.largest**2 + diagonal) // 2


def feature_flops(sizes: InnerSizes, epochs: float = _EPOCHS) -> float:
    """Multiply-adds of epochs on features: small products with sums, anchors and within a block, and calls."""
    of_a_kernel = 2.0 * (sizes.features + 1) if sizes.componentwise else 3.0 * (sizes.features + 1) + 2.0 * BLOCK_ROWS
    return epochs * sum(sizes.working) * (_CALLS + _SMALL * sizes.kernels * of_a_kernel)


def tile_flops(sizes: InnerSizes, kept: bool) -> float:
    """Multiply-adds of SVMs on tiles, which are computed once, or in every epoch if the store cannot keep them."""
    per_kernel = sizes.features + 1 if sizes.componentwise else 3
    making = 0.5 * (per_kernel * sizes.kernels + sizes.features) * (1 if kept else _EPOCHS)
    return sum(float(w) * w for w in sizes.working) * (making + _EPOCHS)


def interior_flops(sizes: InnerSizes, share: float = 1.0) -> float:
    """Multiply-adds of the interior point on a share of the samples."""
    flops = _column_flops if sizes.by_columns else _sample_flops
    return _STEPS * flops(sizes, share)


def _sample_flops(sizes: InnerSizes, share: float = 1.0) -> float:
    """Multiply-adds of a step that factors the side of the samples: Grams, factors, Y and Y'Y; and products with N."""
    S = sizes.kernels
    gram = 0.5 * (sizes.features + 1) if sizes.componentwise else 1.5
    working = [share * w for w in sizes.working]
    products = _DOUBLE * _PRODUCTS * sum(working) * sizes.columns
    return products + sum(w * w * (gram * S + w / 6.0 + 0.5 * S) + 0.5 * w * S * S for w in working)


def _column_flops(sizes: InnerSizes, share: float = 1.0) -> float:
    """Likewise for the side of the columns: S = I + G'G and its factor, Y and Y'Y, in double precision."""
    p, S = float(sizes.columns), sizes.kernels
    factors = sum(p * p * (0.5 * share * w + p / 6.0 + 0.5 * S) + 0.5 * p * S * S for w in sizes.working)
    return _DOUBLE * (factors + _PRODUCTS * share * sum(sizes.working) * p)


def inner_flops(sizes: InnerSizes, form: str) -> float:
    """Approximate multiply-adds of solving: of epochs, or of the form that follows them if that is less."""
    return min(feature_flops(sizes, _ASCENT_EPOCHS), flops_after_epochs(sizes, form))


def most_epochs(sizes: InnerSizes, form: str) -> float:
    """Number of epochs with weight updates that cost as much as what follows them if they do not reach the gap."""
    return flops_after_epochs(sizes, form) / (_VISITED * feature_flops(sizes, 1))


def flops_after_epochs(sizes: InnerSizes, form: str) -> float:
    """Multiply-adds after epochs that do not reach the gap: of the interior point, or of SVMs and free samples."""
    if form in ("dense", "lean"):
        return interior_flops(sizes)
    return _by_turns(sizes, feature_flops(sizes) if form in FIRST_ORDER else tile_flops(sizes, kept=True))


def _by_turns(sizes: InnerSizes, svms: float) -> float:
    return _ALTERNATIONS * (interior_flops(sizes, _FREE) + svms)


def interior_form(sizes: InnerSizes, available_bytes: int) -> Choice | None:
    """The interior point on all samples, dense or lean; None if neither fits."""
    dense = dense_bytes(sizes)
    if dense <= available_bytes:
        return Choice("dense", dense, f"the interior point fits: {_mb(dense)} of {_mb(available_bytes)}")
    lean = lean_bytes(sizes)
    if sizes.componentwise or lean > available_bytes:
        return None
    reason = f"the interior point fits with bumps alone: {_mb(lean)} of {_mb(available_bytes)}"
    return Choice("lean", lean, f"{reason}, all its maps would need {_mb(dense)}")


def choose_form(sizes: InnerSizes, available_bytes: int, disk_bytes: int = 0) -> Choice:
    """The interior point if it fits and costs no more than epochs; otherwise the cheaper one of features and tiles."""
    interior, by_interior = interior_form(sizes, available_bytes), interior_flops(sizes)
    features, streamed, tiles = feature_bytes(sizes), streamed_bytes(sizes), tile_bytes(sizes)
    gram, store = kept_bytes(sizes), max(0, available_bytes - tiles)
    kept = tiles <= available_bytes and gram <= store + disk_bytes
    by_features, by_tiles = feature_flops(sizes, _ASCENT_EPOCHS), _by_turns(sizes, tile_flops(sizes, kept))
    cheap = by_interior <= max(min(by_features, by_tiles), _QUICK)
    if interior is not None and (sizes.componentwise or cheap):
        return interior
    why = "the interior point does not fit" if interior is None else f"{sizes.largest} samples of a class are many"
    costs = f"{by_features:.1e} multiply-adds on features, {by_tiles:.1e} on tiles"
    if by_features <= by_tiles and features <= available_bytes:
        return Choice("features", features, f"{why}; {costs}")
    if by_features <= by_tiles and streamed <= available_bytes and not sizes.componentwise:
        return Choice("streamed", streamed, f"{why}, nor do all bumps; {costs}")
    if interior is not None and not kept:
        return interior
    return Choice("tiles", tiles + min(store, gram), f"{why}; {costs}{'' if kept else ', which do not fit the store'}")


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB"
