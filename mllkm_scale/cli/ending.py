"""How a command that works in a run folder ends early: at a safe point, and with a line that says how to go on.

The first Ctrl-C or SIGTERM asks the training to stop at its next safe point.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import click

from mllkm_scale.base.interruption import Interruption, interruption
from mllkm_scale.cli.group import INTERRUPTED, TERMINATED, Invocation, say
from mllkm_scale.errors import ClusterError, InterruptedTraining
from mllkm_scale.run.folder import RunFolder
from mllkm_scale.run.progress.listeners import Progress

__all__ = ["Checkpoint", "OwnCheckpoint", "ends_at_a_safe_point"]

STDERR = 2
RESUME_WITH = "MLLKM_RESUME_WITH"  # the command line that goes on, set by the scripts of jobs/submit/
WITHIN = "MLLKM_WITHIN"  # what stands before the command line of a training, set by the scripts of cluster/


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

    `what` was interrupted; `aloud` says whether to name the signal.
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
    """The command line that continues this work: from its checkpoint, or from the beginning."""
    # A script that has started the cluster ends it, and its scheduler file is gone: the script itself goes on.
    if script := os.environ.get(RESUME_WITH):
        return script.strip()
    given = context.ensure_object(Invocation).arguments
    words = [word for word in given if word not in ("--resume", "--overwrite")] if resume else list(given)
    command = shlex.join([*_program(), *words, *(["--resume"] if resume else [])])
    return f"{os.environ.get(WITHIN, '')}{command}"


def _program() -> list[str]:
    """The words that this program starts by: its name, if the PATH leads to it."""
    found, own = shutil.which("mllkm"), (Path(sys.argv[0]), Path(sys.executable).with_name("mllkm"))
    if found is not None and any(path.exists() and path.samefile(found) for path in own):
        return ["mllkm"]
    return [sys.executable, "-m", "mllkm_scale"]


def _say_signal(signal_name: str) -> None:
    text = f"\nmllkm: {signal_name}: ending at the next safe point; Ctrl-C again ends at once\n"
    os.write(STDERR, text.encode())
