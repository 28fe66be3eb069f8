"""A summary of the training rows in a model: their distribution, and the importances of the features.

    I_j = mean over rows of | sum over columns c of feature j of sd_c df/du_c |,    divided by its sum over all features

u is a row after scaling, before projection, df/du the gradient of the scores there, and sd_c the standard deviation of
column c. So I_j is the change of the scores when a feature changes by its own spread. The learned scale of a column is
in both factors, and cancels only if the kernels do not use it. |.| is the absolute value for two classes. For more
classes it is the norm over the classes after subtracting their mean, because an equal change of all scores has no
effect on the prediction. With a projection, u is the row nearest to the mean that is projected to z; directions that
are projected away have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.distances import squared_distances
from mllkm_scale.kernels.maps import bump_slopes, bumps
from mllkm_scale.model.tables.shapes import Shapes

if TYPE_CHECKING:
    from mllkm_scale.model.model import Model

__all__ = ["LEVELS", "Profile", "gradients", "importances"]

LEVELS = 33
"""Number of quantiles of a column in a profile, including the smallest and the largest value."""

PROFILE_ARRAYS = ("profile_quantiles", "profile_importances")
_BLOCK_BYTES = 8 << 20  # of the gradients and bumps of a block of rows
_SUM = 1e-6  # allowed difference of the sum of importances from one


@dataclass(frozen=True, eq=False)
class Profile:
    """A profile of the training rows, or of a sample of them.

    Attributes
    ----------
    quantiles : array (p, `LEVELS`)
        Quantiles of each prepared feature, at evenly spaced levels from 0 to 1.
    importances : array (f,)
        Importances of the features before scaling; they sum to one, or are all zero if no feature changes the scores.
    """

    quantiles: Array
    importances: Array

    @classmethod
    def of(cls, model: Model, Z: Array) -> Self:
        """The profile of prepared rows (n, p)."""
        levels = np.linspace(0.0, 1.0, LEVELS)
        quantiles = np.empty((Z.shape[1], LEVELS))
        step = max(
            1, _BLOCK_BYTES // (8 * (len(Z) + 6 * LEVELS))
        )  # NumPy makes several temporary arrays of the size of the result
        for start in range(0, Z.shape[1], step):
            columns = slice(start, start + step)
            quantiles[columns] = np.quantile(Z[:, columns], levels, axis=0).T
        return cls(quantiles, importances(model, Z))

    def shares(self, feature: int, edges: Array) -> Array:
        """Approximate share of the rows between these increasing edges of a feature, (edges - 1,)."""
        below = np.interp(edges, self.quantiles[feature], np.linspace(0.0, 1.0, LEVELS), left=0.0, right=1.0)
        return np.diff(below)

    def require_sizes(self, n_prepared: int, n_features: int) -> None:
        """Refuse a profile that does not fit these numbers of features."""
        problem = ""
        if self.quantiles.shape != (n_prepared, LEVELS) or self.importances.shape != (n_features,):
            problem = f"has shapes {self.quantiles.shape} and {self.importances.shape}"
        elif not (np.isfinite(self.quantiles).all() and (np.diff(self.quantiles, axis=1) >= 0).all()):
            problem = "has quantiles that do not rise"
        elif not (self.importances >= 0).all() or min(abs(self.importances.sum() - one) for one in (0.0, 1.0)) > _SUM:
            problem = "has importances that do not sum to one"
        if problem:
            raise ParameterError(f"the profile of the training rows {problem}: train again")

    def to_arrays(self) -> dict[str, Array]:
        """The profile as plain arrays, for a model file."""
        return dict(zip(PROFILE_ARRAYS, (self.quantiles, self.importances), strict=True))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self | None:
        """The profile that `to_arrays` was called on; None if a file has none."""
        found = [np.asarray(arrays[name]) for name in PROFILE_ARRAYS if name in arrays]
        if not found:
            return None
        if len(found) != len(PROFILE_ARRAYS) or any(values.dtype.kind != "f" for values in found):
            raise ParameterError("the profile of the training rows has other arrays: train again")
        return cls(*(values.astype(np.float64) for values in found))


def importances(model: Model, Z: Array) -> Array:
    """I (f,) over prepared rows (n, p), for a model of rows of numbers."""
    scaling, projection = model.preprocessor.scaling, model.preprocessor.projection
    spread = (Z if projection is None else projection.invert(Z)).std(axis=0)
    columns = np.arange(scaling.n_columns) if scaling.columns is None else scaling.columns
    total = np.zeros(scaling.n_features_in)
    with one_blas_thread():
        for rows in _blocks(model, len(Z)):
            moves = gradients(model, Z[rows])
            if projection is not None:
                moves = moves @ projection.matrix
            if model.n_machines > 1:
                moves -= moves.mean(axis=1, keepdims=True)
            of_features = np.zeros((len(total), *moves.shape[:2]))
            np.add.at(of_features, columns, (moves * spread).transpose(2, 0, 1))
            total += np.sqrt(np.square(of_features).sum(axis=2)).sum(axis=1)
    return total / (total.sum() or 1.0)


def _blocks(model: Model, n_rows: int) -> list[slice]:
    widest = max(model.n_kernels, model.n_machines * model.preprocessor.width)
    height = max(1, _BLOCK_BYTES // (8 * widest))
    return [slice(start, start + height) for start in range(0, n_rows, height)]


def gradients(model: Model, Z: Array) -> Array:
    """df_k/dz of prepared rows (n, p), shape (n, K, p).

    global:          sum_m h_m w_km + (h'_m / t_m) (<z - c_m, w_km> + l_km) (z - c_m),    t_m = |z - c_m|
    component-wise:  f'_kl(z_l)
    """
    found = np.empty((len(Z), model.n_machines, Z.shape[1]))
    if model.family.componentwise:
        for l in range(Z.shape[1]):
            found[:, :, l] = Shapes.of(model, l).derivatives(Z[:, l])
        return found
    anchors = model.anchors - model.anchors.mean(axis=0)  # centred, so that products lose the fewest digits
    rows = Z - model.anchors.mean(axis=0)
    D = squared_distances(rows, anchors)
    falls = bump_slopes(model.family.map, D, model.gammas)
    H = bumps(model.family.map, D, model.gammas, out=D)
    for k, (coef, local) in enumerate(zip(model.coef, model.local_coef, strict=True)):
        pulls = falls * (rows @ coef.T + (local - np.einsum("sd,sd->s", anchors, coef)))
        found[:, k] = H @ coef + pulls.sum(axis=1)[:, None] * rows - pulls @ anchors
    return found
