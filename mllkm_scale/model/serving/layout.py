"""The layout of a model for `Server`: the preparation of a row in one step, and the kernels.

    z = ((v - scaling.offset) * scaling.factor - mean) @ components' / deviations - centre
      = (v - origin) @ projection - offset

v is the row x itself, or the columns that are made of it: features and quantile columns. If the mean of a column is not
much larger than the extent of the anchors, its origin is zero; then values of zero, which are frequent in images and
counts, cost nothing. Otherwise the mean is subtracted first, because digits would be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.preparation.preprocessing import Preprocessor
from mllkm_scale.data.preparation.scaling import Scaling
from mllkm_scale.kernels.maps import falls_exponentially, uses_plain_distance
from mllkm_scale.kernels.predictors import GlobalPredictors
from mllkm_scale.model.serving.rows import compiled, decide_component, decide_global, decide_tables

if TYPE_CHECKING:
    from mllkm_scale.model.model import Model

__all__ = ["Decide", "Preparation", "laid_out"]

Decide = Callable[[Array, Array], int]
_NEAR = 16.0  # allowed distance of zero from the mean, in units of the extent of the anchors


@dataclass(frozen=True)
class Preparation:
    """Arrays of the step before the kernels; columns, knots and the projection are empty if there are none."""

    unit_norm: bool
    columns: NDArray[np.int64]
    knot_starts: NDArray[np.int64]
    knot_values: Array
    knot_levels: Array
    origin: Array
    factor: Array
    projection: Array
    offset: Array

    @classmethod
    def of(cls, preprocessor: Preprocessor, centre: Array, reach: float) -> Preparation:
        """The preparation that also subtracts `centre`, for a model whose anchors are at most `reach` from it."""
        scaling, projection = preprocessor.scaling, preprocessor.projection
        first = scaling.kind == "unit-norm", *_columns(scaling)
        if projection is None:
            return cls(*first, scaling.offset.copy(), scaling.factor.copy(), np.empty((0, 0)), centre.copy())
        matrix = scaling.factor[:, None] * projection.components.T
        if projection.whiten:
            matrix /= projection.deviations
        mean = scaling.offset + projection.mean / scaling.factor
        near = np.abs(mean) * np.abs(matrix).max(axis=1) <= _NEAR * reach
        origin = np.where(near, 0.0, mean)
        offset = (mean - origin) @ matrix + centre
        return cls(*first, origin, scaling.factor.copy(), np.ascontiguousarray(matrix), offset)


def _columns(scaling: Scaling) -> tuple[NDArray[np.int64], NDArray[np.int64], Array, Array]:
    """Features of the columns, and starts, values and levels of their knots."""
    none = np.empty(0, np.int64), np.empty(0), np.empty(0)
    if scaling.columns is None:
        return np.empty(0, np.int64), *none
    if scaling.quantiles is None:
        return scaling.columns.copy(), *none
    quantiles = scaling.quantiles
    return scaling.columns.copy(), quantiles.starts.copy(), quantiles.values.copy(), quantiles.levels.copy()


def laid_out(model: Model) -> Decide:
    """The function that takes rows X (n, features) and fills F (n, K); see `decide_global` for its result."""
    tables = model.form.tables
    if tables is not None:
        cells = tables.edges, tables.variables, tables.coefficients
        return _bound(decide_tables, *_prepared(model), tables.guide_starts, tables.spans, tables.guide, *cells)
    map = uses_plain_distance(model.family.map), falls_exponentially(model.family.map)
    if model.family.componentwise:
        folded = np.concatenate([model.coef, model.local_coef[:, :, None]], axis=2).transpose(1, 2, 0)
        kernels = model.anchors.copy(), model.gammas.copy(), np.ascontiguousarray(folded)
        return _bound(decide_component, *_prepared(model), *map, *kernels)
    laid = GlobalPredictors.of(model.family.map, model.anchors, model.gammas, model.coef, model.local_coef)
    kernels = np.ascontiguousarray(laid.anchors.T), model.gammas.copy(), laid.flat
    return _bound(decide_global, *_prepared(model, laid.origin), *map, *kernels)


def _bound(decide: Callable[..., int], *layout: Any) -> Decide:
    return partial(compiled(decide), *layout)


def _prepared(model: Model, centre: Array | None = None) -> tuple[Any, ...]:
    """Arguments for the preparation of rows, with the centre subtracted."""
    centre = np.zeros(model.anchors.shape[1]) if centre is None else centre
    made = Preparation.of(model.preprocessor, centre, float(np.abs(model.anchors - centre).max()))
    return tuple(getattr(made, spec.name) for spec in fields(made))
