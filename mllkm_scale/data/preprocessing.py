"""Scaling and projection as one step, part of the model: fitted in streaming passes, saved with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mllkm_scale.crew import Crew
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.grid import work_dtype
from mllkm_scale.data.projection import Projection, fit_projection
from mllkm_scale.data.scaling import SCALINGS, Scaling, fit_scaling
from mllkm_scale.errors import DataError, ModelFileError

__all__ = ["Preprocessor"]


@dataclass(frozen=True, eq=False)
class Preprocessor:
    """What happens to a row before any kernel sees it: a scaling, then a projection or none.

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
        crew: Crew | None = None,
    ) -> Preprocessor:
        """Fit in one pass for the scaling and one for the projection.

        Parameters
        ----------
        dataset : Dataset
        scaling : {"none", "standard", "minmax", "unit-norm"}
        n_components : int or float, optional
            Components to keep, or share of variance; None for no projection.
        whiten : bool
            Divide each component by its standard deviation.
        crew : Crew, optional
            Who does the passes.
        """
        scaled = fit_scaling(dataset, scaling, crew)
        projection = None if n_components is None else fit_projection(dataset, scaled, n_components, whiten, crew)
        return cls(scaled, projection)

    @property
    def n_features_in(self) -> int:
        """Features of a row before."""
        return len(self.scaling.offset)

    @property
    def n_features_out(self) -> int:
        """Features of a row after."""
        return self.n_features_in if self.projection is None else len(self.projection.variances)

    def transform(self, X: NDArray[Any], dtype: DTypeLike | None = None) -> NDArray[Any]:
        """Rows as the kernels see them, C-contiguous.

        Computed in float64, and returned as float32 if X is of a type that float32 holds exactly (float64 if
        not), or as `dtype`. With a projection, the last bits depend on the rows given at once and on the
        threads of BLAS.
        """
        if X.ndim != 2 or X.shape[1] != self.n_features_in:
            raise DataError(f"X has shape {X.shape}: the model was trained with {self.n_features_in} features per row")
        values = self.scaling.apply(X)
        if self.projection is not None:
            values = self.projection.apply(values)
        return np.ascontiguousarray(values, dtype=work_dtype(X.dtype) if dtype is None else dtype)

    def invert(self, Z: NDArray[Any]) -> NDArray[np.float64]:
        """Rows as the kernels see them, back in the units of the data, as far as it can be told.

        What a projection has left out is that of the mean, and unit-norm scaling keeps no norms.

        >>> data = Dataset.from_arrays([[0.0, 1.0], [2.0, 1.0], [4.0, 4.0]])
        >>> preprocessor = Preprocessor.fit(data, "minmax")
        >>> preprocessor.invert(preprocessor.transform(data.chunk(0))).tolist()
        [[0.0, 1.0], [2.0, 1.0], [4.0, 4.0]]
        """
        values = np.asarray(Z, dtype=np.float64)
        return self.scaling.invert(values if self.projection is None else self.projection.invert(values))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All of it as plain arrays, for a model file."""
        arrays: dict[str, NDArray[Any]] = {
            "scaling_kind": np.array(self.scaling.kind),
            "scaling_offset": self.scaling.offset,
            "scaling_factor": self.scaling.factor,
        }
        if self.projection is not None:
            arrays["projection_mean"] = self.projection.mean
            arrays["projection_components"] = self.projection.components
            arrays["projection_variances"] = self.projection.variances
            arrays["projection_whiten"] = np.array(self.projection.whiten)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Preprocessor:
        """The preprocessor that `to_arrays` was called on, bit for bit."""
        kind = _get(arrays, "scaling_kind", "U", ())
        if kind.item() not in SCALINGS:
            raise ModelFileError(f"scaling_kind is {kind.item()!r}, not one of {', '.join(SCALINGS)}: train again")
        offset = _get(arrays, "scaling_offset", "f", (None,))
        scaling = Scaling(kind.item(), offset, _get(arrays, "scaling_factor", "f", offset.shape))
        if not any(key.startswith("projection_") for key in arrays):
            return cls(scaling)
        variances = _get(arrays, "projection_variances", "f", (None,))
        projection = Projection(
            mean=_get(arrays, "projection_mean", "f", offset.shape),
            components=_get(arrays, "projection_components", "f", variances.shape + offset.shape),
            variances=variances,
            whiten=bool(_get(arrays, "projection_whiten", "b", ())),
        )
        return cls(scaling, projection)


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
