"""The machine in numbers that suit single precision: relative to its own centre, in units of its own spread.

    z' = (z - origin) / unit = matrix (v - centre) + shift,      v = x, or x / |x| for unit-norm

or, of columns c(j) of v, some of which are mapped by quantiles:

    z' = matrix u + shift,      u_j = v_c(j) - centre_j, or t_j(v_c(j) - centre_j)

    f_k = sum_m h(|z' - c'_m|; gamma'_m) (<z' - c'_m, slope_mk> + level_mk)

origin is the mean of the anchors, and unit is a power of two near their spread, so that large units of the data and
values far from zero do not cost digits. Scaling, projection and whitening are one matrix. `centre` is a float32 number,
so v - centre is almost exact; the rounding of the centre is in `shift`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.preparation.preprocessing import Preprocessor
from mllkm_scale.data.preparation.quantiles import Quantiles
from mllkm_scale.data.preparation.scaling import Scaling
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.maps import MapName, uses_plain_distance
from mllkm_scale.model.model import Model

if TYPE_CHECKING:
    from mllkm_scale.model.tables.additive import AdditiveModel

__all__ = [
    "Layout",
    "Preparation",
    "TableLayout",
    "machine_layout",
    "table_layout",
]


@dataclass(frozen=True)
class Preparation:
    """The map from a raw row to z'; `factors` (d,) replace the matrix if there is no projection.

    It has p columns: the features of a row, or those in `columns`. `knots` are relative to the centre of their column,
    and their levels to a typical one.
    """

    unit_norm: bool
    centre: Array  # (p,)
    factors: Array | None
    matrix: Array | None  # (d, p)
    shift: Array  # (d,)
    columns: NDArray[np.int64] | None = None  # (p,)
    knots: Quantiles | None = None

    @property
    def n_columns(self) -> int:
        return len(self.centre)


@dataclass(frozen=True)
class Layout:
    """A machine with s kernels over d features for K scores, in z'.

    For component-wise kernels, `levels` are per feature: the constant of a kernel is the mean of its bumps.
    """

    map: MapName
    componentwise: bool
    preparation: Preparation
    origin: Array  # (d,)
    unit: float
    anchors: Array  # (s, d)
    gammas: Array  # (s,)
    slopes: Array  # (s, K, d)
    levels: Array  # (s, K)

    @property
    def n_kernels(self) -> int:
        return len(self.gammas)

    @property
    def n_features(self) -> int:
        return int(self.anchors.shape[1])

    @property
    def n_scores(self) -> int:
        return int(self.levels.shape[1])


@dataclass(frozen=True)
class TableLayout:
    """Tables of a component-wise machine in z': cell j of feature l is from edges[j + l] to edges[j + l + 1].

    The cells of feature l are starts[l] to starts[l + 1]; outside the edges, a function is zero.
    """

    starts: NDArray[np.int64]  # (d + 1,)
    edges: Array  # (cells + d,): a feature without cells has one edge
    variables: Array  # (cells, 2): origin and factor
    coefficients: Array  # (cells, K, degree + 1)

    @property
    def cells(self) -> int:
        return len(self.variables)

    @property
    def degree(self) -> int:
        return int(self.coefficients.shape[2]) - 1


def machine_layout(model: Model) -> Layout:
    """The machine of a model in z'.

    Examples
    --------
    >>> from mllkm_scale import MLLKMClassifier
    >>> X, y = [[1000.0, 0.0], [1000.0, 1.0], [4000.0, 3.0], [4000.0, 4.0]], ["near", "near", "far", "far"]
    >>> layout = machine_layout(MLLKMClassifier(scaling="none").fit(X, y).model_)
    >>> bool(abs(layout.anchors).max() < 2.0), layout.unit
    (True, 2048.0)
    """
    componentwise, plain = model.family.componentwise, uses_plain_distance(model.family.map)
    origin = model.anchors.mean(axis=0)
    unit = _unit(model.anchors - origin, componentwise)
    levels = model.local_coef.T / (model.anchors.shape[1] if componentwise else 1)
    with np.errstate(over="ignore"):
        gammas, slopes = model.gammas * (unit if plain else unit**2), model.coef.transpose(1, 0, 2) * unit
    if not (np.isfinite(gammas).all() and np.isfinite(slopes).all()):
        raise ParameterError(
            f"the gammas or the coefficients of the model, in units of {unit:.2g}, are beyond double precision:"
            " train with scaling='standard'"
        )
    return Layout(
        map=model.family.map,
        componentwise=componentwise,
        preparation=_preparation(model.preprocessor, origin, unit),
        origin=origin,
        unit=unit,
        anchors=(model.anchors - origin) / unit,
        gammas=gammas,
        slopes=np.ascontiguousarray(slopes),
        levels=np.ascontiguousarray(levels),
    )


def table_layout(tables: AdditiveModel, layout: Layout) -> TableLayout:
    """The tables of a model in z', without the zero cells at both ends of a feature."""
    firsts = np.append(np.flatnonzero(np.isneginf(tables.edges)), tables.cells)
    counts = np.maximum(np.diff(firsts) - 2, 0)
    origins = np.repeat(layout.origin, np.diff(firsts))
    edges = (tables.edges - origins) / layout.unit
    parts = [edges[first + 1 : first + n + 2] if n else np.zeros(1) for first, n in zip(firsts, counts, strict=False)]
    inner = np.concatenate([np.arange(first + 1, first + 1 + n) for first, n in zip(firsts, counts, strict=False)])
    variables = np.stack(
        [(tables.variables[inner, 0] - origins[inner]) / layout.unit, tables.variables[inner, 1] * layout.unit], axis=1
    )
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return TableLayout(starts, np.concatenate(parts), variables, tables.coefficients[inner])


def _unit(offsets: Array, componentwise: bool) -> float:
    """The power of two nearest to the typical distance from the origin; 1 if there is none."""
    largest = float(np.abs(offsets).max())
    if largest == 0.0:
        return 1.0
    squares = np.square(offsets / largest)
    spread = largest * np.sqrt(squares.mean() if componentwise else squares.sum(axis=1).mean())
    # Beyond these limits, gamma times the square of the unit would exceed double precision.
    return float(2.0 ** np.clip(np.round(np.log2(spread)), -250, 250))


def _preparation(preprocessor: Preprocessor, origin: Array, unit: float) -> Preparation:
    scaling, projection = preprocessor.scaling, preprocessor.projection
    with np.errstate(over="ignore", divide="ignore"):
        middle = scaling.offset + (origin if projection is None else projection.mean) / scaling.factor
        middle = np.where(np.isfinite(middle), middle, scaling.offset)
    centre = _single(middle)
    # The scaled centre, relative to the reference of the next step.
    moved = (centre - scaling.offset) * scaling.factor
    unit_norm = scaling.kind == "unit-norm"
    centre, knots = _centred_knots(scaling, centre)
    if projection is None:
        shift = (moved - origin) / unit
        return Preparation(unit_norm, centre, scaling.factor / unit, None, shift, scaling.columns, knots)
    components = projection.matrix
    shift = (components @ (moved - projection.mean) - origin) / unit
    matrix = components * scaling.factor / unit
    return Preparation(unit_norm, centre, None, matrix, shift, scaling.columns, knots)


def _centred_knots(scaling: Scaling, centre: Array) -> tuple[Array, Quantiles | None]:
    """The centres of all columns, and knots relative to them. The given centre of a quantile column is one of its
    levels."""
    if scaling.quantiles is None:
        return centre, None
    quantiles, centre, level = scaling.quantiles, centre.copy(), centre
    for j in np.flatnonzero(quantiles.mapped):
        values, _ = quantiles.knots(int(j))
        centre[j] = _single(values[len(values) // 2])
    column = np.repeat(np.arange(scaling.n_columns), np.diff(quantiles.starts))
    return centre, Quantiles(quantiles.starts, quantiles.values - centre[column], quantiles.levels - level[column])


def _single(values: Array) -> Array:
    """The nearest numbers in single precision, if they are in its range."""
    with np.errstate(over="ignore"):
        single = np.asarray(values).astype(np.float32).astype(np.float64)
    return np.where(np.isfinite(single), single, values)
