"""The lock of a run folder: one process at a time trains in it.

The lock is the system's own one, which dies with its process; the file says whose it is. Where the file system has no
locks, the file alone decides: the lock of a dead process of this host is taken over, that of another host is not.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import psutil

from mllkm_scale.errors import ScratchError

__all__ = ["acquire", "release"]


def acquire(path: Path) -> int:
    """Take the lock of the folder that the file `path` is in.

    Returns
    -------
    int
        The open lock file, for `release`.

    Raises
    ------
    ScratchError
        If another process holds the lock; it is named.
    OSError
        If the lock file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, ".lock")
    ...     release(path, acquire(path))
    ...     path.exists()
    False
    """
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            system_lock = _lock_file(lock, path)
            if os.stat(path).st_ino != os.fstat(lock).st_ino:
                os.close(lock)  # given back, and so removed, while it was opened here
                continue
            _require_no_holder(lock, path, system_lock)
            os.ftruncate(lock, 0)
            owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
            os.pwrite(lock, json.dumps(owner).encode(), 0)
        except FileNotFoundError:
            os.close(lock)
        except BaseException:
            os.close(lock)
            raise
        else:
            return lock


def release(path: Path, lock: int) -> None:
    """Give back a lock that `acquire` took."""
    # Removed while the lock is still held, so that nobody can have taken it in between.
    with contextlib.suppress(OSError):
        path.unlink()
    os.close(lock)


def _lock_file(lock: int, path: Path) -> bool:
    """Whether the file system has locks; the error that names the holder if it is taken."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _busy(path, _owner(lock)) from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise
        return False
    return True


def _require_no_holder(lock: int, path: Path, system_lock: bool) -> None:
    owner = _owner(lock)
    if not owner:
        return
    here = owner.get("host") == socket.gethostname()
    if (here and _alive(owner)) or (not here and not system_lock):
        raise _busy(path, owner)


def _owner(lock: int) -> dict[str, Any]:
    try:
        owner = json.loads(os.pread(lock, 4096, 0))
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}


def _alive(owner: dict[str, Any]) -> bool:
    """Whether the process still runs; a younger process of the same number is not it."""
    try:
        process = psutil.Process(owner["pid"])
        alive: bool = process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= owner["since"] + 1
        return alive
    except psutil.AccessDenied:
        return True
    except (psutil.Error, KeyError, TypeError, ValueError):
        return False


def _busy(path: Path, owner: dict[str, Any]) -> ScratchError:
    who = f"process {owner['pid']} on {owner.get('host')}" if "pid" in owner else "another process"
    return ScratchError(
        f"{path.parent} is in use by a training of {who}: wait for it to end or name another folder;"
        f" if that process has ended, remove {path}"
    )
