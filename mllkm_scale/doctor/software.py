"""Versions of the libraries, optional packages, the cache of compiled functions, and the configuration."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mllkm_scale import __version__
from mllkm_scale.doctor.findings import Finding
from mllkm_scale.errors import ParameterError

__all__ = ["check_configuration", "check_extras", "check_numba_cache", "check_versions"]

LIBRARIES = ("numpy", "scipy", "numba", "scikit-learn", "h5py", "zarr", "dask", "distributed")
EXTRAS = {
    "pyarrow": ("parquet", "Parquet files"),
    "onnx": ("onnx", "export to ONNX"),
    "bokeh": ("dashboard", "dask's dashboard and performance report"),
    "dask-jobqueue": ("slurm", "SLURM clusters"),
}


def check_versions() -> Iterator[Finding]:
    """The package, Python and the system; then the libraries."""
    system = f"{platform.system()} {platform.machine()}"
    yield Finding("versions", "ok", f"mllkm-scale {__version__}, Python {platform.python_version()}, {system}")
    found = {name: _version(name) for name in LIBRARIES}
    yield Finding("libraries", "ok", ", ".join(f"{name} {number}" for name, number in found.items() if number))
    for name in (name for name, number in found.items() if number is None):
        yield Finding("libraries", "problem", f"{name} is not installed", f"pip install {name}")


def check_extras() -> Iterator[Finding]:
    """Packages that some formats and clusters need; none must be there."""
    for name, (extra, purpose) in EXTRAS.items():
        number = _version(name)
        missing = f'not installed; for {purpose}: pip install "mllkm-scale[{extra}]"'
        yield Finding(name, "ok", number or missing)


def check_numba_cache() -> Iterator[Finding]:
    """Whether compiled functions can be kept from one start to the next."""
    # Where numba puts them: where it is told, else beside the source, else in the user's cache.
    told, package = os.environ.get("NUMBA_CACHE_DIR"), Path(__file__).parent.parent
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    places = [Path(told)] if told else [package / "solver" / "__pycache__", cache / "numba"]
    for place in places:
        if _is_writable(place):
            yield Finding("compiled code", "ok", f"is kept in {place}")
            return
    remedy = "name a folder that can be written in the environment variable NUMBA_CACHE_DIR"
    yield Finding("compiled code", "warning", f"cannot be kept in {places[0]}, and is compiled at every start", remedy)


def check_configuration() -> Iterator[Finding]:
    """What the user has set."""
    from mllkm_scale.config import Origin, in_force

    try:
        found = [setting for setting in in_force() if setting.origin != Origin.BUILT_IN]
    except ParameterError as error:
        text, _, remedy = str(error).rpartition(": ")
        yield Finding("configuration", "problem", text, remedy)
        return
    for setting in found:
        yield Finding("configuration", "ok", f"{setting.key} {setting.value} ({setting.place})")
    if not found:
        yield Finding("configuration", "ok", "nothing is set; all defaults are the built-in ones")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _is_writable(folder: Path) -> bool:
    """Whether files can be made there, or the folder itself in the nearest one that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True
