"""`train_path`: models of several sizes, each trained from the one before it.

    Cs               from the smallest on: duals at their bound stay there, kernels and working samples are kept
    kernel_counts    from the largest on: each starts with the largest weights of the one before, and exchanges kernels

Models below several numbers of bytes on a device are trained separately (`path.device`). Otherwise, data are prepared
once, and kernels are learned once. Every model has its own certificate over all candidate kernels.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mllkm_scale.base.events import Listener, Notice
from mllkm_scale.base.executor import Executor, ThreadExecutor
from mllkm_scale.base.threads import Threads
from mllkm_scale.base.wording import percent
from mllkm_scale.data import Dataset, check
from mllkm_scale.data.first_step import FirstStep
from mllkm_scale.data.subset import split
from mllkm_scale.data.weights import weigh
from mllkm_scale.errors import InterruptedTraining, ParameterError
from mllkm_scale.mkl.algorithm2 import PaperState
from mllkm_scale.mkl.certificate import Proof
from mllkm_scale.mkl.state import State
from mllkm_scale.model.evaluation import Evaluation
from mllkm_scale.model.files import load_model
from mllkm_scale.model.model import Model
from mllkm_scale.params import Params, resolve
from mllkm_scale.path.folder import PathFolder
from mllkm_scale.path.limits import PathValues, parse_limits, path_values
from mllkm_scale.path.points import PathPoint, best_point, costs_of, knee_point
from mllkm_scale.plan.training import Plan
from mllkm_scale.report.finalize import ReportFinalizer
from mllkm_scale.run.checked_state import StateSizes, require_end
from mllkm_scale.run.folder import RunFolder
from mllkm_scale.run.machines import COLD, Machines, Start, columns_of_machines
from mllkm_scale.run.problem import Problem, build_problem
from mllkm_scale.run.progress.listeners import broadcast
from mllkm_scale.run.result import TrainResult
from mllkm_scale.run.session import Resources, listeners_of, planned_rows, seeded, working_threads
from mllkm_scale.run.training import Training
from mllkm_scale.run.tuning.choice import learned_near_margin
from mllkm_scale.training import dask_executor

if TYPE_CHECKING:
    from mllkm_scale.cluster import Client

__all__ = ["PathResult", "PathTraining", "in_words", "train_path"]

VALIDATION_SHARE = 0.2


@dataclass(frozen=True)
class PathResult:
    """The points of a path, in the order of their training, and their models."""

    points: tuple[PathPoint, ...]
    models: tuple[Model, ...]

    @property
    def knee(self) -> PathPoint:
        """The point beyond which accuracy becomes expensive; see `mllkm_scale.path.points`."""
        return knee_point(self.points)

    def best(self, below: str | Sequence[str] | None = None) -> PathPoint:
        """The point with the lowest validation error within limits such as "20us" per row, or "100kB"."""
        return best_point(self.points, parse_limits(below))

    def model(self, point: PathPoint) -> Model:
        """The model of a point."""
        return self.models[self.points.index(point)]


def train_path(
    dataset: Dataset,
    validation: Dataset | float | None = VALIDATION_SHARE,
    *,
    Cs: Sequence[float] | None = None,
    kernel_counts: Sequence[float] | None = None,
    byte_counts: Sequence[str | int] | None = None,
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
    calibrate: bool = True,
    **params: Any,
) -> PathResult:
    """Train models of several sizes, each from the one before it, and measure their costs.

    Parameters
    ----------
    dataset : Dataset
        Samples and labels, on disk or in memory.
    validation : Dataset or float or None
        Labelled rows to test the models on, or the share of `dataset` to hold out for this. With None, no error is
        measured.
    Cs : sequence of float, optional
        Values of C, trained from the smallest to the largest. If neither this nor `kernel_counts` is given: seven
        values around the automatic one.
    kernel_counts : sequence of int, optional
        Values of `max_kernels`, trained from the largest to the smallest; C is the parameter of that name.
    byte_counts : sequence of str or int, optional
        Values of `max_bytes`, such as "16kB". Errors and bytes are those of the machine in integers, and the folder of
        each model has its C header, model.h.
    client, listener, should_stop, preset, held_bytes, report, image_shape
        As in `train`; the reports are those of the models.
    run_dir : path, optional
        Folder for path.json, and a run folder for each model.
    resume, overwrite : bool
        Continue the path in `run_dir`, or replace it.
    calibrate : bool
        Whether the models get a calibration, for which rows of `dataset` are held out again. Without it, they have no
        probabilities.
    **params
        The parameters of `MLLKMClassifier`, for all models; limits such as `max_rounds` apply to each model.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> data = Dataset.from_arrays(*load_iris(return_X_y=True))
    >>> path = train_path(data, 0.3, kernel_counts=[16, 4, 1], n_jobs=1)
    >>> [point.n_kernels for point in path.points][1:], path.best("1MB").error <= path.points[-1].error
    ([4, 1], True)
    >>> path.model(path.knee).predict([[5.0, 3.5, 1.5, 0.2]]).tolist()
    [0]
    """
    values, settings = path_values(Cs, kernel_counts, byte_counts), resolve(preset, **params)
    if validation is None and run_dir is not None:
        raise ParameterError(
            "validation=None: models of a path are chosen by their errors: give rows, or a share of the data"
        )
    with ExitStack() as stack:
        folder = None
        if run_dir is not None:
            folder = stack.enter_context(PathFolder(Path(run_dir), resume=resume, overwrite=overwrite))
        resumed = folder if resume else None
        settings = seeded(settings, None if resumed is None else lambda: int(resumed.facts["seed"]))
        if isinstance(validation, float | int):
            check(dataset)  # before rows are selected, so that messages have the right row numbers
            dataset, validation = split(dataset, validation, int(settings.random_state or 0))
        automatic = Cs is None and (kernel_counts is None or settings.C == "auto")
        dataset = weigh(dataset, settings.class_weight, relative=automatic, budget_bytes=settings.budget_bytes).dataset
        rows = planned_rows(dataset, validation, settings, stack, run_dir, held_bytes)
        dataset, step, plan = rows.dataset, rows.step, rows.plan
        finalizer = ReportFinalizer.checked(dataset, rows.test, image_shape, report if run_dir is not None else False)
        tell = listeners_of(settings, listener)
        threads = stack.enter_context(working_threads(settings))
        path = _kind(values)(values, settings, plan, threads, tell, folder, should_stop, finalizer, step)
        path.calibrates = calibrate
        if client is not None:
            where = None if folder is None else folder.path
            path.executor = stack.enter_context(dask_executor(client, where, settings, plan, path.poll, path.listener))
        return path.run(dataset)


class PathTraining:
    """A path: its training runs one after the other, on one problem and with one executor."""

    def __init__(
        self,
        values: PathValues,
        params: Params,
        plan: Plan,
        threads: Threads,
        listener: Listener,
        folder: PathFolder | None,
        should_stop: Callable[[], bool] | None,
        finalizer: ReportFinalizer,
        step: FirstStep | None = None,
    ) -> None:
        self.step = step
        self.values, self.params, self.plan, self.threads = values, params, plan, threads
        self.shown, self.folder, self.should_stop, self.finalizer = listener, folder, should_stop, finalizer
        self.listener = broadcast(listener, None if folder is None else folder.log)
        self.executor: Executor = ThreadExecutor(threads, self.poll)
        self.points: list[PathPoint] = []
        self.models: list[Model] = []
        self.calibrates = True

    def run(self, dataset: Dataset) -> PathResult:
        self.settle(dataset)
        shared = replace(self.params, C=1.0) if self.values.parameter == "C" else self.params
        resources = Resources(self.plan, self.threads, self.executor, self.listener, self.poll)
        problem = build_problem(dataset, shared, resources)
        try:
            if problem.learned is not None:
                problem = self.weighed(problem, dataset)
            values = self.values.resolved(problem.data.n_features)
            if self.folder is not None:
                self.folder.begin(
                    parameter=self.values.parameter,
                    values=values,
                    seed=problem.seed,
                    data=self.finalizer.data_record(dataset),
                    validation=None if self.finalizer.test is None else self.finalizer.test.name,
                )
            start = COLD
            for value in values:
                start = self.go_on(dataset, self.at(problem, value), value, start)
        finally:
            problem.close()
        return PathResult(tuple(self.points), tuple(self.models))

    def settle(self, dataset: Dataset) -> None:
        """Compare the settings that the parameters leave open; a path over C uses the best setting."""
        training = self.training(self.params, None)
        training.settle(dataset, resume=False)
        self.params = training.params

    def weighed(self, problem: Problem, dataset: Dataset) -> Problem:
        """The problem for MKL on learned kernels; C is chosen once if it is "auto"."""
        self.params = replace(self.params, finish="mkl")
        if self.values.parameter == "C":
            return problem
        training = self.training(self.params, None)
        near = learned_near_margin(problem, training.resources)
        C = training.choose(problem, dataset, near.within).C
        self.params = replace(self.params, C=C)
        return replace(problem, C=C)

    def at(self, problem: Problem, value: float) -> Problem:
        """The problem of a point: its C, and a fingerprint that also identifies the points before it."""
        way = [*(point.name for point in self.points), f"{self.values.parameter}={value!r}"]
        digest = hashlib.blake2b(f"{problem.fingerprint};{';'.join(way)}".encode(), digest_size=16).hexdigest()
        return replace(problem, fingerprint=digest, C=value if self.values.parameter == "C" else problem.C)

    def go_on(self, dataset: Dataset, problem: Problem, value: float, start: Start) -> Start:
        """Train the next point, or load it from the folder; return its end, from which the next point starts."""
        name, kind = f"{self.values.parameter}={value:g}", PaperState if self.params.strategy == "paper" else State
        signs = [problem.signs[:, columns] for columns in columns_of_machines(problem, self.params.multi_class)]
        sizes = [StateSizes.of(problem, own.shape[1]) for own in signs]

        def require(number: int, state: Any, proof: Proof | None) -> None:
            require_end(state, proof, problem, signs[number], self.executor)

        found = None if self.folder is None else self.folder.done(name, problem.fingerprint, kind, sizes, require)
        if found is not None and self.folder is not None:
            point, end = found
            model = load_model(RunFolder(self.folder.path / name).model)
        else:
            result, machines, elapsed_s = self.train(dataset, problem, value, name, start)
            model, point = result.model, self.measure(result, value, dataset, elapsed_s)
            proofs = tuple(machines.proofs) if self.values.parameter == "max_kernels" else ()
            end = Start(tuple(machines.states), problem.C, proofs)
            if self.folder is not None:
                self.folder.keep(point, problem.fingerprint, end)
        self.points.append(point)
        self.models.append(model)
        if self.folder is not None:
            self.folder.write(self.points)
        self.listener(Notice(in_words(point)))
        return end

    def train(
        self, dataset: Dataset, problem: Problem, value: float, name: str, start: Start
    ) -> tuple[TrainResult, Machines, float]:
        """A separate training run in its own run folder."""
        over_C = self.values.parameter == "C"
        params = replace(self.params, C=value) if over_C else replace(self.params, max_kernels=int(value))
        started = time.perf_counter()
        with ExitStack() as stack:
            run, going_on = None, False
            if self.folder is not None:
                run, going_on = self.folder.open_run(name, problem.fingerprint)
                stack.enter_context(run)
            training = self.training(params, run)
            training.start = start
            result = training.run_on(problem, dataset, going_on)
        assert training.machines is not None
        return result, training.machines, time.perf_counter() - started

    def training(self, params: Params, folder: RunFolder | None) -> Training:
        """A training run with these parameters and the executor of the path; without a folder, it is only used in
        part."""
        tell = self.listener if folder is None else broadcast(self.shown, folder.record)
        training = Training(params, self.plan, self.threads, tell, folder, self.should_stop, self.finalizer, self.step)
        training.work_on(self.executor)
        training.calibrates = self.calibrates
        return training

    def measure(self, result: TrainResult, value: float, dataset: Dataset, elapsed_s: float) -> PathPoint:
        model, evaluation = result.model, result.evaluation
        return PathPoint(
            parameter=self.values.parameter,
            value=value,
            n_kernels=model.n_kernels,
            error=float("nan") if evaluation is None else _error(evaluation),
            gap=model.certificate.gap,
            status=result.status,
            elapsed_s=elapsed_s,
            **costs_of(model, self.finalizer.test or dataset),
        )

    def poll(self) -> None:
        """Called often during passes."""
        if self.should_stop is not None and self.should_stop():
            raise InterruptedTraining("the path was interrupted: its models so far are kept")


def _error(evaluation: Evaluation) -> float:
    """The error, weighted if the rows have weights."""
    return evaluation.error if evaluation.weighted_error is None else evaluation.weighted_error


def _kind(values: PathValues) -> type[PathTraining]:
    if values.parameter != "max_bytes":
        return PathTraining
    from mllkm_scale.path.device import DevicePath  # imported here because it imports this module

    return DevicePath


def in_words(point: PathPoint) -> str:
    """A description of a point, for a message."""
    error = "" if point.error != point.error else f"error {percent(point.error)}, "
    return f"{point.name}: {error}kernels {point.n_kernels:,}, {point.cost}, gap {percent(point.gap)}"
