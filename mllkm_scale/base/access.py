"""Errors of the system in reading or writing a run folder, raised with the folder and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mllkm_scale.errors import ScratchError

__all__ = ["reading", "writing"]


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
