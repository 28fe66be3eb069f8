"""`stream`: the whole way of streamed samples, from a source to a model, with a record, checkpoints and resume."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from numpy.typing import ArrayLike

from mllkm_scale import __version__
from mllkm_scale.data import Dataset
from mllkm_scale.errors import DataError, InterruptedTraining, ParameterError
from mllkm_scale.model.model import Model
from mllkm_scale.online.learner import OnlineLearner
from mllkm_scale.online.look import model_of
from mllkm_scale.online.machine import EPISODE
from mllkm_scale.online.params import SHARED, OnlineParams
from mllkm_scale.online.saved import fingerprint, restore, saved_state
from mllkm_scale.online.sources.samples import CHUNK_ROWS, Chunk, Samples
from mllkm_scale.online.workers import enlisted_for
from mllkm_scale.params import Params, resolve
from mllkm_scale.run.checkpoint import checkpoint_seed, load_checkpoint, save_checkpoint
from mllkm_scale.run.events import Listener, Notice, Phase, Streamed, StreamEnded
from mllkm_scale.run.folder import RunFolder
from mllkm_scale.run.memory import peak_bytes, rss_bytes
from mllkm_scale.run.progress import PlainProgress, broadcast
from mllkm_scale.run.wording import percent

if TYPE_CHECKING:
    from mllkm_scale.cluster import Client

__all__ = ["StreamResult", "stream", "stream_params"]

_SILENCE = 0.25  # share of samples out of reach, from which on it is told
_UNLIKE = (
    "they are unlike the first ones, from which scaling and gammas were taken; shuffle the data, or give a larger"
    " warm_up, samples to prepare from, or other scaling or gammas"
)
_TELL_S = 2.0  # between two reports to whoever listens


@dataclass(frozen=True)
class StreamResult:
    """The model at the end of a stream, its record, and how it ended."""

    model: Model
    history: tuple[Streamed, ...]
    ended: StreamEnded


def stream_params(given: dict[str, Any]) -> tuple[Params, OnlineParams]:
    """Parameters by name, as those of the machine and those of learning online alone; unknown ones are refused."""
    own = {spec.name for spec in fields(OnlineParams)}
    if other := sorted(set(given) - own - set(SHARED) - {"verbose"}):
        raise ParameterError(
            f"{other[0]!r} is no parameter of learning online: known are {', '.join([*SHARED, *sorted(own)])}"
        )
    online = OnlineParams(**{name: value for name, value in given.items() if name in own})
    return resolve(**{name: value for name, value in given.items() if name not in own}), online.check()


def stream(
    samples: Samples,
    *,
    classes: ArrayLike | None = None,
    like: Dataset | None = None,
    client: Client | None = None,
    run_dir: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    listener: Listener | None = None,
    should_stop: Callable[[], bool] | None = None,
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    checkpoint_s: float = 30.0,
    held_bytes: int = 0,
    **params: Any,
) -> StreamResult:
    """Learn from a stream of samples, each predicted before it is learned, within a memory budget.

    Parameters
    ----------
    samples : Samples
        Where they come from, such as `open_samples`, `DatasetSamples` or `IterableSamples`.
    classes : array-like, optional
        All labels that can come; without, those of the first `warm_up` samples are all.
    like : Dataset, optional
        Samples like those that will come, from which scaling, projection, gammas and C are taken; by default they are
        the first `warm_up` that come.
    client : distributed.Client, optional
        Its workers probe kernels, where that is worth it; the result has the same bits.
    run_dir : path, optional
        Folder for the model, checkpoints, the record and the log.
    resume : bool
        Go on from the checkpoint in `run_dir`: samples that were learned are skipped, and the result has the bits of a
        stream that was never interrupted. A stream that ended may be resumed by a longer one.
    overwrite : bool
        Replace what `run_dir` holds.
    listener : callable, optional
        Is told every `Event`.
    should_stop : callable, optional
        Asked after each chunk, or a thousand samples of it; when it returns true, a checkpoint is written, and
        InterruptedTraining raised.
    waiting : callable
        Makes the context in which the next chunk is waited for; a KeyboardInterrupt there ends the stream likewise.
    checkpoint_s : float
        Seconds from one checkpoint to the next.
    held_bytes : int
        Memory of what the program holds beside, within `memory_budget`.
    **params
        `max_samples`, `window`, `warm_up`, and those parameters of `MLLKMClassifier` that mean the same to it.

    Examples
    --------
    >>> from mllkm_scale.data import Dataset
    >>> from mllkm_scale.online import DatasetSamples
    >>> from sklearn.datasets import load_digits
    >>> digits = DatasetSamples(Dataset.from_arrays(*load_digits(return_X_y=True)))
    >>> result = stream(digits, warm_up=512, n_jobs=1)
    >>> result.ended.n_samples, result.ended.error < 0.1, result.model.n_kernels == result.ended.n_kernels
    (1797, True, True)
    """
    settings, online = stream_params(params)
    if not (isinstance(checkpoint_s, int | float) and 0 <= checkpoint_s < math.inf):
        raise ParameterError(f"checkpoint_s={checkpoint_s!r}: give a number of seconds, at least 0")
    with ExitStack() as stack:
        folder = None
        if run_dir is not None:
            opened = RunFolder.resume(run_dir) if resume else RunFolder.create(run_dir, overwrite)
            folder = stack.enter_context(opened)
        if settings.random_state is None:
            seed = checkpoint_seed(folder.checkpoint) if folder and resume else secrets.randbits(63)
            settings = replace(settings, random_state=seed)
        own = PlainProgress() if settings.verbose else None
        tell = broadcast(listener, own, None if folder is None else folder.record)
        learner = OnlineLearner(settings, online, classes, like=like, held_bytes=held_bytes)
        stack.callback(learner.close)
        streaming = Streaming(learner, samples, tell, folder, should_stop, waiting, checkpoint_s)
        where = None if folder is None else folder.path
        stack.enter_context(enlisted_for(learner, client, where, lambda text: tell(Notice(text))))
        return streaming.run(resume)


class Streaming:
    """A stream under way: its learner, record, checkpoints and events."""

    def __init__(
        self,
        learner: OnlineLearner,
        samples: Samples,
        listener: Listener,
        folder: RunFolder | None,
        should_stop: Callable[[], bool] | None,
        waiting: Callable[[], AbstractContextManager[None]],
        checkpoint_s: float,
    ) -> None:
        self.learner, self.samples, self.listener, self.folder = learner, samples, listener, folder
        self.should_stop, self.waiting, self.checkpoint_s = should_stop, waiting, checkpoint_s
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
            if not self.learner.n_seen:
                self.begin(chunk.X.shape[1])
            self.learn(chunk)
        if self.samples.remark:
            self.listener(Notice(self.samples.remark))
        return self.finish()

    def begin(self, n_features: int) -> None:
        """Refuse a budget that is too small before anything is learned, or lost of what the folder holds."""
        n_classes = 2 if self.learner.classes is None else len(self.learner.classes)
        self.learner.plan(n_features, n_classes)
        if self.folder is not None:
            self.folder.clear()
        self.plan(n_features, n_classes)

    def learn(self, chunk: Chunk) -> None:
        """Samples of a chunk, which may be a large one, with an ear for who wants to stop."""
        for start in range(0, len(chunk), CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            self.learner.learn(chunk.X[part], chunk.y[part], chunk.ids[part], new=chunk.new)
            if self.should_stop is not None and self.should_stop():
                self.interrupt()
            if time.perf_counter() - self.saved_s >= self.checkpoint_s:
                self.checkpoint()

    def next_of(self, chunks: Iterator[Chunk]) -> Chunk | None:
        """The next samples, which may have to be waited for."""
        try:
            with self.waiting():
                return next(chunks, None)
        except KeyboardInterrupt:
            self.interrupt()
        except DataError:  # of a line, perhaps: what was learned before it is kept
            if self.learner.started is not None:
                self.checkpoint()
            raise

    def interrupt(self) -> NoReturn:
        """Between two samples: nothing is lost."""
        if not self.learner.n_seen:
            raise InterruptedTraining("the stream was interrupted before its first sample")
        self.checkpoint()
        kept = "no folder for a checkpoint was given" if self.folder is None else "the checkpoint is written"
        raise InterruptedTraining(f"the stream was interrupted after {self.learner.n_seen:,} samples: {kept}")

    def after_block(self, learner: OnlineLearner) -> None:
        """A report for each episode: all into the record, some to whoever listens."""
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
                Notice(f"{percent(silence)} of the latest samples are out of reach of every kernel: {_UNLIKE}")
            )
        if now - self.told_s >= _TELL_S:
            self.told_s = now
            self.listener(report)

    def plan(self, n_features: int, n_classes: int) -> dict[str, Any]:
        """Where the memory goes; so it stands in the folder."""
        plan = self.learner.plan(n_features, n_classes).as_dict()
        if self.folder is not None:
            self.folder.write_json("plan.json", plan)
        return plan

    def elapsed_s(self) -> float:
        return self.elapsed_before_s + time.perf_counter() - self.started_s

    def samples_per_s(self, n_seen: int) -> float:
        """Since this process began to learn; waiting for samples counts."""
        return (n_seen - self.n_before) / max(1e-9, time.perf_counter() - self.started_s)

    def checkpoint(self, *, with_model: bool = True) -> None:
        """Save the state, of which samples that wait are a part, and the model, so that others can predict with it."""
        self.saved_s = time.perf_counter()
        if self.folder is None or not self.learner.n_seen:
            return
        header, arrays = saved_state(self.learner)
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
        """Take up the state and the record of the checkpoint."""
        if self.folder is None:
            raise ParameterError("resume=True needs the folder of the stream: give run_dir")
        header, arrays = load_checkpoint(self.folder.checkpoint, fingerprint(self.learner))
        restore(self.learner, header, arrays)
        self.history = list(self.folder.streamed.cut(header["round"]))
        self.elapsed_before_s = header["elapsed_s"]

    def finish(self) -> StreamResult:
        """The finished model, and the end of the record; the state is kept, so that more samples may follow."""
        learner = self.learner
        self.checkpoint(with_model=False)
        setup, machine = learner.finished()
        model = model_of(setup, machine.active, learner.params, learner.n_seen)
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
                "data": {"name": self.samples.name, "features": model.n_features_in},
                "parameters": dict(model.certificate.params) | vars(learner.online),
                "plan": self.plan(model.n_features_in, len(model.classes)),
                "result": vars(ended),
            }
            self.folder.write_json("run.json", record)
        self.listener(ended)
        return StreamResult(model, tuple(self.history), ended)
