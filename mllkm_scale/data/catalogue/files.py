"""Files of data sets, HDF5 and NPZ: the arrays X and y and, for a split, X_test and y_test."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.catalogue.content import Part, fingerprint
from mllkm_scale.data.catalogue.entries import CatalogueEntry
from mllkm_scale.data.converters.writer import HDF5Writer
from mllkm_scale.data.hdf5_source import find_dataset, open_hdf5
from mllkm_scale.data.labels import as_label_vector
from mllkm_scale.data.sources import one_line
from mllkm_scale.errors import DataError

__all__ = ["Data", "read_file", "write_file"]

Array = NDArray[Any]

NAMES = (("X", "y"), ("X_test", "y_test"))


@dataclass(frozen=True, eq=False)
class Data:
    """A data set by name: arrays to train on, to test on where there is a split, and where they are from.

    `path` is the file that holds them, if there is one, and `checksum` that of their content.
    """

    name: str
    X: Array
    y: Array
    X_test: Array | None
    y_test: Array | None
    origin: str
    checksum: str
    path: Path | None = None

    @classmethod
    def of(cls, name: str, parts: tuple[Part, ...], origin: str, checksum: str, path: Path | None = None) -> Self:
        """The data set of one part, or of two."""
        X_test, y_test = parts[1] if len(parts) == 2 else (None, None)
        return cls(name, *parts[0], X_test, y_test, origin, checksum, path)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Samples and labels of the training rows and, if there are any, of the test rows."""
        train = (self.X, self.y)
        return (train,) if self.X_test is None or self.y_test is None else (train, (self.X_test, self.y_test))


def read_file(entry: CatalogueEntry, path: Path, origin: str) -> Data:
    """Arrays of a file, X_test and y_test if it has both; `origin` is what it is said to be from unless it says so."""
    arrays, source = (_read_npz(path), None) if path.suffix == ".npz" else _read_hdf5(path)
    missing = [name for name in NAMES[0] if name not in arrays]
    if missing:
        raise DataError(f"{path} has no array {missing[0]}: store X and y, and X_test and y_test if there is a split")
    parts = tuple(
        (arrays[x], as_label_vector(arrays[y], f"{path.name}:{y}")) for x, y in NAMES if x in arrays and y in arrays
    )
    for X, y in parts:
        if X.ndim != 2 or y.shape != X.shape[:1]:
            raise DataError(f"{path} has samples of shape {X.shape} and labels of shape {y.shape}: label every row")
    # Labels that are text or samples that are none of numbers are nothing that the catalogue knows.
    comparable = all(X.dtype.kind in "fiub" and y.dtype.kind in "iub" for X, y in parts)
    checksum = fingerprint(parts, entry.decimals).content if comparable else ""
    return Data.of(entry.name, parts, source or origin, checksum, path)


def _read_npz(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            names = [name for pair in NAMES for name in pair if name in stored.files]
            return {name: stored[name] for name in names}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read ({one_line(error)}): copy it again") from error


def _read_hdf5(path: Path) -> tuple[dict[str, Array], str | None]:
    """Arrays, and the source that the file names."""
    with open_hdf5(path) as file:
        try:
            there = set(file)
            arrays = {name: find_dataset(file, name, path)[...] for pair in NAMES for name in pair if name in there}
            source = file.attrs.get("source")
        except (OSError, RuntimeError, KeyError) as error:
            raise DataError(f"{path} cannot be read ({one_line(error)}): copy it again") from error
    return arrays, source if isinstance(source, str) else None


def write_file(entry: CatalogueEntry, target: Path, data: Data) -> Data:
    """Write the HDF5 file, whole or not at all; a file of that name is replaced."""
    with HDF5Writer(target, overwrite=True) as writer:
        for (samples_name, labels_name), (X, y) in zip(NAMES, data.parts, strict=False):
            writer.append(samples_name, X)
            writer.append_labels(labels_name, y)
        writer.write_attributes(name=data.name, title=entry.title, source=data.origin, checksum=data.checksum)
    return replace(data, path=target)
