"""Rows of a zarr array in a directory store.

A chunk that is missing on disk reads as the fill value, as zarr defines it: zarr does not store chunks that
hold nothing else.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from mllkm_scale.data.sources import one_line, plain_text, require_plain_dtype
from mllkm_scale.errors import DataError, MLLKMError

__all__ = ["ZarrSource"]

# zarr reads this many chunks at once, and holds each twice.
CONCURRENT_CHUNKS = 10
METADATA = ("zarr.json", ".zarray", ".zgroup")


class ZarrSource:
    """Rows of one array of a zarr group."""

    def __init__(self, path: Path, dataset: str) -> None:
        self.path = path
        self.dataset = dataset
        self.name = f"{path.name}:{dataset}"
        self._array: zarr.Array[Any] | None = _open_array(path, dataset)
        self.shape: tuple[int, ...] = self._array.shape
        stored = np.dtype(self._array.dtype)
        require_plain_dtype(stored, self.name)
        self.dtype: np.dtype[Any] = np.dtype(np.str_) if stored.kind in "UST" else stored
        chunk_shape = self._array.shards or self._array.chunks
        chunk_bytes = math.prod(chunk_shape) * stored.itemsize
        self.item_bytes = stored.itemsize
        self.buffer_bytes = 2 * CONCURRENT_CHUNKS * chunk_bytes

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop`; text is decoded."""
        if self._array is None:
            array = _open_array(self.path, self.dataset)
            if array.shape != self.shape:
                raise DataError(f"{self.name} has changed since it was opened: open it again")
            self._array = array
        try:
            values = np.asarray(self._array[start:stop])
        except MLLKMError:
            raise
        except Exception as error:
            raise DataError(
                f"{self.name}: rows {start} to {stop - 1} cannot be read ({one_line(error)}): the store is"
                " damaged; copy or make it again"
            ) from error
        return plain_text(values, self.name, first_row=start)

    def close(self) -> None:
        """Forget the array; the next `read` opens it again."""
        self._array = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_array": None}


def _open_array(path: Path, dataset: str) -> zarr.Array[Any]:
    try:
        group = zarr.open_group(str(path), mode="r")
    except zarr.errors.ContainsArrayError:
        raise DataError(
            f"{path} is a zarr array, not a group: open {path.parent} with the data set {path.name!r}"
        ) from None
    except Exception as error:  # of whatever kind: metadata may hold any JSON
        raise DataError(
            f"{path} is a folder but no zarr group ({one_line(error)}): give an HDF5 file or a zarr group"
        ) from error
    parts = [part for part in dataset.split("/") if part]
    found = path.joinpath(*parts)
    node: zarr.Array[Any] | zarr.Group = group
    if ".." not in parts and any((found / name).is_file() for name in METADATA):
        try:
            node = group["/".join(parts)] if parts else group
        except Exception as error:
            raise DataError(
                f"{path.name}:{dataset} cannot be read ({one_line(error)}): its metadata are damaged; copy it again"
            ) from error
    if not isinstance(node, zarr.Array):
        raise DataError(f"{path} has no array {dataset!r}: it has {_listing(group)}; name the one to use")
    return node


def _listing(group: zarr.Group) -> str:
    try:
        return ", ".join(sorted(key for key, _ in group.arrays())) or "no arrays"
    except Exception:  # of the metadata of another array
        return "some that cannot be read"
