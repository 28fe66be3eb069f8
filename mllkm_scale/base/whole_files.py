"""Files that appear whole or not at all: written beside the target, synced, then renamed.

After any failure, what stood at the target before stands there still.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from mllkm_scale.errors import ScratchError

__all__ = ["cannot_write", "commit", "partial_of", "sweep_partial", "whole_file", "write_whole"]


@contextmanager
def whole_file(target: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of the target when the block ends without an error."""
    partial = partial_of(target)
    try:
        with partial.open("xb") as file:
            yield file
        commit(partial, target)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def write_whole(target: Path, text: str) -> None:
    """Replace a file by a text; it is either the old one or the whole new one, also after a crash.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder, "plan.json"), "{}")
    ...     [file.name for file in Path(folder).iterdir()]
    ['plan.json']
    """
    with whole_file(target) as file:
        file.write(text.encode())


def partial_of(target: Path) -> Path:
    """Where a file is written before it has its name."""
    return target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")


def commit(partial: Path, target: Path) -> None:
    """Give a file that is written, and closed, its name; it is on the disk when this returns."""
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def sweep_partial(folder: Path) -> None:
    """Remove what a process that was killed while it wrote has left."""
    for partial in folder.glob(".*.partial"):
        partial.unlink(missing_ok=True)


def cannot_write(target: Path, error: OSError) -> ScratchError:
    """What to tell of a target that the system does not let be written."""
    why = " ".join(str(error.strerror or error).split())
    return ScratchError(f"{target} cannot be written ({why}): free space or choose another folder")
