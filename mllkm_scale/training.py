"""`train`: from a data set to a model with its certificate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mllkm_scale.base.events import Listener, Notice
from mllkm_scale.base.executor import Executor
from mllkm_scale.base.threads import n_threads
from mllkm_scale.data import Dataset
from mllkm_scale.data.collections import Collection, is_collection
from mllkm_scale.data.first_step import told_of
from mllkm_scale.data.weights import weigh
from mllkm_scale.errors import InterruptedTraining, ParameterError
from mllkm_scale.params import Params, resolve
from mllkm_scale.plan.training import BASE_BYTES, Plan
from mllkm_scale.report.finalize import ReportFinalizer
from mllkm_scale.run.folder import RunFolder
from mllkm_scale.run.learning_file import folder_seed
from mllkm_scale.run.result import TrainResult
from mllkm_scale.run.session import listeners_of, planned_rows, seeded, working_threads
from mllkm_scale.run.training import Training

if TYPE_CHECKING:
    from mllkm_scale.cluster import Client

__all__ = ["TrainResult", "dask_executor", "train"]

COLLECTION_BYTES = 130_000_000
"""dask's arrays and data frames, with pandas and pyarrow, which they load: 100 to 120 MB as measured."""


def train(
    dataset: Dataset | Collection | Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    test: Dataset | None = None,
    client: Client | None = None,
    run_dir: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    listener: Listener | None = None,
    should_stop: Callable[[], bool] | None = None,
    preset: str | None = None,
    held_bytes: int = 0,
    report: bool | None = None,
    image_shape: str | Sequence[int] | None = None,
    **params: Any,
) -> TrainResult:
    """Train a machine on a data set, within a memory budget, to a certified duality gap.

    Parameters
    ----------
    dataset : Dataset, or a collection
        Samples and labels, on disk or in memory, and optionally weights of the samples. Or the samples as a dask array,
        a dask DataFrame or an xarray object: its blocks are computed once, some at a time, by the workers of `client`
        or of the active client if there are any, and otherwise in this process. They are written to `scratch_dir`, or
        to `run_dir` if that is not given, and removed at the end.
    y : dask array, Series, DataArray or array, optional
        The labels of a collection.
    sample_weight : dask array, Series, DataArray or array, optional
        The weights of the rows of a collection, or of a Dataset without weights; they are kept in memory.
    test : Dataset, optional
        Labelled rows on which the model is tested at the end; the training does not depend on them.
    client : distributed.Client, optional
        Its workers scan the kernels and pass over the samples, while this process solves. They read data on disk by its
        path, and the files that this process writes to the run folder (or `scratch_dir`). The result is the same, bit
        for bit, as without workers.
    run_dir : path, optional
        Folder for the model, a checkpoint after each round, the history, the plan, the log and the report.
    resume : bool
        Continue from the checkpoint in `run_dir`; the result is the same, bit for bit, as that of an uninterrupted run.
    overwrite : bool
        Replace the training in `run_dir`.
    listener : callable, optional
        Called with every `Event` of the training.
    should_stop : callable, optional
        Called often; when it returns true, training stops with InterruptedTraining, and can be resumed.
    preset : str, optional
        "paper" for the settings of the paper; given parameters override it.
    held_bytes : int
        Memory of other arrays and libraries of the program; it counts within `memory_budget`.
    report : bool, optional
        Whether to write report.html to `run_dir` at the end; the default is the configuration (yes). If it fails, a
        notice says so, and nothing is lost.
    image_shape : text or sequence of int, optional
        "28x28" or (28, 28) if a row is an image of that height and width; the report then shows anchors as images.
    **params
        The parameters of `MLLKMClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> result = train(Dataset.from_arrays(*load_iris(return_X_y=True)), finish="mkl", n_jobs=1)
    >>> result.status, result.model.certificate.gap <= 0.01
    ('converged', True)
    """
    settings = resolve(preset, **params)
    with ExitStack() as stack:
        if not isinstance(dataset, Dataset):
            held_bytes += COLLECTION_BYTES
            room_bytes = settings.budget_bytes - BASE_BYTES - held_bytes
            parent = settings.scratch_dir or run_dir
            dataset = stack.enter_context(_stored(dataset, y, settings, client, parent, room_bytes, should_stop))
        elif y is not None:
            raise ParameterError("y is for collections of dask or xarray: a Dataset has its own labels")
        if sample_weight is not None:
            dataset = dataset.with_weights(np.asarray(sample_weight))
        relative, budget_bytes = settings.C == "auto", settings.budget_bytes
        weighed = weigh(dataset, settings.class_weight, relative=relative, budget_bytes=budget_bytes)
        dataset = weighed.dataset
        rows = planned_rows(dataset, test, settings, stack, run_dir, held_bytes)
        dataset, step, plan = rows.dataset, rows.step, rows.plan
        finalizer = ReportFinalizer.checked(dataset, rows.test, image_shape, report if run_dir is not None else False)
        folder = None
        if run_dir is not None:
            open_folder = RunFolder.resume if resume else lambda path: RunFolder.create(path, overwrite)
            folder = stack.enter_context(open_folder(run_dir))
        settings = seeded(settings, partial(folder_seed, folder) if folder and resume else None)
        tell = listeners_of(settings, listener, None if folder is None else folder.record)
        threads = stack.enter_context(working_threads(settings))
        training = Training(settings, plan, threads, tell, folder, should_stop, finalizer, step)
        for line in told_of(step, settings.verbose):
            tell(Notice(line))
        if client is not None:
            run_path = None if folder is None else folder.path
            training.work_on(stack.enter_context(dask_executor(client, run_path, settings, plan, training.poll, tell)))
        result = training.run(dataset, resume)
        return replace(result, support_duals=result.support_duals.among(weighed.n_rows, weighed.kept))


def _stored(
    X: Any,
    y: Any,
    settings: Params,
    client: Client | None,
    parent: str | Path | None,
    room_bytes: int,
    should_stop: Callable[[], bool] | None,
) -> AbstractContextManager[Dataset]:
    """A collection, and its labels, in files that the training reads."""
    from mllkm_scale.cluster.collections import stored

    def poll() -> None:
        if should_stop is not None and should_stop():
            raise InterruptedTraining("training was interrupted: no round had ended")

    if not (isinstance(X, Collection) or is_collection(X)):
        raise ParameterError(
            f"there is no training on a {type(X).__name__}: give a Dataset, such as Dataset.open('train.h5') or"
            " Dataset.from_arrays(X, y), or a collection of dask or xarray with its labels"
        )
    return stored(
        X if isinstance(X, Collection) else Collection.of(X, y),
        None if parent is None else Path(parent),
        client=client,
        threads=n_threads(settings.n_jobs),
        room_bytes=room_bytes,
        timeout_s=settings.worker_timeout,
        poll=poll,
    )


def dask_executor(
    client: Client, run_dir: Path | None, params: Params, plan: Plan, poll: Callable[[], None], listener: Listener
) -> AbstractContextManager[Executor]:
    """The workers of a client as the executor of one training run, or of several in turn."""
    from mllkm_scale.cluster.executor import dask_executor as open_executor

    return open_executor(
        client,
        run_dir,
        None if params.scratch_dir is None else Path(params.scratch_dir),
        timeout_s=params.worker_timeout,
        worker_bytes=plan.worker_bytes,
        poll=poll,
        notify=lambda text: listener(Notice(text)),
    )
