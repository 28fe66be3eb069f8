"""Karhunen-Loeve transform (principal components), fitted in one pass over the scaled chunks.

x -> components (x - mean),   rows of components: eigenvectors of the covariance, largest variance first

A linear map that is learned afterwards is folded into the components, which are then any matrix.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.executor import Executor
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.preparation.moments import gather_moments
from mllkm_scale.data.preparation.scaling import Scaling
from mllkm_scale.errors import ParameterError

__all__ = ["Projection", "fit_projection"]


@dataclass(frozen=True, eq=False)
class Projection:
    """A fitted projection.

    Attributes
    ----------
    mean : float64 array of shape (d,)
        Mean of the scaled data.
    components : float64 array of shape (p, d)
        Orthonormal rows; the entry of largest absolute value is positive in each.
    variances : float64 array of shape (p,)
        Variance (divided by n) of the data along each component. After `mapped`, the variance for uncorrelated columns.
    whiten : bool
        Whether the output is divided by its standard deviation; components without variance are left alone.
    orthonormal : bool
        False if a map was folded in; then the rows of `components` need not be orthonormal.
    """

    mean: NDArray[np.float64]
    components: NDArray[np.float64]
    variances: NDArray[np.float64]
    whiten: bool
    orthonormal: bool = True

    @classmethod
    def of_matrix(cls, matrix: NDArray[np.float64]) -> Projection:
        """The map x -> matrix x, for columns of x with unit variance."""
        variances = np.einsum("pd,pd->p", matrix, matrix)
        return cls(np.zeros(matrix.shape[1]), np.ascontiguousarray(matrix), variances, whiten=False, orthonormal=False)

    def apply(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Projected rows; their last bits depend on the number of rows in the call."""
        projected: NDArray[np.float64] = (X - self.mean) @ self.components.T
        if self.whiten:
            projected /= self.deviations
        return projected

    def invert(self, Z: NDArray[np.float64]) -> NDArray[np.float64]:
        """The rows nearest to the mean among those that are projected to Z."""
        if not self.orthonormal:
            return Z @ np.linalg.pinv(self.matrix).T + self.mean
        weighted = Z * self.deviations if self.whiten else Z
        rows: NDArray[np.float64] = weighted @ self.components + self.mean
        return rows

    @property
    def matrix(self) -> NDArray[np.float64]:
        """The matrix (p, d) by which a centred row is multiplied, including whitening."""
        return self.components / self.deviations[:, None] if self.whiten else self.components

    def mapped(self, matrix: NDArray[np.float64]) -> Projection:
        """The projection whose output is the matrix (r, p) times the output of this one."""
        variances = self.variances / self.deviations**2 if self.whiten else self.variances
        folded = np.ascontiguousarray(matrix @ self.matrix)
        return Projection(self.mean, folded, matrix**2 @ variances, whiten=False, orthonormal=False)

    def scaled(self, factors: NDArray[np.float64], keep: NDArray[np.bool_]) -> Projection:
        """The projection to the kept components, multiplied by their factors."""
        variances = self.variances / self.deviations**2 if self.whiten else self.variances
        folded = np.ascontiguousarray(self.matrix[keep] * factors[keep, None])
        return Projection(self.mean, folded, variances[keep] * factors[keep] ** 2, whiten=False, orthonormal=False)

    @property
    def deviations(self) -> NDArray[np.float64]:
        """Divisor of each component in whitening, shape (p,)."""
        rounding = len(self.mean) * np.finfo(np.float64).eps * self.variances.max()
        return np.where(self.variances > rounding, np.sqrt(self.variances), 1.0)


def fit_projection(
    dataset: Dataset,
    scaling: Scaling,
    n_components: int | float,
    whiten: bool = False,
    executor: Executor | None = None,
) -> Projection:
    """Fit the principal components of the scaled data in one pass by the executor.

    Parameters
    ----------
    dataset : Dataset
    scaling : Scaling
        Applied to every chunk first.
    n_components : int or float
        Number of components, 1 to d; or the share of variance to keep, between 0 and 1, both excluded.
    whiten : bool
        Divide each component by its standard deviation.

    Examples
    --------
    >>> from mllkm_scale.data.preparation.scaling import fit_scaling
    >>> data = Dataset.from_arrays([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
    >>> projection = fit_projection(data, fit_scaling(data, "none"), n_components=1)
    >>> projection.components.round(6).tolist()
    [[0.6, 0.8]]
    """
    _require_components(n_components, scaling.n_columns, dataset.name)
    # The bits of a product depend on the number of BLAS threads.
    with one_blas_thread():
        moments = gather_moments(dataset, scaling.apply, cross=True, executor=executor, width=scaling.n_columns)
        variances, vectors = np.linalg.eigh(moments.deviations / moments.count)
    variances = np.maximum(variances[::-1], 0.0)
    if isinstance(n_components, numbers.Integral):
        kept = int(n_components)
    else:
        gathered = np.cumsum(variances)
        kept = min(int(np.searchsorted(gathered, n_components * gathered[-1])) + 1, scaling.n_columns)
    components = np.ascontiguousarray(vectors.T[::-1][:kept])
    peaks = components[np.arange(kept), np.argmax(np.abs(components), axis=1)]
    components[peaks < 0] *= -1.0
    return Projection(moments.mean, components, variances[:kept].copy(), bool(whiten))


def _require_components(n_components: int | float, n_columns: int, name: str) -> None:
    whole = isinstance(n_components, numbers.Integral) and not isinstance(n_components, bool)
    share = isinstance(n_components, numbers.Real) and not isinstance(n_components, numbers.Integral)
    if not (whole and 1 <= n_components <= n_columns) and not (share and 0 < n_components < 1):
        raise ParameterError(
            f"n_components must be an integer from 1 to {n_columns} (the features of {name})"
            f" or a share of variance between 0 and 1, not {n_components!r}"
        )
