"""Text files that appear whole or not at all: written beside the target, synced, then renamed."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

__all__ = ["sweep_partial", "write_whole"]


def write_whole(target: Path, text: str) -> None:
    """Replace a file by a text; it is either the old one or the whole new one, also after a crash.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder, "plan.json"), "{}")
    ...     [file.name for file in Path(folder).iterdir()]
    ['plan.json']
    """
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def sweep_partial(folder: Path) -> None:
    """Remove what a process that was killed while it wrote has left; sealed files leave the same names."""
    for partial in folder.glob(".*.partial"):
        partial.unlink(missing_ok=True)
