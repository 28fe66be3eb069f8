"""The folder of a training: its model, checkpoint, history, plan and log, held by one process at a time.

    model.mllkm      the model, once training has ended
    checkpoint.npz   the state after the last round
    history.jsonl    one JSON object a round
    plan.json        where the memory was to go
    run.json         parameters, data, versions, result
    run.log          what happened when
    .lock            who works in the folder

A file of JSON appears whole or not at all; history and log grow line by line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import logging
import math
import os
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import psutil

from mllkm_scale.errors import CheckpointError, ParameterError, ScratchError
from mllkm_scale.run.events import Event, Round
from mllkm_scale.run.progress import describe, event_fields, jsonable

__all__ = ["RunFolder"]

MODEL, CHECKPOINT, HISTORY = "model.mllkm", "checkpoint.npz", "history.jsonl"
PLAN, RUN, LOG, LOCK = "plan.json", "run.json", "run.log", ".lock"
LOGGER = logging.getLogger("mllkm_scale")
LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"


class RunFolder:
    """The files of one training.

    Make one with `create` or `resume`: they take the folder's lock, which `close`, the end of a `with` block
    or the death of the process gives back. While it is open, what the package logs also goes to run.log.

    Attributes
    ----------
    path, model, checkpoint, history, plan, run, log : pathlib.Path
        The folder and its files.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place, RunFolder.create(f"{place}/usps") as folder:
    ...     folder.write_json("run.json", {"C": 1.0, "gap": float("inf")})
    ...     folder.run.read_text().split()
    ['{', '"C":', '1.0,', '"gap":', 'null', '}']
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.model = self.path / MODEL
        self.checkpoint = self.path / CHECKPOINT
        self.history = self.path / HISTORY
        self.plan = self.path / PLAN
        self.run = self.path / RUN
        self.log = self.path / LOG
        self._lock: int | None = None
        self._handler: logging.Handler | None = None
        self._level_before = logging.NOTSET
        self._history: IO[str] | None = None

    @classmethod
    def create(cls, path: str | os.PathLike[str], overwrite: bool = False) -> Self:
        """Start anew; `clear` removes the files of an earlier training when the new one is sure to begin.

        Raises
        ------
        ParameterError
            If the folder holds a model or a checkpoint and `overwrite` is not set.
        ScratchError
            If the folder cannot be written, or another process trains in it.
        """
        folder = cls(path)
        folder._open()
        try:
            held = [file.name for file in (folder.model, folder.checkpoint) if file.exists()]
            if held and not overwrite:
                raise ParameterError(
                    f"{folder.path} already holds {' and '.join(held)}: continue that training with --resume"
                    " (resume=True), replace it with --overwrite (overwrite=True), or name another folder"
                )
            folder._start_log()
        except BaseException:
            folder.close()
            raise
        return folder

    def clear(self) -> None:
        """Remove the files of an earlier training but for its log; all other files stay."""
        with self._writing():
            for file in (self.model, self.checkpoint, self.history, self.plan, self.run):
                file.unlink(missing_ok=True)

    @classmethod
    def resume(cls, path: str | os.PathLike[str]) -> Self:
        """Continue the training of a folder; follow it by `load_checkpoint` and `cut_history`.

        Raises
        ------
        CheckpointError
            If there is no checkpoint.
        ScratchError
            If the folder cannot be written, or another process trains in it.
        """
        folder = cls(path)
        if not folder.checkpoint.exists():
            raise CheckpointError(f"{folder.path} has nothing to resume: train without --resume (resume=False)")
        folder._open()
        try:
            folder._start_log()
        except BaseException:
            folder.close()
            raise
        return folder

    def close(self) -> None:
        """Close the files and give the lock back."""
        if self._handler is not None:
            LOGGER.removeHandler(self._handler)
            LOGGER.setLevel(self._level_before)
            self._handler.close()
            self._handler = None
        if self._history is not None:
            self._history.close()
            self._history = None
        if self._lock is not None:
            _release(self.path / LOCK, self._lock)
            self._lock = None

    def append_history(self, event: Round) -> None:
        """Add a round to history.jsonl; it is on its way to the disk when this returns."""
        with self._writing():
            if self._history is None:
                self._history = self.history.open("a", encoding="utf-8")
            self._history.write(json.dumps(event_fields(event), allow_nan=False) + "\n")
            self._history.flush()

    def cut_history(self, last_round: int) -> tuple[Round, ...]:
        """Forget the rounds after `last_round`, and a line cut short by a crash; return the rounds kept."""
        kept = tuple(event for event in self.read_history() if event.number <= last_round)
        if self._history is not None:
            self._history.close()
            self._history = None
        lines = [json.dumps(event_fields(event), allow_nan=False) + "\n" for event in kept]
        self._replace(self.history, "".join(lines))
        return kept

    def read_history(self) -> tuple[Round, ...]:
        """The rounds of history.jsonl up to the first line that is damaged.

        A number that was not finite comes back as nan.
        """
        if not self.history.exists():
            return ()
        rounds = []
        with self._reading():
            lines = self.history.read_text(encoding="utf-8", errors="replace").splitlines()
        for line in lines:
            event = _round_from(line)
            if event is None:
                break
            rounds.append(event)
        return tuple(rounds)

    def write_json(self, name: str, obj: Any) -> None:
        """Write a file of JSON; it is either the old one or the whole new one, also after a crash."""
        if Path(name).name != name:
            raise ParameterError(f"{name!r} is to be a file of the run folder: give a name without folders")
        self._replace(self.path / name, json.dumps(jsonable(obj), indent=2, allow_nan=False) + "\n")

    def record(self, event: Event) -> None:
        """Listen: every event goes to run.log, and a round to history.jsonl as well."""
        if isinstance(event, Round):
            self.append_history(event)
        LOGGER.info("%s", describe(event))

    def _open(self) -> None:
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _acquire(self.path / LOCK)
            for partial in self.path.glob(".*.partial"):  # of a process that was killed while it wrote
                partial.unlink(missing_ok=True)

    def _start_log(self) -> None:
        with self._writing():
            handler = logging.FileHandler(self.log, encoding="utf-8")
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        handler.setLevel(logging.INFO)
        self._handler, self._level_before = handler, LOGGER.level
        LOGGER.addHandler(handler)
        if LOGGER.getEffectiveLevel() > logging.INFO:
            LOGGER.setLevel(logging.INFO)

    def _replace(self, target: Path, text: str) -> None:
        partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
        with self._writing():
            try:
                with partial.open("x", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                partial.replace(target)
            finally:
                partial.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ScratchError(
                f"the run folder {self.path} cannot be written ({error.strerror or error}): free space,"
                " change its permissions, or name another folder"
            ) from error

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ScratchError(
                f"the run folder {self.path} cannot be read ({error.strerror or error}): change permissions"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"


def _round_from(line: str) -> Round | None:
    try:
        found = json.loads(line)
        values: dict[str, Any] = {field.name: found[field.name] for field in dataclasses.fields(Round)}
    except (ValueError, KeyError, TypeError):
        return None
    for field in dataclasses.fields(Round):
        if field.type == "float" and values[field.name] is None:
            values[field.name] = math.nan
    return Round(**values)


def _acquire(path: Path) -> int:
    """Take the lock: the system's own one, which dies with its process; the file says whose it is.

    Where the file system has no locks, the file alone decides: the lock of a dead process of this host is
    taken over, that of another host is not.
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


def _release(path: Path, lock: int) -> None:
    # Removed while the lock is still held, so that nobody can have taken it in between.
    with contextlib.suppress(OSError):
        path.unlink()
    os.close(lock)
