"""Labels of rows in single precision if it determines them, and by the decision function otherwise.

In single precision, the error of f is at most about

    2^-24 sum_m h_m(x) (64 + 16 gamma_m (|x|^2 + |c_m|^2)) (|x| |w_m| + |l_m|),

which covers the rounding of the sums and of the distance in each bump; w_m and l_m are the largest over the classes.
The bound is computed by the same matrix product as f, in six further columns. Rows for which the difference between two
classes is below the bound are evaluated again in double precision. The factors 64 and 16 are several times the largest
observed errors; they are not proved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.predictors import GlobalPredictors, filled_up
from mllkm_scale.model.inference.blocks import Rows, plan_blocks
from mllkm_scale.model.inference.decision import decide

if TYPE_CHECKING:
    from mllkm_scale.model.model import Model

__all__ = ["SinglePrecision", "label_codes", "single_precision"]


_UNIT = 2.0**-24
_SUMS, _DISTANCE = 64.0, 16.0  # error of sums, and of squared distances, in units of rounding
_LOST = 2.0**-120  # smaller numbers may have few digits, or none


def label_codes(model: Model, rows: Rows, n_jobs: int | None = None) -> NDArray[np.int64]:
    """Position among the classes of the label of each row, as `Model.codes` computes it from the decision function."""
    machine = model.single_precision
    if machine is None:
        return model.codes(decide(model, rows, n_jobs))
    model.require_features(rows.X.shape[1], rows.name)
    codes, sure = np.empty(len(rows), np.int64), np.empty(len(rows), bool)

    def evaluate(at: slice, block: Array) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            F, error = machine.decide(model.preprocessor.transform(block, np.float64)[: at.stop - at.start])
            sure[at] = _lead(F) > 2.0 * error  # false for NaN
            codes[at] = model.codes(F[:, 0] if F.shape[1] == 1 else F)

    rows.in_blocks(machine.block_rows, n_jobs, 0.5 * model.row_work, evaluate)
    doubtful = np.flatnonzero(~sure)
    if len(doubtful):
        codes[doubtful] = model.codes(decide(model, rows.take(doubtful), n_jobs))
    return codes


def _lead(F: Array) -> Array:
    """The difference between the largest score and the next one."""
    if F.shape[1] == 1:
        return np.abs(F[:, 0])
    best = np.partition(F, -2, axis=1)
    lead: Array = best[:, -1] - best[:, -2]
    return lead


@dataclass(frozen=True)
class SinglePrecision:
    """Predictors in single precision, with the columns for a bound on their error."""

    predictors: GlobalPredictors
    columns: Array  # (s, K (d + 1) + 6), padded: the table of the predictors, and the columns of the bound
    unit: float  # divisor of the columns
    lost: tuple[
        float, float
    ]  # contribution of tiny bumps and coefficients to the error: a factor of |x|, and a constant
    block_rows: int

    def decide(self, X: Array) -> tuple[Array, Array]:
        """f (rows, K), and a bound on its error (rows,)."""
        _, K, width = self.predictors.table.shape
        Z = self.predictors.relative(X)
        sums = self.predictors.bumps(Z) @ self.columns
        F = np.einsum("ikd,id->ik", sums[:, : K * width].reshape(len(Z), K, width), Z)
        squared = np.einsum("ij,ij->i", Z[:, :-1], Z[:, :-1])
        w, l, wg, lg, wc, lc = sums[:, K * width : K * width + 6].T
        length = np.sqrt(squared)
        bound = _SUMS * (length * w + l) + _DISTANCE * (squared * (length * wg + lg) + length * wc + lc)
        error = _UNIT * bound.astype(np.float64) + self.lost[0] * length + self.lost[1]
        return self.unit * F.astype(np.float64), self.unit * error


def single_precision(model: Model) -> SinglePrecision | None:
    """The single-precision form, for global gaussian kernels only: other maps are steep near an anchor, or have no
    relative precision at the end of their support."""
    d = model.anchors.shape[1]
    if model.family.componentwise or model.family.map != "gaussian":
        return None
    blocks = plan_blocks(model.n_kernels, model.preprocessor.width, d, componentwise=False, itemsize=4)
    if blocks.kernels < model.n_kernels:
        return None
    unit = max(np.abs(model.coef).max(), np.abs(model.local_coef).max()) or 1.0
    coef, local_coef = model.coef / unit, model.local_coef / unit
    predictors = GlobalPredictors.of("gaussian", model.anchors, model.gammas, coef, local_coef, dtype=np.float32)
    w = np.linalg.norm(predictors.table[:, :, :-1], axis=2).max(axis=1)
    l = np.abs(predictors.table[:, :, -1]).max(axis=1)
    g, c = predictors.gammas, np.einsum("ij,ij->i", predictors.anchors, predictors.anchors)
    flat = predictors.table.reshape(model.n_kernels, -1)
    columns = np.concatenate([flat, np.stack([w, l, w * g, l * g, w * g * c, l * g * c], axis=1)], axis=1)
    columns = np.pad(columns, ((0, 0), (0, filled_up(columns.shape[1]) - columns.shape[1])))
    lost = _LOST * float(w.sum() + len(w)), _LOST * float(l.sum() + len(l))
    return SinglePrecision(predictors, np.ascontiguousarray(columns, np.float32), unit, lost, blocks.rows)
