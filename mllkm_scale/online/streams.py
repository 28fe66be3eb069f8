"""`stream`: learns from streamed samples, from a source to a model, with a record, checkpoints and resume."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from mllkm_scale.base.events import Listener, Notice
from mllkm_scale.data import Dataset
from mllkm_scale.errors import ParameterError
from mllkm_scale.online.learner import OnlineLearner
from mllkm_scale.online.params import stream_params
from mllkm_scale.online.sources.samples import Samples
from mllkm_scale.online.streaming import Streaming, StreamResult
from mllkm_scale.online.workers import probing_workers
from mllkm_scale.report.finalize import ReportFinalizer
from mllkm_scale.run.checkpoint import checkpoint_seed
from mllkm_scale.run.folder import RunFolder
from mllkm_scale.run.session import listeners_of, seeded

if TYPE_CHECKING:
    from mllkm_scale.cluster import Client

__all__ = ["StreamResult", "stream"]


def stream(
    samples: Samples,
    *,
    classes: ArrayLike | None = None,
    like: Dataset | None = None,
    test: Dataset | None = None,
    client: Client | None = None,
    run_dir: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    listener: Listener | None = None,
    should_stop: Callable[[], bool] | None = None,
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    checkpoint_s: float = 30.0,
    held_bytes: int = 0,
    report: bool | None = None,
    image_shape: str | Sequence[int] | None = None,
    **params: Any,
) -> StreamResult:
    """Learn from a stream of samples, each predicted before it is learned, within a memory budget.

    Parameters
    ----------
    samples : Samples
        The source of the samples, such as `open_samples`, `DatasetSamples` or `IterableSamples`.
    classes : array-like, optional
        All labels that may occur; by default those of the first `warm_up` samples.
    like : Dataset, optional
        Samples like those that will come, from which scaling, projection, gammas and C are computed; by default the
        first `warm_up` samples.
    test : Dataset, optional
        Labelled rows on which the model is tested at the end.
    client : distributed.Client, optional
        Its workers probe kernels if that saves time; the result is the same, bit for bit.
    run_dir : path, optional
        Folder for the model, checkpoints, the record, the log and the report.
    resume : bool
        Continue from the checkpoint in `run_dir`: samples that were learned are skipped, and the result is the same,
        bit for bit, as that of an uninterrupted stream. A stream that has ended may be resumed with a longer one.
    overwrite : bool
        Replace the contents of `run_dir`.
    listener : callable, optional
        Called with every `Event`.
    should_stop : callable, optional
        Called after each chunk, or after a thousand samples of a long one; when it returns true, a checkpoint is
        written and InterruptedTraining is raised.
    waiting : callable
        Returns a context in which the stream waits for the next chunk; a KeyboardInterrupt there ends the stream in the
        same way.
    checkpoint_s : float
        Seconds from one checkpoint to the next.
    held_bytes : int
        Memory of other arrays and libraries of the program; it counts within `memory_budget`.
    report : bool, optional
        Whether to write report.html to `run_dir` at the end; the default is the configuration (yes).
    image_shape : text or sequence of int, optional
        "28x28" or (28, 28) if a sample is an image of that height and width; the report then shows anchors as images.
    **params
        `max_samples`, `window`, `warm_up`, and the parameters of `MLLKMClassifier` that apply to streams.

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
        settings = seeded(settings, partial(checkpoint_seed, folder.checkpoint) if folder and resume else None)
        tell = listeners_of(settings, listener, None if folder is None else folder.record)
        learner = OnlineLearner(settings, online, classes, like=like, held_bytes=held_bytes)
        stack.callback(learner.close)
        finalizer = ReportFinalizer.of_stream(test, image_shape, report if folder is not None else False)
        streaming = Streaming(learner, samples, tell, folder, should_stop, waiting, checkpoint_s, finalizer)
        where = None if folder is None else folder.path
        stack.enter_context(probing_workers(learner, client, where, lambda text: tell(Notice(text))))
        return streaming.run(resume)
