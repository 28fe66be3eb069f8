"""The lock of a run folder: one process at a time trains in it.

The lock is that of the system (flock), which ends with its process; the file names the process that holds it. A file
system without such locks, such as some NFS mounts, has a second file instead. That file outlives its process: the lock
of a dead process of this host is taken over, and the lock of another host is not.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, SoftFileLock, Timeout, UnixFileLock

from mllkm_scale.errors import ScratchError

__all__ = ["locked"]

PATIENCE_S = 0.2  # a lock that is being released or taken over needs a second attempt
_A_LINK = "{} is a symbolic link, which is not followed: remove it"
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of the folder of the file `path`; the file is removed afterwards.

    Raises
    ------
    ScratchError
        If another process, which the message names, holds the lock, or the file is a symbolic link.
    OSError
        If the lock file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, ".lock")
    ...     with locked(path):
    ...         held = path.exists()
    ...     held, path.exists()
    (True, False)
    """
    lock = _acquired(path)
    try:
        yield
    finally:
        # Removed while the lock is held: a process that waits for the removed file notices this, and starts again.
        with suppress(OSError):
            path.unlink()
        lock.release()


def _acquired(path: Path) -> BaseFileLock:
    if path.exists() or path.is_symlink():
        _require_plain(path)
    marker = path.with_name(f"{path.name}-holder")
    lock: BaseFileLock = UnixFileLock(path, PATIENCE_S, thread_local=False, on_acquired=_write_holder)
    try:
        try:
            lock.acquire()
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            path, lock = marker, SoftFileLock(marker, PATIENCE_S, thread_local=False)
            lock.acquire()
    except Timeout:
        raise ScratchError(
            f"{path.parent} is in use by a training run of {_holder(path)}: wait for it to end or name another folder;"
            f" if that process has ended, remove {path}"
        ) from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ScratchError(_A_LINK.format(path)) from None
        raise
    return lock


def _require_plain(path: Path) -> None:
    """Refuse a path that is not a lock file before it is opened or removed."""
    if path.is_symlink():
        raise ScratchError(_A_LINK.format(path))
    if not path.is_file():
        raise ScratchError(f"{path} is not a regular file: remove it")


def _write_holder(lock: int) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n{socket.gethostname()}\n".encode(), 0)


def _holder(path: Path) -> str:
    """The process that holds the lock: process id and host are the first lines of either file."""
    with (
        suppress(OSError, ValueError),
        open(path, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file,
    ):
        pid, host, *_ = file.read(1024).split("\n")
        return f"process {int(pid)} on {host.partition('?')[0]}"  # filelock adds ? and the namespace of processes
    return "another process"
