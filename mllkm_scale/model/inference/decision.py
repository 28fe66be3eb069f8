"""The decision function of rows, block by block: by tables if the model has them, otherwise by groups of kernels.

The bits of the value of a row do not depend on the other rows, because blocks always have the same height.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.errors import DataError
from mllkm_scale.kernels.predictors import GlobalPredictors
from mllkm_scale.model.inference.blocks import Rows

if TYPE_CHECKING:
    from mllkm_scale.model.model import Model
    from mllkm_scale.model.tables.additive import AdditiveModel

__all__ = ["decide", "global_predictors"]


def decide(model: Model, rows: Rows, n_jobs: int | None = None) -> Array:
    """f of rows, which are also checked: (n,) for two classes, and (n, K) otherwise."""
    model.require_features(rows.X.shape[1], rows.name)
    tables = model.form.tables
    F = np.empty((len(rows), model.n_machines))

    def evaluate(at: slice, block: Array) -> None:
        F[at] = _decide_block(model, block, tables)[: at.stop - at.start]

    rows.in_blocks(model.blocks.rows, n_jobs, model.row_work, evaluate)
    broken = np.flatnonzero(~np.isfinite(F).all(axis=1))
    if len(broken):
        raise DataError(
            f"{rows.name} has values too large to compute with at row {rows.number(broken[0])} (0-based):"
            " give them in the units of the training data"
        )
    return model.flat(F)


def _decide_block(model: Model, block: Array, tables: AdditiveModel | None) -> Array:
    # An overflow gives a value that is not finite; the message names the row.
    with np.errstate(over="ignore", invalid="ignore"):
        Z = model.preprocessor.transform(block, np.float64)
        if tables is not None:
            return tables.decide(Z)
        F = np.zeros((len(block), model.n_machines))
        if not model.family.componentwise:
            return sum((part.decide(Z) for part in model.predictors), F)
        for group in _groups(model):
            kernels = model.family.kernels(model.anchors[group], model.gammas[group])
            F += kernels.decide(Z, model.coef[:, group], model.local_coef[:, group])
    return F


def _groups(model: Model) -> list[slice]:
    """Groups of kernels that are evaluated at the same time."""
    at_once = model.blocks.kernels
    return [slice(i, i + at_once) for i in range(0, model.n_kernels, at_once)]


def global_predictors(model: Model) -> list[GlobalPredictors]:
    """The groups of global kernels, in the layout for evaluation."""
    map, coef, local_coef = model.family.map, model.coef, model.local_coef
    return [
        GlobalPredictors.of(map, model.anchors[g], model.gammas[g], coef[:, g], local_coef[:, g])
        for g in _groups(model)
    ]
