"""A component-wise machine compiled to tables: the cost of a row does not depend on the number of kernels (F4).

    f_k(z) = sum_l f_kl(z_l)        f_kl(t): one lookup in the cells of feature l, one polynomial per class

The error of the tables is bounded by a stated deviation for any row, and their size is bounded in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.base.units import format_bytes
from mllkm_scale.errors import ParameterError
from mllkm_scale.model.inference.blocks import BlockPlan
from mllkm_scale.model.tables.cells import DEGREES, Cells, NotTabulated, require_finite_cells
from mllkm_scale.model.tables.lookup import add_tables, bucket
from mllkm_scale.model.tables.pieces import piece_cells
from mllkm_scale.model.tables.shapes import Shapes, require_componentwise, rounding
from mllkm_scale.model.tables.smooth import smooth_cells

if TYPE_CHECKING:
    from mllkm_scale.model.model import Model

__all__ = ["DEVIATION", "MAX_BYTES", "AdditiveModel", "compile_additive"]


DEVIATION = 1e-6  # the margin is 1
MAX_BYTES = 64_000_000
ROWS = 256
_TABLE_BYTES = 8 * 4  # per feature, besides its cells


@dataclass(frozen=True, eq=False, repr=False)
class AdditiveModel:
    """The tables of a component-wise model; see `compile_additive`.

    Attributes
    ----------
    deviation : float
        Bound on |f_k(z) - its value by tables| over all k and all z.
    edges : array (cells,)
        The beginning of each cell, for all features one after another; the first cell of a feature begins at minus
        infinity.
    variables : array (cells, 2)
        Origin and factor of the variable of each cell's polynomials; a cell of zeros has the factor 0.
    coefficients : array (cells, K, degree + 1)
    guide, guide_starts, spans : int64 arrays and array (d, 2)
        The cells in each bucket of the values of a feature; see `lookup`.
    """

    deviation: float
    edges: Array
    variables: Array
    coefficients: Array
    guide: NDArray[np.int64]
    guide_starts: NDArray[np.int64]
    spans: Array

    @property
    def n_machines(self) -> int:
        """K, the number of functions of each feature."""
        return int(self.coefficients.shape[1])

    @property
    def n_features(self) -> int:
        """d, the number of features, with one table each."""
        return len(self.spans)

    @property
    def cells(self) -> int:
        """Number of cells of all tables."""
        return len(self.edges)

    @property
    def bytes(self) -> int:
        """Size of all tables in bytes."""
        arrays = (self.edges, self.variables, self.coefficients, self.guide, self.guide_starts, self.spans)
        return sum(values.nbytes for values in arrays)

    @property
    def degree(self) -> int:
        """Degree of the polynomials."""
        return int(self.coefficients.shape[2]) - 1

    def __repr__(self) -> str:
        size = f"{self.cells:,} cells, {format_bytes(self.bytes)}, off by at most {self.deviation:.1e}"
        return f"AdditiveModel({self.n_features:,} features, {self.n_machines:,} outputs, {size})"

    def decide(self, Z: Array) -> Array:
        """f of prepared rows Z (n, d), shape (n, K); the bits of a row depend only on that row."""
        F = np.zeros((len(Z), self.n_machines))
        rows = np.ascontiguousarray(Z, dtype=np.float64)
        cells = (self.edges, self.variables, self.coefficients)
        add_tables(rows, self.guide_starts, self.spans, self.guide, *cells, F)
        return F

    def blocks(self, n_features_in: int) -> BlockPlan:
        """The blocks for the evaluation of rows with this number of input features."""
        row_bytes = 8 * (3 * n_features_in + self.n_features + self.n_machines)
        return BlockPlan(rows=ROWS, kernels=0, block_bytes=ROWS * row_bytes)


def compile_additive(model: Model, deviation: float = DEVIATION, *, max_bytes: int = MAX_BYTES) -> AdditiveModel:
    """Compile a component-wise model to tables.

    The deviation is proved cell by cell from bounds on derivatives, plus a bound on rounding. It holds on the whole
    axis, including anchors, kinks and values far outside the data. During compilation, tables take up to three times
    their memory.

    Parameters
    ----------
    model : Model
        A model of component-wise kernels.
    deviation : float
        Largest allowed error of any f; rounding may use at most half of it.
    max_bytes : int
        Bound on the size of the tables.

    Raises
    ------
    NotTabulated
        If it is impossible within the deviation and the bytes.

    Examples
    --------
    >>> from mllkm_scale import MLLKMClassifier
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MLLKMClassifier(anchors="all", componentwise=True).fit(X, y).model_
    >>> tables = compile_additive(model)
    >>> tables.n_features, tables.deviation <= 1e-6, tables.bytes < 1_000_000
    (4, True, True)
    >>> difference = tables.decide(model.preprocessor.transform(X)) - model.direct().decision_function(X)
    >>> bool(abs(difference).max() <= 1e-6)
    True
    """
    require_componentwise(model)
    if not 0 < deviation < np.inf:
        raise ParameterError(f"deviation={deviation}: give a positive number, such as {DEVIATION}")
    n_machines, d = model.n_machines, model.anchors.shape[1]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        rounded = float(rounding(model).sum())
    if not rounded <= deviation / 2:
        raise NotTabulated(
            f"rounding alone may move values by {rounded:.2g}, as some gammas are too small or coefficients too large"
            f" for tables within {deviation:.2g}: allow a larger deviation, or use the direct form"
        )
    tolerance = (1.0 - 1e-9) * (deviation - rounded) / d
    cells_left = (max_bytes - 8 - d * _TABLE_BYTES) // (8 * (4 + (DEGREES[model.family.map] + 1) * n_machines))
    tables: list[_Table] = []
    error = rounded
    with one_blas_thread():
        for feature in range(d):
            shapes = Shapes.of(model, feature)
            try:
                cells = _cells(shapes, tolerance, cells_left - 2)
            except NotTabulated as why:
                raise NotTabulated(
                    f"no tables within {format_bytes(max_bytes)} are off by at most {deviation:.2g}, as feature"
                    f" {feature} {why}: allow more bytes or a larger deviation, or use the direct form"
                ) from why
            tables.append(_table(shapes, cells))
            cells_left -= len(tables[-1].edges)
            error += cells.error
    firsts = np.cumsum([0] + [len(table.edges) for table in tables])
    return AdditiveModel(
        deviation=error,
        edges=np.concatenate([table.edges for table in tables]),
        variables=np.concatenate([table.variables for table in tables]),
        coefficients=np.concatenate([table.coefficients for table in tables]),
        guide=np.concatenate([first + table.guide for first, table in zip(firsts, tables, strict=False)]),
        guide_starts=np.cumsum([0] + [len(table.guide) for table in tables]),
        spans=np.array([table.span for table in tables]),
    )


def _cells(shapes: Shapes, tolerance: float, max_cells: int) -> Cells:
    if not len(shapes):
        return Cells(np.zeros(1), np.zeros((0, DEGREES[shapes.map] + 1, shapes.slopes.shape[1])), 0.0)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        make = piece_cells if shapes.map in ("linear", "squared") else smooth_cells
        return require_finite_cells(make(shapes, tolerance, max_cells))


@dataclass(frozen=True)
class _Table:
    """The part of an `AdditiveModel` for one feature."""

    edges: Array
    variables: Array
    coefficients: Array
    guide: NDArray[np.int64]
    span: tuple[float, float]


def _table(shapes: Shapes, cells: Cells) -> _Table:
    """The table of these cells, with a cell of zeros at either end."""
    n, powers, n_machines = cells.coefficients.shape
    edges = np.concatenate([[-np.inf], cells.edges]) if n else np.array([-np.inf])
    variables, coefficients = np.zeros((len(edges), 2)), np.zeros((len(edges), n_machines, powers))
    variables[1 : n + 1, 0] = 0.5 * (cells.edges[1:] + cells.edges[:-1])
    variables[1 : n + 1, 1] = 2.0 / np.diff(cells.edges)
    coefficients[1 : n + 1] = cells.coefficients.transpose(0, 2, 1)
    span, guide = _guide(shapes, edges)
    return _Table(edges, variables, coefficients, guide, span)


def _guide(shapes: Shapes, edges: Array) -> tuple[tuple[float, float], NDArray[np.int64]]:
    """As many buckets as cells over the range of the anchors, and the first cell of each.

    Values of bucket j are above all edges of lower buckets and below all edges of higher ones, because the bucket is a
    monotone function of the value, including rounding.
    """
    n_buckets = len(edges)
    low, high = (float(shapes.anchors.min()), float(shapes.anchors.max())) if len(shapes) else (0.0, 0.0)
    scale = n_buckets / (high - low) if high - low > 1e-300 * n_buckets else 0.0
    own = np.array([bucket(edge, low, scale, n_buckets) for edge in edges[1:]], dtype=np.int64)
    below = np.searchsorted(own, np.arange(n_buckets + 1), side="left")
    return (low, scale), below
