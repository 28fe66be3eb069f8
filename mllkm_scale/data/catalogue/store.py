"""Data sets by name: their search, verification and storage.

The folder MLLKM_DATA is searched first: NAME.npz or NAME.h5 there belongs to the user, and is used unchanged. The cache
is next; its files are verified when they are read. Then the routes of the catalogue are tried in order until one has
the right content.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, chain, permutations
from pathlib import Path

import numpy as np

from mllkm_scale.base.files.npy import ZIP_DAMAGE
from mllkm_scale.data.catalogue.content import Array, Part, canonical, fingerprint
from mllkm_scale.data.catalogue.entries import CatalogueEntry, find
from mllkm_scale.data.catalogue.readers import one_hot
from mllkm_scale.data.catalogue.routes import Route, RouteError, cache_folder
from mllkm_scale.data.converters.writer import HDF5Writer
from mllkm_scale.data.hdf5_source import find_dataset, open_hdf5
from mllkm_scale.data.labels import as_label_vector
from mllkm_scale.data.sources import one_line
from mllkm_scale.errors import DataError, FetchError, ParameterError, ScratchError

__all__ = ["Data", "Notice", "cache_folder", "download", "fetch", "load", "locate", "made_folder"]

Notice = Callable[[str], None]
Verified = tuple[tuple[Part, ...], str, str]
NAMES = ("X", "y", "X_test", "y_test")


def download(entry: CatalogueEntry, kind: str | None, *, notice: Notice, progress: Notice) -> Verified:
    """X and y of each part, their origin and their checksum, from the first route that has the right content.

    If `kind` is given, only routes of this kind are tried. `progress` receives the route that is tried, and `notice`
    the reason of a failure. The `FetchError` after the last route has all reasons.
    """
    routes = [route for route in entry.routes if kind in (None, route.kind)]
    if not routes:
        known = ", ".join(sorted({route.kind for route in entry.routes}))
        raise ParameterError(f"{entry.name} has no route {kind!r}: leave it out, or choose {known}")
    reasons = []
    for route in routes:
        progress(f"{entry.name}: asking {route.title}")
        try:
            return _verified(entry, route)
        except RouteError as error:
            reasons.append(f"{route.title}: {error}")
            notice(f"{entry.name}: {route.title}: {error}")
    arrays = "X, y" if len(entry.rows) == 1 else "X, y, X_test and y_test"
    raise FetchError(
        f"{entry.name} cannot be fetched ({'; '.join(reasons)}): try again when the network is there, or set MLLKM_DATA"
        f" to a folder that has {entry.name}.npz with the arrays {arrays}"
    )


def _verified(entry: CatalogueEntry, route: Route) -> Verified:
    X, labels = route.read()
    codes = {label: code for code, label in enumerate(route.labels, entry.first_label)}
    if unknown := sorted(set(labels) - set(codes)):
        raise RouteError(f"it has the label {unknown[0]!r}, which the catalogue does not know")
    y = np.array([codes[label] for label in labels], dtype=np.int32)
    X = one_hot(X) if X.dtype.kind == "U" else X
    if X.shape != (len(y), entry.n_features):
        raise RouteError(f"it has X of shape {X.shape}, not {entry.n_features} features")
    if route.lows:
        low, high = np.array(route.lows), np.array(route.highs)
        X = low + (X.astype(np.float64) + 1) * (high - low) / 2
    if not np.isfinite(X).all():
        raise RouteError("it has missing values")
    X, expected = canonical(X, entry.decimals), route.content or entry.content
    for parts in _arrangements(X, y, entry.rows, route.extra_parts):
        found = fingerprint(parts, entry.decimals)
        if found.content == expected:
            moved = route.content is None and found.ordered != entry.ordered
            remarks = [route.note, "rows in another order than the catalogue's" if moved else ""]
            return parts, ", ".join([route.title, *filter(None, remarks)]), found.content
    raise RouteError("its content is not that of the catalogue (checksum)")


def _arrangements(X: Array, y: Array, rows: tuple[int, ...], extra: tuple[int, ...]) -> Iterator[tuple[Part, ...]]:
    """The possible divisions of a file into parts; the checksum shows which one is right."""
    sizes = rows + extra
    if sum(sizes) != len(y):
        raise RouteError(f"it has {len(y)} rows, the catalogue {sum(sizes)}")
    for order in permutations(range(len(sizes))):
        ends = dict(zip(order, accumulate(sizes[part] for part in order), strict=True))
        wanted = [slice(ends[part] - sizes[part], ends[part]) for part in range(len(rows))]
        yield tuple((X[part], y[part]) for part in wanted)


@dataclass(frozen=True, eq=False)
class Data:
    """A data set by name: training arrays, test arrays if there is a split, and their origin.

    `path` is their file, if there is one, and `checksum` that of their content.
    """

    name: str
    origin: str
    checksum: str
    path: Path | None
    X: Array
    y: Array
    X_test: Array | None = None
    y_test: Array | None = None


def locate(name: str) -> Path | None:
    """The existing file of a data set: in the folder MLLKM_DATA, or in the cache."""
    return _own_file(find(name)) or _cached_file(find(name))


def load(name: str, *, notice: Notice | None = None, progress: Notice | None = None) -> Data:
    """A data set of the catalogue, as arrays; it is fetched, and kept in the cache, if it is not there yet.

    Parameters
    ----------
    name : str
        One of `mllkm_scale.data.catalogue.ENTRIES`.
    notice : callable, optional
        Receives a line on what deserves to be known, such as a file of MLLKM_DATA that differs from the catalogue.
        By default such lines are warnings.
    progress : callable, optional
        Receives a line on what is being done.

    Raises
    ------
    FetchError
        If it is not there and cannot be fetched.
    DataError
        If a file of the folder MLLKM_DATA cannot be read.
    """
    entry, tell = find(name), notice or _warn
    data = _find_data(entry, None, False, tell, progress)
    if data.path is not None:
        return data
    try:
        return _keep(entry, data)
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
    """Write a data set of the catalogue to an HDF5 file for `mllkm train`, and return a description with its `path`.

    Parameters
    ----------
    name : str
        One of `mllkm_scale.data.catalogue.ENTRIES`.
    folder : path, optional
        Folder of NAME.h5, made if it is missing; by default the cache, unless the folder MLLKM_DATA has that file.
    route : {"openml", "package"}, optional
        Fetch only by routes of this kind, even if there is a file.
    overwrite : bool
        Replace NAME.h5 in `folder`; without a folder, fetch again what is in the cache.
    notice, progress : callable, optional
        As in `load`.

    Raises
    ------
    FetchError
        If it is not there and cannot be fetched.
    ParameterError
        If NAME.h5 is already in `folder`.
    """
    entry, tell = find(name), notice or _warn
    if folder is None:
        data = _find_data(entry, route, overwrite, tell, progress)
        return data if data.path is not None and data.path.suffix == ".h5" else _keep(entry, data)
    target = made_folder(Path(folder).absolute()) / f"{name}.h5"
    if target.exists() and not overwrite:
        raise ParameterError(f"{target} exists already: choose another folder, or allow it to be overwritten")
    return _write(entry, target, _find_data(entry, route, False, tell, progress))


def _find_data(entry: CatalogueEntry, route: str | None, anew: bool, notice: Notice, progress: Notice | None) -> Data:
    """The data set from the first place that has it; with a route, all files are ignored, and with `anew` the cache."""
    own, cached = _own_file(entry), _cached_file(entry)
    if own is not None and route is None:
        data = _read(entry, own, f"{own.name} of the folder MLLKM_DATA")
        if data.checksum != entry.content:
            notice(f"{own} differs from the catalogue's {entry.name}; it is used as it is")
        return data
    if cached is not None and route is None and not anew:
        try:
            data = _read(entry, cached, "the cache")
            if data.checksum in entry.contents:
                return data
            reason = "its content is not that of the catalogue"
        except DataError as error:
            reason = str(error)
        notice(f"{cached} is damaged and is fetched again ({reason})")
    parts, origin, checksum = download(entry, route, notice=notice, progress=progress or (lambda text: None))
    return Data(entry.name, origin, checksum, None, *chain(*parts))


def _keep(entry: CatalogueEntry, data: Data) -> Data:
    """Store a verified data set in the cache."""
    if data.checksum not in entry.contents:
        raise ParameterError(
            f"{data.path} differs from the catalogue's {entry.name}, so it is not put into the cache: name a folder for"
            " the HDF5 file (--out)"
        )
    return _write(entry, made_folder(cache_folder()) / f"{entry.name}.h5", data)


def made_folder(folder: Path) -> Path:
    """The folder, made if it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ScratchError(f"the folder {folder} cannot be made ({one_line(error)}): name another one") from error
    return folder


def _write(entry: CatalogueEntry, target: Path, data: Data) -> Data:
    """Write the HDF5 file, completely or not at all; a file of that name is replaced."""
    with HDF5Writer(target, overwrite=True) as writer:
        for name in NAMES:
            if (values := getattr(data, name)) is not None:
                (writer.append if values.ndim == 2 else writer.append_labels)(name, values)
        writer.write_attributes(name=data.name, title=entry.title, source=data.origin, checksum=data.checksum)
    return replace(data, path=target)


def _read(entry: CatalogueEntry, path: Path, origin: str) -> Data:
    """Arrays of a file, with X_test and y_test if it has both; `origin` is used if the file does not name its
    source."""
    arrays, source = _arrays(path)
    if missing := [name for name in ("X", "y") if name not in arrays]:
        raise DataError(f"{path} has no array {missing[0]}: store X and y, and X_test and y_test if there is a split")
    pairs = [(x, y) for x, y in (NAMES[:2], NAMES[2:]) if x in arrays and y in arrays]
    parts = [(arrays[x], as_label_vector(arrays[y], f"{path.name}:{y}")) for x, y in pairs]
    for X, y in parts:
        if X.ndim != 2 or y.shape != X.shape[:1]:
            raise DataError(f"{path} has samples of shape {X.shape} and labels of shape {y.shape}: label every row")
    # The catalogue has no text labels, and no samples that are not numbers.
    comparable = all(X.dtype.kind in "fiub" and y.dtype.kind in "iub" for X, y in parts)
    checksum = fingerprint(parts, entry.decimals).content if comparable else ""
    return Data(entry.name, source or origin, checksum, path, *chain(*parts))


def _arrays(path: Path) -> tuple[dict[str, Array], str]:
    """Arrays of an NPZ or HDF5 file, and the source that an HDF5 file names."""
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as stored:
                return {name: stored[name] for name in NAMES if name in stored.files}, ""
        with open_hdf5(path) as file:
            there, source = set(file), file.attrs.get("source")
            arrays = {name: find_dataset(file, name, path)[...] for name in NAMES if name in there}
            return arrays, source if isinstance(source, str) else ""
    except DataError:
        raise
    except ZIP_DAMAGE as error:
        raise DataError(f"{path} cannot be read ({one_line(error)}): copy it again") from error


def _own_file(entry: CatalogueEntry) -> Path | None:
    named = os.environ.get("MLLKM_DATA")
    if not named:
        return None
    folder = Path(named).absolute()
    if not folder.is_dir():
        raise ParameterError(f"MLLKM_DATA is {named}, which is not a folder: correct it, or unset it")
    return next((path for suffix in ("npz", "h5") if (path := folder / f"{entry.name}.{suffix}").exists()), None)


def _cached_file(entry: CatalogueEntry) -> Path | None:
    path = cache_folder() / f"{entry.name}.h5"
    return path if path.exists() else None


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=4)
