"""Where data sets of the catalogue are kept, and how they are had by name.

The folder MLLKM_DATA comes first: NAME.npz or NAME.h5 there is the user's, and is used as it is. Then the cache
(XDG_CACHE_HOME or ~/.cache), whose files are verified when they are read; then the routes of the catalogue. Files
hold the arrays X and y and, where a split is part of the data set, X_test and y_test.
"""

from __future__ import annotations

import os
import warnings
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.catalogue.content import Part, fingerprint
from mllkm_scale.data.catalogue.entries import CatalogueEntry, find
from mllkm_scale.data.catalogue.fetching import Notice, download
from mllkm_scale.data.converters.writer import HDF5Writer
from mllkm_scale.data.hdf5_source import find_dataset, open_hdf5
from mllkm_scale.data.labels import as_label_vector
from mllkm_scale.data.sources import one_line
from mllkm_scale.errors import DataError, ParameterError, ScratchError

__all__ = ["VARIABLE", "Data", "cache_folder", "fetch", "load", "locate"]

Array = NDArray[Any]

VARIABLE = "MLLKM_DATA"
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

    @property
    def parts(self) -> tuple[Part, ...]:
        """Samples and labels of the training rows and, if there are any, of the test rows."""
        train = (self.X, self.y)
        return (train,) if self.X_test is None or self.y_test is None else (train, (self.X_test, self.y_test))


def locate(name: str) -> Path | None:
    """The file of a data set that is there already: in the folder MLLKM_DATA, or in the cache."""
    entry = find(name)
    return _of_user(entry) or _in_cache(entry)


def load(name: str, *, notice: Notice | None = None, progress: Notice | None = None) -> Data:
    """A data set of the catalogue, as arrays; it is fetched, and kept in the cache, if it is not there yet.

    Parameters
    ----------
    name : str
        One of `mllkm_scale.data.catalogue.ENTRIES`.
    notice : callable, optional
        Is told in a line what deserves to be known, such as a file of MLLKM_DATA that differs from the catalogue.
        By default such lines are warnings.
    progress : callable, optional
        Is told in a line what is being done.

    Raises
    ------
    FetchError
        If it is not there and cannot be fetched.
    DataError
        If a file of the folder MLLKM_DATA cannot be read.
    """
    tell = notice or _warn
    data = _have(find(name), None, False, tell, progress or _silent)
    if data.path is not None:
        return data
    try:
        return _keep(data)
    except ScratchError as error:
        tell(f"{name} is not kept: {error}")
        return data


def fetch(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    route: str | None = None,
    overwrite: bool = False,
    notice: Notice | None = None,
    progress: Notice | None = None,
) -> Data:
    """Put a data set of the catalogue into an HDF5 file that `mllkm train` reads: `path` of what is returned.

    Parameters
    ----------
    name : str
        One of `mllkm_scale.data.catalogue.ENTRIES`.
    folder : path, optional
        Where NAME.h5 is to be; by default in the cache, unless the folder MLLKM_DATA has that file.
    route : {"openml", "package"}, optional
        Fetch over routes of this kind only, whatever is there already.
    overwrite : bool
        Replace NAME.h5 in `folder`; without a folder, fetch anew what is in the cache.
    notice, progress : callable, optional
        As in `load`.

    Raises
    ------
    FetchError
        If it is not there and cannot be fetched.
    ParameterError
        If NAME.h5 is in `folder` already.
    """
    target = None if folder is None else Path(folder).absolute() / f"{name}.h5"
    if target is not None and target.exists() and not overwrite:
        raise ParameterError(f"{target} exists already: choose another folder, or allow it to be overwritten")
    data = _have(find(name), route, overwrite and target is None, notice or _warn, progress or _silent)
    if target is not None:
        return _write(target, data)
    return data if data.path is not None and data.path.suffix == ".h5" else _keep(data)


def cache_folder() -> Path:
    """The folder in which fetched files are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home).absolute() / "mllkm-scale" / "data"


def _have(entry: CatalogueEntry, route: str | None, anew: bool, notice: Notice, progress: Notice) -> Data:
    """The data set from the first place that has it; a route passes over every file, `anew` over the cache."""
    own, kept = _of_user(entry), _in_cache(entry)
    if own is not None and route is None:
        data = _read(entry, own, f"{own.name} of the folder {VARIABLE}")
        if data.checksum != entry.content:
            notice(f"{own} differs from the catalogue's {entry.name}; it is used as it is")
        return data
    if kept is not None and route is None and not anew:
        try:
            data = _read(entry, kept, "the cache")
            if data.checksum in entry.contents:
                return data
            reason = "its content is not that of the catalogue"
        except DataError as error:
            reason = str(error)
        notice(f"{kept} is damaged and is fetched anew ({reason})")
    found = download(entry, route, notice=notice, progress=progress)
    return _data(entry, found.parts, found.origin, found.checksums.content)


def _data(entry: CatalogueEntry, parts: tuple[Part, ...], origin: str, checksum: str, path: Path | None = None) -> Data:
    X_test, y_test = parts[1] if len(parts) == 2 else (None, None)
    return Data(entry.name, *parts[0], X_test, y_test, origin, checksum, path)


def _keep(data: Data) -> Data:
    """Put what the catalogue knows into the cache."""
    folder = cache_folder()
    if data.checksum not in find(data.name).contents:
        raise ParameterError(
            f"{data.path} differs from the catalogue's {data.name}, so it is not put into the cache: name a folder for"
            " the HDF5 file (--out)"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ScratchError(f"{folder} cannot be made ({one_line(error)}): set XDG_CACHE_HOME") from error
    return _write(folder / f"{data.name}.h5", data)


def _write(target: Path, data: Data) -> Data:
    """Write the HDF5 file, whole or not at all."""
    with HDF5Writer(target, overwrite=True) as writer:
        for (samples_name, labels_name), (X, y) in zip(NAMES, data.parts, strict=False):
            writer.append(samples_name, X)
            writer.append_labels(labels_name, y)
        writer.write_attributes(name=data.name, title=find(data.name).title, source=data.origin, checksum=data.checksum)
    return replace(data, path=target)


def _of_user(entry: CatalogueEntry) -> Path | None:
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    folder = Path(named).absolute()
    if not folder.is_dir():
        raise ParameterError(f"{VARIABLE} is {named}, which is not a folder: correct it, or unset it")
    return next((path for suffix in ("npz", "h5") if (path := folder / f"{entry.name}.{suffix}").exists()), None)


def _in_cache(entry: CatalogueEntry) -> Path | None:
    path = cache_folder() / f"{entry.name}.h5"
    return path if path.exists() else None


def _read(entry: CatalogueEntry, path: Path, origin: str) -> Data:
    """Arrays of a file; X_test and y_test if it has both."""
    arrays, source = (_read_npz(path), None) if path.suffix == ".npz" else _read_hdf5(path)
    missing = [name for name in NAMES[0] if name not in arrays]
    if missing:
        raise DataError(f"{path} has no array {missing[0]}: store X and y, and X_test and y_test if there is a split")
    parts = tuple((arrays[x], arrays[y]) for x, y in NAMES if x in arrays and y in arrays)
    for X, y in parts:
        if X.ndim != 2 or y.shape != X.shape[:1]:
            raise DataError(f"{path} has samples of shape {X.shape} and labels of shape {y.shape}: label every row")
    # Labels that are text or samples that are none of numbers are nothing that the catalogue knows.
    comparable = all(X.dtype.kind in "fiub" and y.dtype.kind in "iub" for X, y in parts)
    checksum = fingerprint(parts, entry.decimals).content if comparable else ""
    return _data(entry, parts, source or origin, checksum, path)


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
    for name in ("y", "y_test"):
        if name in arrays:
            arrays[name] = as_label_vector(arrays[name], f"{path.name}:{name}")
    return arrays, source if isinstance(source, str) else None


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=4)


def _silent(text: str) -> None:
    """Tell nobody."""
