"""Stored information on the columns of samples: names of features, and kinds and levels of the columns of a table.

Both are arrays in the group of the samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mllkm_scale.base.location import Location
from mllkm_scale.data.sources import Source
from mllkm_scale.data.tables.columns import COLUMN_ARRAYS, MAX_ALL_LEVELS, Columns
from mllkm_scale.errors import DataError

__all__ = ["FEATURE_NAMES", "stored_columns", "stored_names"]

FEATURE_NAMES = "feature_names"
"""Name of the array with the names of the features."""


def stored_names(kind: Callable[[Any, str], Source], path: Location, x: str, n_features: int) -> tuple[str, ...] | None:
    """The names in the data set `feature_names` beside x, if there is one for each feature."""
    group, _, _ = x.rstrip("/").rpartition("/")
    try:
        source = kind(path, f"{group}/{FEATURE_NAMES}" if group else FEATURE_NAMES)
        try:
            fits = source.shape == (n_features,) and source.dtype.kind == "U"
            return tuple(source.read(0, n_features).tolist()) if fits else None
        finally:
            source.close()
    except DataError:  # if it is missing or cannot be read, the features have no names
        return None


def stored_columns(kind: Callable[[Any, str], Source], path: Location, x: str, d: int, called: str) -> Columns | None:
    """The columns described by the arrays beside x, if they exist; inconsistent arrays are refused."""
    group, _, _ = x.rstrip("/").rpartition("/")
    arrays = {}
    most = dict(zip(COLUMN_ARRAYS, (d, MAX_ALL_LEVELS, d + 1), strict=True))
    for name in COLUMN_ARRAYS:
        try:
            source = kind(path, f"{group}/{name}" if group else name)
        except DataError:
            if name == COLUMN_ARRAYS[0]:
                return None
            raise
        try:
            if len(source.shape) != 1 or source.shape[0] > most[name]:
                raise DataError(
                    f"{source.name} has shape {source.shape}, which does not fit {d} features: convert the table again"
                )
            arrays[name] = source.read(0, source.shape[0])
        finally:
            source.close()
    if len(arrays[COLUMN_ARRAYS[0]]) != d:
        raise DataError(
            f"{called} has {d} features, but kinds of {len(arrays[COLUMN_ARRAYS[0]])} columns stand beside it:"
            " convert the table again"
        )
    return Columns.from_arrays(arrays, stored_names(kind, path, x, d), called)
