"""The folder of a training run or a stream: model, checkpoint, history, plan and log, held by one process at a time.

    model.mllkm      the model, once training has ended
    checkpoint.npz   the state after the last round
    history.jsonl    one JSON object per round
    selection.json   the settings that were compared, their errors on held-out rows, and the choice
    size.json        with `max_bytes`: the size that was chosen
    learning.npz     the state of the descent that learns kernels; after its end, the learned kernels
    learning.jsonl   one JSON object per epoch of the descent
    stream.jsonl     for a stream instead of the history: one JSON object per some hundred samples
    plan.json        the planned use of memory
    run.json         parameters, data, versions; at the end the result
    evaluation.json  errors of the model on the test rows, if there are any
    report.html      the report, with pictures
    run.log          the log, with times
    .lock            the process that works in the folder

A JSON file appears completely or not at all; history and log grow line by line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from mllkm_scale.base.closing import Closing
from mllkm_scale.base.events import Epoch, Event, Round, Streamed, jsonable
from mllkm_scale.base.files.folders import require_path, writing
from mllkm_scale.base.files.whole import sweep_partial, write_whole
from mllkm_scale.base.wording import describe
from mllkm_scale.errors import CheckpointError, ParameterError
from mllkm_scale.run.history import LOGGER, History, log_to
from mllkm_scale.run.lock import locked

__all__ = ["RunFolder"]

MODEL, CHECKPOINT, HISTORY, STREAM = "model.mllkm", "checkpoint.npz", "history.jsonl", "stream.jsonl"
SELECTION, SIZE, LEARNING, EPOCHS = "selection.json", "size.json", "learning.npz", "learning.jsonl"
PLAN, RUN, LOG, LOCK = "plan.json", "run.json", "run.log", ".lock"
EVALUATION, REPORT = "evaluation.json", "report.html"


class RunFolder(Closing):
    """The files of one training run.

    Make one with `create` or `resume`. They acquire the lock of the folder, and `close`, the end of a `with` block or
    the end of the process releases it. While the folder is open, log messages of the package are also written to
    run.log.

    Attributes
    ----------
    path, model, checkpoint, selection, size, learning, history, plan, run, evaluation, report, log : pathlib.Path
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
        self.size = self.path / SIZE
        self.learning = self.path / LEARNING
        self.epochs = History(self.path / EPOCHS, Epoch)
        self._held = ExitStack()  # lock, log and history that are open

    @classmethod
    def create(cls, path: str | os.PathLike[str], overwrite: bool = False) -> Self:
        """Start a new run; `clear` removes the files of an earlier one as soon as the new one has begun.

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
        """Continue the run of a folder; call `load_checkpoint` and `cut_history` afterwards.

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
        """Whether the run can be continued: from a round, or from a part of the descent that learns kernels."""
        return self.checkpoint.exists() or self.learning.exists()

    def clear(self) -> None:
        """Remove the files of an earlier training run except its log; all other files stay."""
        with writing(self.path):
            state = (self.model, self.checkpoint, self.history, self.streamed.path, self.plan, self.run)
            before = (self.selection, self.size, self.learning, self.epochs.path)
            for file in (*state, *before, self.evaluation, self.report):
                file.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files and release the lock."""
        self._held.close()

    def append_history(self, event: Round) -> None:
        """Add a round to history.jsonl, and flush it."""
        self._rounds.append(event)

    def cut_history(self, last_round: int) -> tuple[Round, ...]:
        """Remove the rounds after `last_round`, and an incomplete line; return the remaining rounds."""
        return self._rounds.cut(last_round)

    def read_history(self) -> tuple[Round, ...]:
        """The rounds of history.jsonl up to the first line that is damaged.

        Numbers that were not finite are nan.
        """
        return self._rounds.read()

    def write_json(self, name: str, obj: Any) -> None:
        """Write a JSON file; even after a crash, it is either the old one or the complete new one."""
        if Path(name).name != name:
            raise ParameterError(f"{name!r} is to be a file of the run folder: give a name without folders")
        text = json.dumps(jsonable(obj), indent=2, allow_nan=False) + "\n"
        with writing(self.path):
            write_whole(self.path / name, text)

    def record(self, event: Event) -> None:
        """Record an event in run.log, a round also in history.jsonl, and an epoch in learning.jsonl."""
        if isinstance(event, Round):
            self.append_history(event)
        elif isinstance(event, Epoch):
            self.epochs.append(event)
        LOGGER.info("%s", describe(event))

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Acquire the lock, and start the log after the block; release everything if one of them fails."""
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

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"
