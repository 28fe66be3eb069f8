"""Runs a training from the command line: data, cluster, progress, signals, and the final output.

`mllkm train` takes its settings from options, and `mllkm run` from a job file; the rest is shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mllkm_scale.base.events import Listener, Notice
from mllkm_scale.base.units import format_bytes
from mllkm_scale.cli.cluster_options import in_words, open_cluster
from mllkm_scale.cli.ending import Checkpoint, OwnCheckpoint, ends_at_a_safe_point
from mllkm_scale.cli.group import say
from mllkm_scale.cli.output import print_json
from mllkm_scale.cli.table_files import as_hdf5, known_of_dataset, labels_in, scratch_folder, weighted_hdf5
from mllkm_scale.errors import (
    BudgetError,
    CheckpointError,
    ParameterError,
)
from mllkm_scale.run.folder import MODEL, RunFolder
from mllkm_scale.run.progress.listeners import choose_listener

if TYPE_CHECKING:
    from mllkm_scale.base.location import Location
    from mllkm_scale.cluster import Client
    from mllkm_scale.data import Dataset
    from mllkm_scale.model import Evaluation
    from mllkm_scale.params import Params
    from mllkm_scale.plan.training import Plan
    from mllkm_scale.run.job.cluster import ClusterSpec
    from mllkm_scale.training import TrainResult

__all__ = [
    "TEST_SETS",
    "TrainingRun",
    "has_test_sets",
    "held_out_of",
    "holds_training",
    "require_folder",
    "tell_evaluation",
    "tell_report",
]

STARTED_HERE = ("local", "slurm")  # clusters whose workers get the memory budget as their limit
TEST_SETS = ("X_test", "y_test")


@dataclass(frozen=True)
class TrainingRun:
    """The data, parameters, cluster and run folder of a training run.

    `parameters` are those of `resolve`, and `table` the options of `convert` for files that are neither HDF5 nor zarr.
    """

    data: Location
    x: str
    y: str
    run: Path
    parameters: dict[str, Any]
    sample_weight: str | None = None
    resume: bool = False
    overwrite: bool = False
    progress: str = "auto"
    cluster: ClusterSpec | None = None
    performance_report: Path | None = None
    test: Location | None = None
    image_shape: str | None = None
    report: bool | None = None
    table: Mapping[str, Any] = field(default_factory=dict)

    def execute(self, context: click.Context) -> None:
        """Train, and print the paths of the model and the report, and the error on test rows, if there are any."""
        from mllkm_scale.data.converters.conversion import must_be_converted

        if must_be_converted(self.data, self.table.get("format")):
            self.require_folder()
        with self.open_data(self.run) as (dataset, held_out):
            result = self._train(dataset, held_out, context)
            if self.progress != "json":
                say(f"model: {self.run / MODEL} ({result.status}, {result.model.n_kernels} kernels)")
            if held_out is not None and result.evaluation is not None:
                tell_evaluation(result.evaluation, held_out.name, self.progress)
            tell_report(self.run, self.progress)

    @contextmanager
    def open_data(self, folder: Path | None = None) -> Iterator[tuple[Dataset, Dataset | None]]:
        """The training data, and the test data: from a separate file, or from the same file, if it has them.

        Files of other formats are converted into a folder, by default one that is removed at the end.
        """
        from mllkm_scale.data import Dataset
        from mllkm_scale.report.finalize import require_test_rows

        with ExitStack() as stack:
            scratch = self.parameters.get("scratch_dir")
            stored = stack.enter_context(scratch_folder(scratch)) if folder is None else folder
            data, weight = weighted_hdf5(self.data, stored, self.table, self.sample_weight, self.progress)
            labels = labels_in(data, self.y, self.table)
            dataset = stack.enter_context(Dataset.open(data, self.x, labels, sample_weight=weight))
            if self.test is None:
                held_out = held_out_of(data, weight)
            else:
                test = self._like(self.test, stored, dataset)
                held_out = open_weighted(test, self.x, labels_in(test, self.y, self.table), weight)
            if held_out is not None:
                require_test_rows(dataset, stack.enter_context(held_out))
            yield dataset, held_out

    def _like(self, data: Location, folder: Path, dataset: Dataset) -> Location:
        """A file with rows like those of the data set, as HDF5."""
        return as_hdf5(data, folder / "test", self.table, self.progress, known_of_dataset(dataset))

    @property
    def uses_cluster(self) -> bool:
        return self.cluster is not None and self.cluster.kind != "none"

    @property
    def holds_training(self) -> bool:
        """Whether the run folder already has a training run."""
        return holds_training(self.run)

    def plan(self, dataset: Dataset) -> Plan:
        """The memory plan of the training."""
        from mllkm_scale.params import resolve
        from mllkm_scale.plan.training import make_plan

        return make_plan(dataset, resolve(**self.settings()))

    def require_possible(self, plan: Plan) -> None:
        """Refuse an impossible plan before a cluster is started or waited for."""
        if self.cluster is not None and self.cluster.kind in STARTED_HERE:
            needed, budget = plan.worker_bytes(self.cluster.threads_per_worker), plan.budget_bytes
            if needed > budget:
                raise BudgetError(
                    f"a worker needs {format_bytes(needed)}, and the memory budget is {format_bytes(budget)}: give more"
                    " memory, or fewer threads to a worker"
                )
        self.require_folder()

    def require_folder(self) -> None:
        """Refuse a run folder in which the training cannot start or continue as requested."""
        require_folder(self.run, self.resume, self.overwrite)

    def _train(self, dataset: Dataset, held_out: Dataset | None, context: click.Context) -> TrainResult:
        from mllkm_scale.training import train

        with self.under_way(dataset, context, OwnCheckpoint(self.run, self.resume)) as how:
            return train(
                dataset,
                test=held_out,
                run_dir=self.run,
                resume=self.resume,
                overwrite=self.overwrite,
                image_shape=self.image_shape,
                report=self.report,
                **how,
                **self.settings(),
            )

    @contextmanager
    def under_way(self, dataset: Dataset, context: click.Context, checkpoint: Checkpoint) -> Iterator[dict[str, Any]]:
        """Context with client, listener and signals of one or several training runs, as arguments of `train`."""
        from mllkm_scale.params import resolve

        if self.uses_cluster:
            self.require_possible(self.plan(dataset))
        params = resolve(**self.settings())
        aloud = self.progress in ("auto", "plain")
        with ExitStack() as stack:
            listener = stack.enter_context(choose_listener(self.progress, tol=params.tol))
            # Before signals are deferred: Ctrl-C while waiting for the cluster ends at once.
            client = stack.enter_context(self._client(params, listener, context))
            ending = ends_at_a_safe_point(context, checkpoint, listener, what="training", aloud=aloud)
            stop = stack.enter_context(ending)
            yield {"client": client, "listener": listener, "should_stop": lambda: stop.requested}

    def settings(self) -> dict[str, Any]:
        """The parameters; if `n_jobs` is not given, it is the number of cores that local workers leave free."""
        cluster = self.cluster
        if cluster is None or cluster.kind != "local" or "n_jobs" in self.parameters:
            return self.parameters
        from mllkm_scale.base.threads import n_threads
        from mllkm_scale.config import is_configured

        if is_configured("n-jobs"):
            return self.parameters

        busy = (cluster.workers or 0) * cluster.threads_per_worker
        return self.parameters | {"n_jobs": max(1, n_threads(-1) - busy)}

    @contextmanager
    def _client(self, params: Params, listener: Listener, context: click.Context) -> Iterator[Client | None]:
        if self.cluster is None or not self.uses_cluster:
            yield None
            return
        from mllkm_scale.cluster import dashboard_link, describe, performance_report

        listener(Notice(f"waiting for the cluster: {in_words(self.cluster)}"))
        with open_cluster(self.cluster, params.budget_bytes, params.worker_timeout, context, self.run) as client:
            said, link = describe(client), dashboard_link(client)
            if self.progress == "json":
                event = {"event": "cluster", "kind": self.cluster.kind, "description": said, "dashboard": link}
                print_json(event, indent=None)
            else:
                listener(Notice(f"cluster: {said}"))
            with performance_report(client, self.performance_report):
                yield client


def holds_training(run: Path) -> bool:
    """Whether a folder holds a training run, or a stream."""
    folder = RunFolder(run)
    return folder.resumable or folder.model.exists()


def require_folder(run: Path, resume: bool, overwrite: bool) -> None:
    """Refuse a folder in which the work cannot start or continue as requested."""
    if resume and not RunFolder(run).resumable:
        raise CheckpointError(f"{run} has nothing to resume: train without --resume")
    if holds_training(run) and not (resume or overwrite):
        raise ParameterError(
            f"{run} already holds a training run: continue it with --resume, replace it with --overwrite, or name"
            " another folder"
        )


def held_out_of(data: Location, sample_weight: str | None = None) -> Dataset | None:
    """The test set of the same file, if it has one."""
    if not has_test_sets(data):
        return None
    return open_weighted(data, *TEST_SETS, None if sample_weight is None else f"{sample_weight}_test")


def open_weighted(data: Location, x: str, y: Any, sample_weight: str | None) -> Dataset:
    """Test rows, with the weights of that name if the file has them."""
    from mllkm_scale.data import Dataset

    there = sample_weight is not None and _holds(data, (sample_weight,))
    return Dataset.open(data, x, y, sample_weight=sample_weight if there else None)


def has_test_sets(data: Location) -> bool:
    """Whether a file or a zarr group has test rows."""
    return _holds(data, TEST_SETS)


def _holds(data: Location, names: tuple[str, ...]) -> bool:
    """Whether a file or a zarr group holds data sets of these names; Parquet holds none."""
    from mllkm_scale.base.location import is_parquet
    from mllkm_scale.data.hdf5_source import open_hdf5

    if is_parquet(data):
        return False
    if isinstance(data, Path) and not data.is_dir():
        with open_hdf5(data.absolute()) as file:
            return all(name in file or f"{name}_indptr" in file for name in names)
    if isinstance(data, Path):
        return all((data / name).is_dir() for name in names)
    from mllkm_scale.data.zarr_source import open_group

    with data.opening():
        group = open_group(data)
        return all(name in group for name in names)


def tell_evaluation(evaluation: Evaluation, name: str, progress: str) -> None:
    if progress == "json":
        print_json({"event": "evaluation", "data": name} | evaluation.as_dict(), indent=None)
    else:
        weighted = evaluation.weighted_error
        told = "" if weighted is None else f", weighted error {100 * weighted:.2f} %"
        say(f"{name}: {evaluation.n:,} rows, error {100 * evaluation.error:.2f} %{told}")


def tell_report(run: Path, progress: str) -> None:
    """Print the path of the report, if one was written."""
    path = RunFolder(run).report
    if progress != "json" and path.exists():
        say(f"report: {path}")
