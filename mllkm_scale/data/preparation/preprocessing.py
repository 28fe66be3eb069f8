"""Scaling and projection as one step, part of the model: fitted in streaming passes, saved with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from mllkm_scale.base.executor import Executor
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.grid import work_dtype
from mllkm_scale.data.preparation.projection import Projection, fit_projection
from mllkm_scale.data.preparation.quantiles import Quantiles
from mllkm_scale.data.preparation.scaling import QUANTILE_SCALINGS, SCALINGS, Scaling, fit_scaling
from mllkm_scale.errors import DataError, ModelFileError, ParameterError

__all__ = ["Preprocessor"]


@dataclass(frozen=True, eq=False)
class Preprocessor:
    """The preparation of a row for the kernels: a scaling, optionally followed by a projection.

    Examples
    --------
    >>> data = Dataset.from_arrays([[0.0, 1.0], [2.0, 1.0], [4.0, 4.0]])
    >>> preprocessor = Preprocessor.fit(data, scaling="minmax")
    >>> preprocessor.transform(data.chunk(0)).tolist()
    [[0.0, 0.0], [0.5, 0.0], [1.0, 1.0]]
    """

    scaling: Scaling
    projection: Projection | None = None

    @classmethod
    def fit(
        cls,
        dataset: Dataset,
        scaling: str = "standard",
        n_components: int | float | None = None,
        whiten: bool = False,
        executor: Executor | None = None,
        indicators: NDArray[np.bool_] | None = None,
        features: NDArray[np.int64] | None = None,
    ) -> Preprocessor:
        """Fit in one or two passes for the scaling and one for the projection.

        Parameters
        ----------
        dataset : Dataset
        scaling : {"none", "standard", "minmax", "unit-norm", "quantile", "standard+quantile", "auto"}
        n_components : int or float, optional
            Components to keep, or share of variance; None for no projection.
        whiten : bool
            Divide each component by its standard deviation.
        executor : Executor, optional
            Runs the passes.
        indicators : array of bool, optional
            Features that are 0 or 1; by default those that the data set names. See `fit_scaling`.
        features : array of int, optional
            Indices of the features that are used; by default all.
        """
        scaled = fit_scaling(dataset, scaling, executor, dataset.indicators if indicators is None else indicators)
        if features is not None:
            made_of = np.array([scaled.feature(column) for column in range(scaled.n_columns)])
            scaled = scaled.scaled(np.ones(scaled.n_columns), np.isin(made_of, features))
        projection = None if n_components is None else fit_projection(dataset, scaled, n_components, whiten, executor)
        return cls(scaled, projection)

    @property
    def n_features_in(self) -> int:
        """Number of input features."""
        return self.scaling.n_features_in

    @property
    def n_columns(self) -> int:
        """Number of columns after scaling, before projection."""
        return self.scaling.n_columns

    @property
    def width(self) -> int:
        """The larger number of features before and after scaling, which determines the size of blocks."""
        return max(self.n_features_in, self.n_columns)

    @property
    def n_features_out(self) -> int:
        """Number of output features."""
        return self.n_columns if self.projection is None else len(self.projection.variances)

    @property
    def n_lookups(self) -> int:
        """Number of quantile columns."""
        return int(self.scaling.mapped.sum())

    @property
    def is_plain(self) -> bool:
        """Whether it is a plain scaling with or without principal components, which files of version 1 can hold."""
        return self.scaling.columns is None and (self.projection is None or self.projection.orthonormal)

    @property
    def invertible(self) -> bool:
        """Whether `invert` is exact: it finds a row that is prepared to the given one."""
        projection = self.projection
        if projection is None or projection.orthonormal:
            return self.scaling.one_to_one
        matrix = projection.components
        return self.scaling.one_to_one and int(np.linalg.matrix_rank(matrix)) == len(matrix)

    def transform(self, X: NDArray[Any], dtype: DTypeLike | None = None) -> NDArray[Any]:
        """Prepared rows, C-contiguous.

        Computed in float64, and returned as `dtype`; by default as float32 if float32 holds the type of X exactly, and
        otherwise as float64. With a projection, the last bits depend on the rows of the call and on the threads of
        BLAS.
        """
        if X.ndim != 2 or X.shape[1] != self.n_features_in:
            raise DataError(f"X has shape {X.shape}: the model was trained with {self.n_features_in} features per row")
        values = self.scaling.apply(X)
        if self.projection is not None:
            values = self.projection.apply(values)
        return np.ascontiguousarray(values, dtype=work_dtype(X.dtype) if dtype is None else dtype)

    def invert(self, Z: NDArray[Any]) -> NDArray[np.float64]:
        """Prepared rows in the units of the data, as far as these can be recovered.

        Directions that a projection has left out get the values of the mean, and norms that unit-norm scaling has
        removed stay one.

        >>> data = Dataset.from_arrays([[0.0, 1.0], [2.0, 1.0], [4.0, 4.0]])
        >>> preprocessor = Preprocessor.fit(data, "minmax")
        >>> preprocessor.invert(preprocessor.transform(data.chunk(0))).tolist()
        [[0.0, 1.0], [2.0, 1.0], [4.0, 4.0]]
        """
        values = np.asarray(Z, dtype=np.float64)
        return self.scaling.invert(values if self.projection is None else self.projection.invert(values))

    def scaled(self, factors: ArrayLike, keep: ArrayLike | None = None) -> Preprocessor:
        """The preparation with the kept output columns of this one, multiplied by factors.

        Without a projection it reads only the features of its columns, and costs no more than this one.

        Parameters
        ----------
        factors : array-like of shape (p,)
            Positive numbers, one for each feature of a row after.
        keep : array-like of bool of shape (p,), optional
            Which of them stay; by default all.

        Examples
        --------
        >>> data = Dataset.from_arrays([[0.0, 1.0], [2.0, 1.0], [4.0, 4.0]])
        >>> preprocessor = Preprocessor.fit(data, "minmax").scaled([10.0, 1.0], [True, False])
        >>> preprocessor.transform(data.chunk(0)).tolist()
        [[0.0], [5.0], [10.0]]
        """
        p = self.n_features_out
        sizes = np.asarray(factors, dtype=np.float64)
        kept = np.ones(p, dtype=bool) if keep is None else np.asarray(keep)
        if sizes.shape != (p,) or not (np.isfinite(sizes) & (sizes > 0)).all():
            raise ParameterError(f"factors have shape {sizes.shape}: give {p} positive numbers, one for each column")
        if kept.shape != (p,) or kept.dtype.kind != "b" or not kept.any():
            raise ParameterError(
                f"keep has shape {kept.shape} and type {kept.dtype}: give {p} booleans, one for each column, of which"
                " at least one is true"
            )
        if self.projection is None:
            return Preprocessor(self.scaling.scaled(sizes, kept))
        return Preprocessor(self.scaling, self.projection.scaled(sizes, kept))

    def mapped(self, matrix: ArrayLike) -> Preprocessor:
        """The preparation whose output is a matrix (r, p) times the output of this one.

        Examples
        --------
        >>> data = Dataset.from_arrays([[0.0, 1.0], [2.0, 1.0], [4.0, 4.0]])
        >>> preprocessor = Preprocessor.fit(data, "minmax").mapped([[1.0, 1.0]])
        >>> preprocessor.transform(data.chunk(0)).tolist()
        [[0.0], [0.5], [2.0]]
        """
        p = self.n_features_out
        values = np.asarray(matrix, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != p or not len(values) or not np.isfinite(values).all():
            raise ParameterError(f"matrix has shape {values.shape}: give rows of {p} finite numbers")
        projection = Projection.of_matrix(values) if self.projection is None else self.projection.mapped(values)
        return Preprocessor(self.scaling, projection)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The preprocessor as plain arrays, for a model file."""
        arrays: dict[str, NDArray[Any]] = {
            "scaling_kind": np.array(self.scaling.kind),
            "scaling_offset": self.scaling.offset,
            "scaling_factor": self.scaling.factor,
        }
        if self.scaling.columns is not None and self.scaling.centres is not None:
            arrays["scaling_columns"] = self.scaling.columns
            arrays["scaling_centres"] = self.scaling.centres
        if self.scaling.quantiles is not None:
            arrays["quantile_starts"] = self.scaling.quantiles.starts
            arrays["quantile_values"] = self.scaling.quantiles.values
            arrays["quantile_levels"] = self.scaling.quantiles.levels
        if self.projection is not None:
            arrays["projection_mean"] = self.projection.mean
            arrays["projection_components"] = self.projection.components
            arrays["projection_variances"] = self.projection.variances
            arrays["projection_whiten"] = np.array(self.projection.whiten)
            if not self.projection.orthonormal:
                arrays["projection_orthonormal"] = np.array(False)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Preprocessor:
        """The preprocessor that `to_arrays` was called on, bit for bit."""
        scaling = _scaling(arrays)
        if not any(key.startswith("projection_") for key in arrays):
            return cls(scaling)
        variances = _get(arrays, "projection_variances", "f", (None,))
        projection = Projection(
            mean=_get(arrays, "projection_mean", "f", scaling.offset.shape),
            components=_get(arrays, "projection_components", "f", variances.shape + scaling.offset.shape),
            variances=variances,
            whiten=bool(_get(arrays, "projection_whiten", "b", ())),
            orthonormal="projection_orthonormal" not in arrays or bool(_get(arrays, "projection_orthonormal", "b", ())),
        )
        return cls(scaling, projection)


def _scaling(arrays: Mapping[str, NDArray[Any]]) -> Scaling:
    kind = _get(arrays, "scaling_kind", "U", ()).item()
    if kind not in SCALINGS:
        raise ModelFileError(f"scaling_kind is {kind!r}, not one of {', '.join(SCALINGS)}: train again")
    offset = _get(arrays, "scaling_offset", "f", (None,))
    factor = _get(arrays, "scaling_factor", "f", offset.shape)
    if kind not in QUANTILE_SCALINGS and not any(key.startswith(("scaling_c", "quantile_")) for key in arrays):
        return Scaling(kind, offset, factor)
    columns, centres = _get(arrays, "scaling_columns", "i", offset.shape), _get(arrays, "scaling_centres", "f", (None,))
    _require(bool((columns >= 0).all() and (columns < len(centres)).all()), "scaling_columns", "names other features")
    _require(bool((factor != 0).all()), "scaling_factor", "holds zeros")
    quantiles = None
    if any(key.startswith("quantile_") for key in arrays):
        quantiles = _quantiles(arrays, len(offset))
    return Scaling(kind, offset, factor, columns.astype(np.int64), quantiles, centres)


def _quantiles(arrays: Mapping[str, NDArray[Any]], n_columns: int) -> Quantiles:
    starts = _get(arrays, "quantile_starts", "i", (n_columns + 1,)).astype(np.int64)
    values = _get(arrays, "quantile_values", "f", (None,))
    levels = _get(arrays, "quantile_levels", "f", values.shape)
    rises = starts[0] == 0 and starts[-1] == len(values) and bool((np.diff(starts) >= 0).all())
    _require(rises, "quantile_starts", "does not rise from 0 to the number of knots")
    inner = np.setdiff1d(np.arange(1, len(values)), starts)
    _require(bool((values[inner] > values[inner - 1]).all()), "quantile_values", "does not rise within a column")
    _require(bool((levels[inner] >= levels[inner - 1]).all()), "quantile_levels", "falls within a column")
    _require(bool((levels >= 0).all() and (levels <= 1).all()), "quantile_levels", "leaves the range from 0 to 1")
    found = Quantiles(starts, values, levels)
    with np.errstate(over="ignore"):
        steep = not np.isfinite(found.slopes).all()
    _require(not steep, "quantile_values", "has knots too near to one another")
    return found


def _require(fits: bool, key: str, why: str) -> None:
    if not fits:
        raise ModelFileError(f"the model's array {key!r} {why}: the file is damaged; copy or train it again")


def _get(arrays: Mapping[str, NDArray[Any]], key: str, kind: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
    if key not in arrays:
        raise ModelFileError(f"the model has no array {key!r}: the file is damaged; copy or train it again")
    values = np.asarray(arrays[key])
    fits = len(values.shape) == len(shape) and all(
        size > 0 and want in (None, size) for size, want in zip(values.shape, shape, strict=True)
    )
    if not fits or values.dtype.kind != kind or (kind == "f" and not np.isfinite(values).all()):
        raise ModelFileError(
            f"the model's array {key!r} has shape {values.shape} and type {values.dtype}, which does not fit:"
            " the file is damaged; copy or train it again"
        )
    return values.astype(np.float64, copy=False) if kind == "f" else values
