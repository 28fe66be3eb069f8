"""The run of a stream: samples from a source are learned, recorded and saved, until they end or the user stops."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NoReturn

from mllkm_scale.base.events import Listener, Notice, Phase, Streamed, StreamEnded
from mllkm_scale.base.memory import peak_bytes, rss_bytes
from mllkm_scale.base.schemas import StreamHeader
from mllkm_scale.base.version import __version__
from mllkm_scale.base.wording import percent
from mllkm_scale.errors import DataError, InterruptedTraining, ParameterError
from mllkm_scale.model.evaluation import Evaluation
from mllkm_scale.model.model import Model
from mllkm_scale.model.names import listed_names, unique_names
from mllkm_scale.online.learner import OnlineLearner
from mllkm_scale.online.machine import EPISODE
from mllkm_scale.online.saved import fingerprint, restore, saved_state
from mllkm_scale.online.sources.samples import CHUNK_ROWS, Chunk, Samples
from mllkm_scale.report.finalize import ReportFinalizer
from mllkm_scale.run.checkpoint import fitting, load_checkpoint, save_checkpoint
from mllkm_scale.run.folder import RunFolder

__all__ = ["StreamResult", "Streaming"]

_SILENCE = 0.25  # share of samples without active kernels above which a notice is given
_UNLIKE = (
    "they are unlike the first ones, which determined scaling and gammas; shuffle the data, or give a larger"
    " warm_up, samples to prepare from, or other scaling or gammas"
)
_TELL_S = 2.0  # between two events for the listener


@dataclass(frozen=True)
class StreamResult:
    """The model at the end of a stream, its record, its status, and its evaluation on test rows, if there are any."""

    model: Model
    history: tuple[Streamed, ...]
    ended: StreamEnded
    evaluation: Evaluation | None = None


class Streaming:
    """The run of a stream: its learner, record, checkpoints and events."""

    def __init__(
        self,
        learner: OnlineLearner,
        samples: Samples,
        listener: Listener,
        folder: RunFolder | None,
        should_stop: Callable[[], bool] | None,
        waiting: Callable[[], AbstractContextManager[None]],
        checkpoint_s: float,
        finalizer: ReportFinalizer,
    ) -> None:
        self.learner, self.samples, self.listener, self.folder = learner, samples, listener, folder
        self.should_stop, self.waiting, self.checkpoint_s = should_stop, waiting, checkpoint_s
        self.finalizer = finalizer
        self.history: list[Streamed] = []
        self.started_s = self.saved_s = time.perf_counter()
        self.told_s, self.warned = -math.inf, False
        self.elapsed_before_s, self.n_before = 0.0, 0
        learner.listen = self.after_block

    def run(self, resume: bool) -> StreamResult:
        if resume:
            self.restore()
        self.n_before = self.learner.n_seen
        self.listener(Phase("stream", f"{self.samples.name}, from sample {self.n_before:,}"))
        chunks = self.samples.chunks(skip=self.n_before)
        while (chunk := self.next_of(chunks)) is not None:
            self.name_features()
            if not self.learner.n_seen:
                self.begin(chunk.X.shape[1])
            self.learn(chunk)
        if self.samples.remark:
            self.listener(Notice(self.samples.remark))
        return self.finish()

    def name_features(self) -> None:
        """Use the feature names of the samples for the model; a resumed stream must have them in the same order."""
        self.learner.take_columns(getattr(self.samples, "columns", None), self.samples.name)
        learner, names = self.learner, unique_names(getattr(self.samples, "feature_names", None))
        if names is None or names == learner.feature_names:
            return
        if learner.feature_names is not None:
            raise DataError(
                f"{self.samples.name} has the columns {listed_names(names)}, but what was learned so far had"
                f" {listed_names(learner.feature_names)}: give them in the same order"
            )
        learner.feature_names = names

    def begin(self, n_features: int) -> None:
        """Refuse a budget that is too small before anything is learned, or files of the folder are removed."""
        n_classes = 2 if self.learner.classes is None else len(self.learner.classes)
        self.learner.plan(n_features, n_classes)
        self.finalizer.require_width(n_features)
        if self.folder is not None:
            self.folder.clear()
        self.plan(n_features, n_classes)

    def learn(self, chunk: Chunk) -> None:
        """Learn the samples of a chunk, and poll for a stop in large chunks."""
        for start in range(0, len(chunk), CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            weights = None if chunk.weights is None else chunk.weights[part]
            self.learner.learn(chunk.X[part], chunk.y[part], chunk.ids[part], new=chunk.new, sample_weight=weights)
            if self.should_stop is not None and self.should_stop():
                self.interrupt()
            if time.perf_counter() - self.saved_s >= self.checkpoint_s:
                self.checkpoint()

    def next_of(self, chunks: Iterator[Chunk]) -> Chunk | None:
        """The next samples, possibly after waiting."""
        try:
            with self.waiting():
                return next(chunks, None)
        except KeyboardInterrupt:
            self.interrupt()
        except DataError:  # a bad line, for example: what was learned before it is kept
            if self.learner.started is not None:
                self.checkpoint()
            raise

    def interrupt(self) -> NoReturn:
        """Stop between two samples, without loss."""
        if not self.learner.n_seen:
            raise InterruptedTraining("the stream was interrupted before its first sample")
        self.checkpoint()
        kept = "no folder for a checkpoint was given" if self.folder is None else "the checkpoint is written"
        raise InterruptedTraining(f"the stream was interrupted after {self.learner.n_seen:,} samples: {kept}")

    def after_block(self, learner: OnlineLearner) -> None:
        """Report each episode: all reports go to the record, and some to the listener."""
        assert learner.started is not None
        setup, machine = learner.started
        if machine.n_blocks % EPISODE:
            return
        if not machine.n_blocks:
            self.plan(setup.preprocessor.n_features_in, len(setup.classes))
        now = time.perf_counter()
        report = Streamed(
            number=machine.n_seen,
            error=learner.prequential.error,
            recent_error=learner.prequential.recent_error,
            n_kernels=len(machine.active),
            n_kept=len(machine.kept),
            n_support=len(machine.support()),
            inserted=machine.inserted,
            dropped=machine.dropped,
            forgotten=machine.forgotten,
            samples_per_s=self.samples_per_s(machine.n_seen),
            rss_bytes=rss_bytes(),
            budget_bytes=learner.params.budget_bytes,
            elapsed_s=self.elapsed_s(),
        )
        self.history.append(report)
        if self.folder is not None:
            self.folder.streamed.append(report)
        silence = learner.prequential.recent_silence
        if silence > _SILENCE and not self.warned:
            self.warned = True
            self.listener(
                Notice(f"{percent(silence)} of the latest samples are out of reach of all kernels: {_UNLIKE}")
            )
        if now - self.told_s >= _TELL_S:
            self.told_s = now
            self.listener(report)

    def plan(self, n_features: int, n_classes: int) -> dict[str, Any]:
        """The memory plan, which is also written to the folder."""
        plan = self.learner.plan(n_features, n_classes).as_dict()
        if self.folder is not None:
            self.folder.write_json("plan.json", plan)
        return plan

    def elapsed_s(self) -> float:
        return self.elapsed_before_s + time.perf_counter() - self.started_s

    def samples_per_s(self, n_seen: int) -> float:
        """Samples per second since this process began to learn, including the time of waiting."""
        return (n_seen - self.n_before) / max(1e-9, time.perf_counter() - self.started_s)

    def checkpoint(self, *, with_model: bool = True) -> None:
        """Save the state, including waiting samples, and the model, so that others can predict with it."""
        self.saved_s = time.perf_counter()
        if self.folder is None or not self.learner.n_seen:
            return
        header, arrays = saved_state(self.learner)
        header |= {"feature_names": self.learner.feature_names}
        header |= {"seed": int(self.learner.params.random_state or 0), "elapsed_s": self.elapsed_s()}
        save_checkpoint(
            self.folder.checkpoint,
            fingerprint=fingerprint(self.learner),
            round=self.learner.n_seen,
            header=header,
            arrays=arrays,
        )
        if with_model and self.learner.started is not None:
            self.learner.model().save(self.folder.model)

    def restore(self) -> None:
        """Continue from the state and the record of the checkpoint."""
        if self.folder is None:
            raise ParameterError("resume=True needs the folder of the stream: give run_dir")
        header, arrays = load_checkpoint(self.folder.checkpoint, fingerprint(self.learner), StreamHeader)
        with fitting(self.folder.checkpoint):
            restore(self.learner, header, arrays)
        names = header.get("feature_names")
        self.learner.feature_names = None if names is None else tuple(names)
        self.history = list(self.folder.streamed.cut(header["round"]))
        self.elapsed_before_s = header["elapsed_s"]

    def finish(self) -> StreamResult:
        """The final model, and the end of the record; the state is kept, so that more samples may follow."""
        learner = self.learner
        self.checkpoint(with_model=False)
        setup, machine = learner.finished()
        model = learner.model_of(setup, machine)
        ended = StreamEnded(
            status="ended",
            n_samples=learner.n_seen,
            error=learner.prequential.error,
            recent_error=learner.prequential.recent_error,
            n_kernels=model.n_kernels,
            n_kept=len(machine.kept),
            gap=machine.objective().gap,
            samples_per_s=self.samples_per_s(learner.n_seen),
            peak_bytes=peak_bytes(),
            budget_bytes=learner.params.budget_bytes,
            elapsed_s=self.elapsed_s(),
        )
        if self.folder is not None:
            model.save(self.folder.model)
            record = {
                "version": __version__,
                "data": {
                    "name": self.samples.name,
                    "features": model.n_features_in,
                    "feature_names": self.samples.feature_names,
                    "image_shape": self.finalizer.image_shape,
                },
                "parameters": dict(model.certificate.params) | vars(learner.online),
                "plan": self.plan(setup.preprocessor.n_features_in, len(model.classes)),
                "result": vars(ended),
            }
            self.folder.write_json("run.json", record)
        evaluation = self.finalizer.measure(model, self.folder, self.listener, learner.params.n_jobs)
        self.finalizer.draw(model, self.folder, self.listener)
        self.listener(ended)
        return StreamResult(model, tuple(self.history), ended, evaluation)
