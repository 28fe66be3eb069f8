"""How a command that works in a run folder ends early: at a safe point, and with a line that says how to go on.

The first Ctrl-C or SIGTERM asks the training to stop at its next safe point.
"""

from __future__ import annotations

import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

import click

from mllkm_scale.cli.group import INTERRUPTED, TERMINATED, Invocation, say
from mllkm_scale.errors import ClusterError, InterruptedTraining
from mllkm_scale.run.folder import RunFolder
from mllkm_scale.run.progress.listeners import Progress

__all__ = ["Checkpoint", "Interruption", "OwnCheckpoint", "ends_at_a_safe_point", "interruption"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)
STDERR = 2
RESUME_WITH = "MLLKM_RESUME_WITH"  # the command line that goes on, set by the scripts of jobs/submit/
WITHIN = "MLLKM_WITHIN"  # what stands before the command line of a training, set by the scripts of cluster/


@dataclass
class Interruption:
    """Whether a signal asked for the end, and which."""

    requested: bool = False
    signal_name: str | None = None
    waits: bool = False

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A block that only waits, for input perhaps: a signal ends it at once, by KeyboardInterrupt."""
        if self.requested:
            raise KeyboardInterrupt
        self.waits = True
        try:
            yield
        finally:
            self.waits = False


@contextmanager
def interruption(notify: Callable[[str], object] | None = None) -> Iterator[Interruption]:
    """Turn the first SIGINT or SIGTERM of a block into a flag; a SIGINT after it raises KeyboardInterrupt.

    The handlers from before are restored when the block ends. Only the main thread may handle signals: in any
    other one the flag stays False. A SIGINT that the process has ignored since it was started, as a shell
    script starts what stands before ``&``, stays ignored: whoever starts it so does not want Ctrl-C to reach it.

    Parameters
    ----------
    notify : callable, optional
        Called with the name of the first signal, from the signal handler: it must not wait or print through a
        buffered stream.

    Examples
    --------
    >>> with interruption() as stop:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     stop.requested, stop.signal_name
    (True, 'SIGTERM')
    """
    state = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield state
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if not state.requested:
            state.signal_name = signal.Signals(number).name
            state.requested = True
            if state.waits:
                raise KeyboardInterrupt
            if notify is not None:
                notify(state.signal_name)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt

    heard = [number for number in SIGNALS if number != signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, handle) for number in heard}
    try:
        yield state
    finally:
        for number, handler in previous.items():
            # None stands for a handler that was not set from Python and cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


class Checkpoint(Protocol):
    """Whether there is something to go on from."""

    def is_ours(self) -> bool: ...


class OwnCheckpoint:
    """Whether a checkpoint or descent of the run folder is of this work, or still what it was to replace."""

    def __init__(self, run: Path, resumed: bool) -> None:
        folder = RunFolder(run)
        self._paths, self._resumed = (folder.checkpoint, folder.learning), resumed
        self._before = [_written(path) for path in self._paths]

    def is_ours(self) -> bool:
        return any(
            now is not None and (self._resumed or now != before)
            for now, before in zip(map(_written, self._paths), self._before, strict=True)
        )


def _written(path: Path) -> tuple[int, int] | None:
    """Which file is there, and since when."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


@contextmanager
def ends_at_a_safe_point(
    context: click.Context, checkpoint: Checkpoint, listener: Progress, *, what: str, aloud: bool
) -> Iterator[Interruption]:
    """A block that the first signal asks to end; when it ends early, the command line that goes on is told.

    `what` was interrupted; whether the signal itself is told is `aloud`.
    """
    with interruption(_say_signal if aloud else None) as stop:
        try:
            yield stop
        except (InterruptedTraining, KeyboardInterrupt) as error:
            listener.close()
            ended = str(error) if isinstance(error, InterruptedTraining) else f"{what} was interrupted at once"
            say(f"mllkm: {ended}; to go on: {_to_go_on(context, checkpoint.is_ours())}", err=True)
            raise SystemExit(TERMINATED if stop.signal_name == "SIGTERM" else INTERRUPTED) from error
        except ClusterError as error:
            listener.close()
            if not checkpoint.is_ours():
                raise
            raise ClusterError(f"{error}; to go on: {_to_go_on(context, True)}") from error


def _to_go_on(context: click.Context, resume: bool) -> str:
    """The command line that goes on with this work: from its checkpoint, or from the beginning."""
    # A script that has started the cluster ends it, and its scheduler file is gone: the script itself goes on.
    if script := os.environ.get(RESUME_WITH):
        return script.strip()
    given = context.ensure_object(Invocation).arguments
    words = [word for word in given if word not in ("--resume", "--overwrite")] if resume else list(given)
    command = shlex.join(["mllkm", *words, *(["--resume"] if resume else [])])
    return f"{os.environ.get(WITHIN, '')}{command}"


def _say_signal(signal_name: str) -> None:
    text = f"\nmllkm: {signal_name}: ending at the next safe point; Ctrl-C again ends at once\n"
    os.write(STDERR, text.encode())
