"""Rows of a zarr array in a directory store, or in one that fsspec opens by a URL.

A chunk that is missing on disk is read as the fill value, because zarr does not store chunks that contain only this
value.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from mllkm_scale.base.location import URL, Location
from mllkm_scale.data.sources import one_line, plain_text, require_plain_dtype
from mllkm_scale.errors import DataError, MLLKMError

__all__ = ["ZarrSource", "open_group"]

# zarr reads this many chunks at once, and holds each twice.
CONCURRENT_CHUNKS = 10
METADATA = ("zarr.json", ".zarray", ".zgroup")


class ZarrSource:
    """Rows of one array of a zarr group."""

    def __init__(self, path: Location, dataset: str) -> None:
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
            if isinstance(self.path, URL):
                with self.path.opening():
                    values = np.asarray(self._array[start:stop])
            else:
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
        """Release the array; the next `read` opens it again."""
        self._array = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_array": None}


def open_group(location: Location) -> zarr.Group:
    """The group at a path, or at a URL."""
    if not isinstance(location, URL):
        return _open_group(location, str(location))
    with location.opening():
        return _open_group(location, zarr.storage.FsspecStore.from_url(location.text, read_only=True))


def _open_group(path: Location, store: Any) -> zarr.Group:
    try:
        return zarr.open_group(store, mode="r")
    except zarr.errors.ContainsArrayError:
        raise DataError(
            f"{path} is a zarr array, not a group: open {path.parent} with the data set {path.name!r}"
        ) from None
    except Exception as error:  # of any kind: metadata may contain any JSON
        raise DataError(
            f"{path} is a folder but no zarr group ({one_line(error)}): give an HDF5 file or a zarr group"
        ) from error


def _open_array(path: Location, dataset: str) -> zarr.Array[Any]:
    group = open_group(path)
    parts = [part for part in dataset.split("/") if part]
    node: zarr.Array[Any] | zarr.Group = group
    if ".." not in parts and _is_there(path, group, parts):
        try:
            node = group["/".join(parts)] if parts else group
        except Exception as error:
            raise DataError(
                f"{path.name}:{dataset} cannot be read ({one_line(error)}): its metadata are damaged; copy it again"
            ) from error
    if not isinstance(node, zarr.Array):
        raise DataError(f"{path} has no array {dataset!r}: it has {_listing(group)}; name the one to use")
    return node


def _is_there(path: Location, group: zarr.Group, parts: list[str]) -> bool:
    """Whether a group has a node, even with damaged metadata."""
    if isinstance(path, URL):
        return not parts or "/".join(parts) in group
    return any((path.joinpath(*parts) / name).is_file() for name in METADATA)


def _listing(group: zarr.Group) -> str:
    try:
        return ", ".join(sorted(key for key, _ in group.arrays())) or "no arrays"
    except Exception:  # metadata of another array may be damaged
        return "some that cannot be read"
