"""The early end of a command that works in a run folder: at a safe point, with a line that says how to continue.

The first Ctrl-C or SIGTERM stops the training at its next safe point.
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
RESUME_WITH = "MLLKM_RESUME_WITH"  # the command line to continue, set by the scripts of jobs/submit/
WITHIN = "MLLKM_WITHIN"  # prefix of the command line of a training run, set by the scripts of cluster/


class Checkpoint(Protocol):
    """Whether there is a checkpoint to continue from."""

    def is_ours(self) -> bool: ...


class OwnCheckpoint:
    """Whether a checkpoint or descent in the run folder belongs to this work, or is the one that it should replace."""

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
    """Identity and time of a file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


@contextmanager
def ends_at_a_safe_point(
    context: click.Context, checkpoint: Checkpoint, listener: Progress, *, what: str, aloud: bool
) -> Iterator[Interruption]:
    """Context that the first signal ends at a safe point; then the command line to continue is printed.

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
    """The command line that continues this work, from its checkpoint or from the beginning."""
    # A script that started the cluster also ends it, so the script itself must be run again.
    if script := os.environ.get(RESUME_WITH):
        return script.strip()
    given = context.ensure_object(Invocation).arguments
    words = [word for word in given if word not in ("--resume", "--overwrite")] if resume else list(given)
    command = shlex.join([*_program(), *words, *(["--resume"] if resume else [])])
    return f"{os.environ.get(WITHIN, '')}{command}"


def _program() -> list[str]:
    """The words that start this program: its name, if it is on the PATH."""
    found, own = shutil.which("mllkm"), (Path(sys.argv[0]), Path(sys.executable).with_name("mllkm"))
    if found is not None and any(path.exists() and path.samefile(found) for path in own):
        return ["mllkm"]
    return [sys.executable, "-m", "mllkm_scale"]


def _say_signal(signal_name: str) -> None:
    text = f"\nmllkm: {signal_name}: ending at the next safe point; Ctrl-C again ends at once\n"
    os.write(STDERR, text.encode())
