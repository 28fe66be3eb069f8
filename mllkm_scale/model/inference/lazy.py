"""Decisions on collections of dask and xarray, as collections that are computed later.

The model is one node of the graph, on which all blocks depend: a worker receives it once, and keeps it as long as it is
needed. The types of the results are known in advance, so nothing is computed when the collection is made.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.memory import keep_memory
from mllkm_scale.data.collections import as_dask, is_frame_of_dask
from mllkm_scale.errors import DataError
from mllkm_scale.model.files import model_checksum
from mllkm_scale.model.names import warn_of_ignored

if TYPE_CHECKING:
    from mllkm_scale.model.model import Model

__all__ = ["lazily"]

_CALLED = {
    "predict": "label",
    "decision_function": "score",
    "predict_proba": "probability",
    "predict_log_proba": "log_probability",
}


def lazily(model: Model, method: str, X: Any) -> Any:
    """The result of a method of a model on a collection, not yet computed.

    Parameters
    ----------
    model : Model
    method : {"predict", "decision_function", "predict_proba", "predict_log_proba"}
    X : dask array or DataFrame, xarray DataArray or Dataset
        Columns are matched by name if both have names.

    Returns
    -------
    dask array, Series or DataFrame, or xarray DataArray
        For a dask array, a dask array with the same chunks. For a DataFrame, a Series, or a DataFrame with a column for
        each class, with the same partitions and index. For xarray, a DataArray along the same rows.

    Examples
    --------
    >>> import dask.array as da
    >>> from mllkm_scale import MLLKMClassifier
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], ["near", "near", "far", "far"]
    >>> model = MLLKMClassifier().fit(X, y).model_
    >>> labels = lazily(model, "predict", da.from_array(np.array(X), chunks=(3, 1)))
    >>> labels.chunks, labels.dtype.kind, labels.compute().tolist()
    (((3, 1),), 'U', ['near', 'near', 'far', 'far'])
    """
    from dask.delayed import delayed

    if method.endswith("proba"):
        model.require_calibration()
    rows, names = as_dask(X)
    # All results of a model share its node, also in merged graphs.
    shared = delayed(model, name=f"{type(model).__name__}-{model_checksum(model)}", traverse=False)
    if is_frame_of_dask(rows):
        frame: Any = model.features.of_table(rows)
        model.require_features(len(frame.columns), "X")
        return frame.map_partitions(_of_frame, shared, method, meta=_empty_frame(model, method, frame._meta))
    if rows.ndim != 2:
        raise DataError(f"X has shape {rows.shape}: it must have two axes, one row per sample")
    matched = model.features.match(names, "X")
    if matched is not None and not matched.in_place:
        warn_of_ignored(matched)
        rows = rows[:, list(matched.positions)]
    model.require_features(rows.shape[1], "X")
    values = _of_array(model, rows, shared, method)
    return _as_xarray(model, X, values, method) if hasattr(X, "dims") else values


def _width(model: Model, method: str) -> int:
    """Number of columns of the result, 0 for a vector."""
    if method == "predict" or (method == "decision_function" and model.n_machines == 1):
        return 0
    return len(model.classes)


def _dtype(model: Model, method: str) -> np.dtype[Any]:
    return model.classes.dtype if method == "predict" else np.dtype(np.float64)


def _of_array(model: Model, rows: Any, shared: Any, method: str) -> Any:
    width, dtype = _width(model, method), _dtype(model, method)
    if not width:
        return rows.map_blocks(_of_block, shared, method, dtype=dtype, drop_axis=1, meta=np.empty(0, dtype))
    chunks = (rows.chunks[0], (width,))
    return rows.map_blocks(_of_block, shared, method, dtype=dtype, chunks=chunks, meta=np.empty((0, 0), dtype))


def _of_block(block: Any, model: Model, method: str, block_id: tuple[int, ...] = (0,)) -> Array:
    _prepare_worker()
    try:
        values: Array = getattr(model, method)(np.asarray(block))
    except DataError as error:
        raise DataError(f"block {block_id[0]} (0-based): {error}") from None
    return values


def _of_frame(frame: Any, model: Model, method: str, partition_info: dict[str, int] | None = None) -> Any:
    _prepare_worker()
    try:
        values = getattr(model, method)(frame)
    except DataError as error:
        number = "" if partition_info is None else f" {partition_info['number']} (0-based)"
        raise DataError(f"partition{number}: {error}") from None
    return _frame(model, method, frame.index, values)


def _prepare_worker() -> None:
    """Undo the setting of dask workers that returns every freed array to the system, which would take half of the
    time."""
    if "MALLOC_TRIM_THRESHOLD_" in os.environ:
        keep_memory()


def _frame(model: Model, method: str, index: Any, values: Array) -> Any:
    import pandas as pd

    if values.ndim == 1:
        return pd.Series(values, index=index, name=_CALLED[method])
    return pd.DataFrame(values, index=index, columns=model.classes.tolist())


def _empty_frame(model: Model, method: str, meta: Any) -> Any:
    width = _width(model, method)
    return _frame(model, method, meta.index[:0], np.empty((0, width) if width else 0, _dtype(model, method)))


def _as_xarray(model: Model, X: Any, values: Any, method: str) -> Any:
    """Values along the rows of an xarray object, with their coordinates; computed if the values of the object are."""
    row = (next(iter(X.data_vars.values())) if hasattr(X, "data_vars") else X).dims[0]
    coords = {name: coord for name, coord in X.coords.items() if coord.dims == (row,)}
    dims = [row]
    if values.ndim == 2:
        dims, coords = [row, "class"], coords | {"class": model.classes}
    found = sys.modules["xarray"].DataArray(values, dims=dims, coords=coords, name=_CALLED[method])
    return found if X.chunks else found.compute()
