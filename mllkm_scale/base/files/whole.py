"""Files that appear completely or not at all: written beside the target, synced, then renamed.

After any failure, the previous target is unchanged.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from mllkm_scale.base.files.folders import require_path
from mllkm_scale.errors import ScratchError

__all__ = ["cannot_write", "commit", "partial_of", "sweep_partial", "whole_file", "write_whole"]


@contextmanager
def whole_file(target: Path) -> Iterator[IO[bytes]]:
    """Context with a file to write to. It replaces the target when the block ends without an error."""
    partial = partial_of(target)
    try:
        with partial.open("xb") as file:
            yield file
        commit(partial, target)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def write_whole(target: Path, text: str) -> None:
    """Replace the contents of a file by a text. Even after a crash, the file is either the old or the complete new one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder, "plan.json"), "{}")
    ...     [file.name for file in Path(folder).iterdir()]
    ['plan.json']
    """
    with whole_file(target) as file:
        file.write(text.encode())


def partial_of(target: Path) -> Path:
    """The path of a file before it has its final name."""
    require_path(target)
    return target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")


def commit(partial: Path, target: Path) -> None:
    """Rename a complete, closed file to its final name; it is on the disk when this returns."""
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def sweep_partial(folder: Path) -> None:
    """Remove the partial file of a process that was killed while it wrote."""
    for partial in folder.glob(".*.partial"):
        partial.unlink(missing_ok=True)


def cannot_write(target: Path, error: OSError | RuntimeError) -> ScratchError:
    """The error for a target that the system does not allow to write; HDF5 reports a full disk by a RuntimeError."""
    why = " ".join(str((isinstance(error, OSError) and error.strerror) or error).split())
    return ScratchError(f"{target} cannot be written ({why}): free space or choose another folder")
