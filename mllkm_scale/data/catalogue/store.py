"""Where data sets of the catalogue are kept, and how they are had by name.

The folder MLLKM_DATA comes first: NAME.npz or NAME.h5 there is the user's, and is used as it is. Then the cache
(XDG_CACHE_HOME or ~/.cache), whose files are verified when they are read; then the routes of the catalogue.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from mllkm_scale.data.catalogue.entries import CatalogueEntry, find
from mllkm_scale.data.catalogue.fetching import Notice, download
from mllkm_scale.data.catalogue.files import Data, read_file, write_file
from mllkm_scale.data.sources import one_line
from mllkm_scale.errors import DataError, ParameterError, ScratchError

__all__ = ["VARIABLE", "cache_folder", "fetch", "load", "locate"]

VARIABLE = "MLLKM_DATA"


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
    entry, tell = find(name), notice or _warn
    data = _have(entry, None, False, tell, progress or _silent)
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
    """Put a data set of the catalogue into an HDF5 file that `mllkm train` reads: `path` of what is returned.

    Parameters
    ----------
    name : str
        One of `mllkm_scale.data.catalogue.ENTRIES`.
    folder : path, optional
        Where NAME.h5 is to be, and which is made if it is not there; by default in the cache, unless the folder
        MLLKM_DATA has that file.
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
    entry, tell, show = find(name), notice or _warn, progress or _silent
    if folder is None:
        data = _have(entry, route, overwrite, tell, show)
        return data if data.path is not None and data.path.suffix == ".h5" else _keep(entry, data)
    target = _made(Path(folder).absolute()) / f"{name}.h5"
    if target.exists() and not overwrite:
        raise ParameterError(f"{target} exists already: choose another folder, or allow it to be overwritten")
    return write_file(entry, target, _have(entry, route, False, tell, show))


def cache_folder() -> Path:
    """The folder in which fetched files are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home).absolute() / "mllkm-scale" / "data"


def _have(entry: CatalogueEntry, route: str | None, anew: bool, notice: Notice, progress: Notice) -> Data:
    """The data set from the first place that has it; a route passes over every file, `anew` over the cache."""
    own, kept = _of_user(entry), _in_cache(entry)
    if own is not None and route is None:
        data = read_file(entry, own, f"{own.name} of the folder {VARIABLE}")
        if data.checksum != entry.content:
            notice(f"{own} differs from the catalogue's {entry.name}; it is used as it is")
        return data
    if kept is not None and route is None and not anew:
        try:
            data = read_file(entry, kept, "the cache")
            if data.checksum in entry.contents:
                return data
            reason = "its content is not that of the catalogue"
        except DataError as error:
            reason = str(error)
        notice(f"{kept} is damaged and is fetched anew ({reason})")
    found = download(entry, route, notice=notice, progress=progress)
    return Data.of(entry.name, found.parts, found.origin, found.checksums.content)


def _keep(entry: CatalogueEntry, data: Data) -> Data:
    """Put what the catalogue knows into the cache."""
    if data.checksum not in entry.contents:
        raise ParameterError(
            f"{data.path} differs from the catalogue's {entry.name}, so it is not put into the cache: name a folder for"
            " the HDF5 file (--out)"
        )
    return write_file(entry, _made(cache_folder()) / f"{entry.name}.h5", data)


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ScratchError(f"the folder {folder} cannot be made ({one_line(error)}): name another one") from error
    return folder


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


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=4)


def _silent(text: str) -> None:
    """Tell nobody."""
