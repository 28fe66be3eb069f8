"""Reads whole files: only regular files of bounded size, so that a device or a pipe cannot block or fill the memory."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO

from mllkm_scale.base.units import format_bytes
from mllkm_scale.errors import MLLKMError, ScratchError

__all__ = ["open_regular", "open_to_append", "read_regular"]


_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_regular(path: Path, error: type[MLLKMError]) -> IO[bytes]:
    """Open a regular file to read; an OSError if there is none that can be read.

    A pipe is not waited for, and the file cannot be replaced between the check and the opening.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as failure:
        raise error(f"{path} is no path ({failure}): name a file") from None
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # of a folder fdopen says so
            raise error(f"{path} is {_kind(mode)}: name a regular file")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def open_to_append(path: Path) -> IO[str]:
    """Open a text file to append to, or create it; a symbolic link is not followed, because another file would grow.

    Raises
    ------
    ScratchError
        If it is a symbolic link, or no regular file.
    OSError
        If it cannot be written.
    """
    try:
        handle = os.open(path, _APPEND, 0o666)
    except OSError as failure:
        if failure.errno == errno.ELOOP:
            raise ScratchError(f"{path} is a symbolic link, which is not followed: remove it") from None
        if failure.errno == errno.ENXIO:  # a pipe that nobody reads
            raise ScratchError(f"{path} is a pipe: remove it") from None
        raise
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise ScratchError(f"{path} is {_kind(mode)}: remove it")
        return os.fdopen(handle, "a", encoding="utf-8")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: Path, error: type[MLLKMError], most_bytes: int) -> bytes:
    """All of a regular file of at most `most_bytes`; an OSError if there is none that can be read."""
    with open_regular(path, error) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise error(f"{path} is larger than {format_bytes(most_bytes)}, more than such a file can be: name another one")
    return content


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"
