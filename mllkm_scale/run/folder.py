"""The folder of a training or a stream: model, checkpoint, history, plan and log, held by one process at a time.

    model.mllkm      the model, once training has ended
    checkpoint.npz   the state after the last round
    history.jsonl    one JSON object a round
    selection.json   the settings that competed, their errors on held-out rows, and which was taken
    learning.npz     the descent that learns kernels, as far as it has come; after its end, the learned kernels
    learning.jsonl   one JSON object an epoch of it
    stream.jsonl     for a stream instead: one JSON object for some hundred samples
    plan.json        where the memory was to go
    run.json         parameters, data, versions; when it has ended, the result
    evaluation.json  the model on the test rows, where such were given
    report.html      all of it for a person, with pictures
    run.log          what happened when
    .lock            who works in the folder

A file of JSON appears whole or not at all; history and log grow line by line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from mllkm_scale.base.events import Epoch, Event, Round, Streamed, jsonable
from mllkm_scale.base.folders import require_path, writing
from mllkm_scale.base.whole_files import sweep_partial, write_whole
from mllkm_scale.base.wording import describe
from mllkm_scale.errors import CheckpointError, ParameterError
from mllkm_scale.run.history import LOGGER, History, log_to
from mllkm_scale.run.lock import locked

__all__ = ["RunFolder"]

MODEL, CHECKPOINT, HISTORY, STREAM = "model.mllkm", "checkpoint.npz", "history.jsonl", "stream.jsonl"
SELECTION, LEARNING, EPOCHS = "selection.json", "learning.npz", "learning.jsonl"
PLAN, RUN, LOG, LOCK = "plan.json", "run.json", "run.log", ".lock"
EVALUATION, REPORT = "evaluation.json", "report.html"


class RunFolder:
    """The files of one training.

    Make one with `create` or `resume`: they take the folder's lock, which `close`, the end of a `with` block
    or the death of the process gives back. While it is open, what the package logs also goes to run.log.

    Attributes
    ----------
    path, model, checkpoint, selection, learning, history, plan, run, evaluation, report, log : pathlib.Path
        The folder and its files.
    streamed, epochs : History
        The reports of a stream, and the epochs in which kernels were learned.

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
        require_path(self.path)
        self.model = self.path / MODEL
        self.checkpoint = self.path / CHECKPOINT
        self.history = self.path / HISTORY
        self.plan = self.path / PLAN
        self.run = self.path / RUN
        self.evaluation = self.path / EVALUATION
        self.report = self.path / REPORT
        self.log = self.path / LOG
        self._rounds = History(self.history, Round)
        self.streamed = History(self.path / STREAM, Streamed)
        self.selection = self.path / SELECTION
        self.learning = self.path / LEARNING
        self.epochs = History(self.path / EPOCHS, Epoch)
        self._held = ExitStack()  # lock, log and history, once they are open

    @classmethod
    def create(cls, path: str | os.PathLike[str], overwrite: bool = False) -> Self:
        """Start anew; `clear` removes the files of an earlier training when the new one is sure to begin.

        Raises
        ------
        ParameterError
            If the folder holds a model, a checkpoint or a descent, and `overwrite` is not set.
        ScratchError
            If the folder cannot be written, or another process trains in it.
        """
        folder = cls(path)
        with folder._opening():
            found = [file.name for file in (folder.model, folder.checkpoint, folder.learning) if file.exists()]
            if found and not overwrite:
                raise ParameterError(
                    f"{folder.path} already holds {' and '.join(found)}: continue that training with --resume"
                    " (resume=True), replace it with --overwrite (overwrite=True), or name another folder"
                )
        return folder

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
        if not folder.resumable:
            raise CheckpointError(f"{folder.path} has nothing to resume: train without --resume (resume=False)")
        with folder._opening():
            pass
        return folder

    @property
    def resumable(self) -> bool:
        """Whether there is something to go on from: a round, or a part of the descent that learns kernels."""
        return self.checkpoint.exists() or self.learning.exists()

    def clear(self) -> None:
        """Remove the files of an earlier training but for its log; all other files stay."""
        with writing(self.path):
            state = (self.model, self.checkpoint, self.history, self.streamed.path, self.plan, self.run)
            for file in (*state, self.selection, self.learning, self.epochs.path, self.evaluation, self.report):
                file.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files and give the lock back."""
        self._held.close()

    def append_history(self, event: Round) -> None:
        """Add a round to history.jsonl; it is on its way to the disk when this returns."""
        self._rounds.append(event)

    def cut_history(self, last_round: int) -> tuple[Round, ...]:
        """Forget the rounds after `last_round`, and a line cut short by a crash; return the rounds kept."""
        return self._rounds.cut(last_round)

    def read_history(self) -> tuple[Round, ...]:
        """The rounds of history.jsonl up to the first line that is damaged.

        A number that was not finite comes back as nan.
        """
        return self._rounds.read()

    def write_json(self, name: str, obj: Any) -> None:
        """Write a file of JSON; it is either the old one or the whole new one, also after a crash."""
        if Path(name).name != name:
            raise ParameterError(f"{name!r} is to be a file of the run folder: give a name without folders")
        text = json.dumps(jsonable(obj), indent=2, allow_nan=False) + "\n"
        with writing(self.path):
            write_whole(self.path / name, text)

    def record(self, event: Event) -> None:
        """Listen: every event goes to run.log, a round to history.jsonl, and an epoch to learning.jsonl."""
        if isinstance(event, Round):
            self.append_history(event)
        elif isinstance(event, Epoch):
            self.epochs.append(event)
        LOGGER.info("%s", describe(event))

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Take the lock, and start the log after the block; all is given back if one of them fails."""
        with ExitStack() as held:
            with writing(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
                held.enter_context(locked(self.path / LOCK))
                sweep_partial(self.path)
            held.callback(self._rounds.close)
            held.callback(self.streamed.close)
            held.callback(self.epochs.close)
            yield
            with writing(self.path):
                held.enter_context(log_to(self.log))
            self._held = held.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"
