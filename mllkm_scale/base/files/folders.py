"""Run folders and scratch folders: errors of the system, reported with the folder and the remedy.

A run folder keeps its files. A scratch folder holds files of a training run that are removed when it ends: the prepared
data, support vectors, and files for the workers of a cluster.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mllkm_scale.base.units import format_bytes
from mllkm_scale.errors import ScratchError

__all__ = [
    "making_scratch",
    "new_scratch_file",
    "reading",
    "require_path",
    "require_room",
    "writing",
    "writing_scratch",
]


def require_path(path: Path) -> None:
    """Refuse a path that no file system can have.

    >>> require_path(Path(f"a{chr(0)}b"))
    Traceback (most recent call last):
    mllkm_scale.errors.ScratchError: a\\x00b is no path, for it has a NUL character: name another
    """
    if "\0" in str(path):
        raise ScratchError(f"{path} is no path, for it has a NUL character: name another")


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Context of a block that writes in the run folder `folder`."""
    try:
        yield
    except OSError as error:
        raise ScratchError(
            f"the run folder {folder} cannot be written ({error.strerror or error}): free space,"
            " change its permissions, or name another folder"
        ) from error


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Context of a block that reads in the run folder `folder`."""
    try:
        yield
    except OSError as error:
        raise ScratchError(
            f"the run folder {folder} cannot be read ({error.strerror or error}): change permissions"
        ) from error


@contextmanager
def making_scratch(folder: Path) -> Iterator[None]:
    """Context of a block that creates the scratch folder `folder`, or files in it."""
    require_path(folder)
    try:
        yield
    except OSError as error:
        raise ScratchError(f"the scratch folder {folder} cannot be written ({_why(error)}): choose another") from error


@contextmanager
def writing_scratch(folder: Path) -> Iterator[None]:
    """Context of a block that writes to a file of the scratch folder `folder`; HDF5 reports a full disk by a
    RuntimeError."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise ScratchError(
            f"writing to the scratch folder {folder} failed ({_why(error)}): free space or choose another"
        ) from error


def new_scratch_file(folder: Path, stem: str, suffix: str) -> Path:
    """A new empty file with a unique name; the folder is created if it is missing.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = new_scratch_file(Path(folder, "new"), "support", ".rows")
    ...     path.exists(), path.suffix
    (True, '.rows')
    """
    with making_scratch(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f"{stem}-", suffix=suffix, dir=folder.absolute())
        os.close(handle)
    return Path(name)


def require_room(folder: Path, size_bytes: int, what: str) -> None:
    """Refuse a scratch folder without enough space; `what` names the user, such as "the prepared data needs"."""
    with making_scratch(folder):
        free_bytes = shutil.disk_usage(folder).free
    if free_bytes < size_bytes:
        raise ScratchError(
            f"the scratch folder {folder} has {format_bytes(free_bytes)} free, but {what}"
            f" {format_bytes(size_bytes)}: free space or choose another"
        )


def _why(error: OSError | RuntimeError) -> str:
    return " ".join(str(getattr(error, "strerror", None) or error).split())
