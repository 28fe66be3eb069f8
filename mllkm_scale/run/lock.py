"""The lock of a run folder: one process at a time trains in it.

The lock is the system's own one (flock), which ends with its process; the file says who holds it. On a file system
without such locks, as NFS may be mounted, a second file takes their place. It outlives its process: the lock of a dead
process of this host is taken over, that of another host is not.
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

PATIENCE_S = 0.2  # a lock that is given back, or taken over, at this moment needs a second attempt
_A_LINK = "{} is a symbolic link, which is not followed: remove it"
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of the folder that the file `path` is in; the file is gone afterwards.

    Raises
    ------
    ScratchError
        If another process holds the lock, which is named, or the file is a symbolic link.
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
        # Removed while the lock is held: whoever waits for the removed file sees that it is, and begins anew.
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
            f"{path.parent} is in use by a training of {_holder(path)}: wait for it to end or name another folder;"
            f" if that process has ended, remove {path}"
        ) from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ScratchError(_A_LINK.format(path)) from None
        raise
    return lock


def _require_plain(path: Path) -> None:
    """Refuse what is no lock file before it is opened, or removed in the end."""
    if path.is_symlink():
        raise ScratchError(_A_LINK.format(path))
    if not path.is_file():
        raise ScratchError(f"{path} is no regular file: remove it")


def _write_holder(lock: int) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n{socket.gethostname()}\n".encode(), 0)


def _holder(path: Path) -> str:
    """Who holds the lock: process and host are the first lines of either file."""
    with (
        suppress(OSError, ValueError),
        open(path, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file,
    ):
        pid, host, *_ = file.read(1024).split("\n")
        return f"process {int(pid)} on {host.partition('?')[0]}"  # filelock adds ? and the namespace of processes
    return "another process"
