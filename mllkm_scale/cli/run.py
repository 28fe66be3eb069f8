"""`mllkm run`: a training that a job file describes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mllkm_scale.cli.cluster_options import cluster_options, cluster_spec, in_words, report_option
from mllkm_scale.cli.group import debug_option
from mllkm_scale.cli.training_run import TrainingRun, open_data
from mllkm_scale.errors import BudgetError, JobFileError, ParameterError
from mllkm_scale.run.folder import RunFolder
from mllkm_scale.run.progress import MODES
from mllkm_scale.units import format_bytes

if TYPE_CHECKING:
    from mllkm_scale.cluster.spec import ClusterSpec
    from mllkm_scale.run.job import Job

__all__ = ["run"]


@click.command(short_help="Run the training that a job file describes.")
@click.argument("job_file", metavar="JOB.toml", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Check the job and its data, and print the plan; nothing is written.")
@click.option("--resume", is_flag=True, help="Continue from the last checkpoint; begin if there is none yet.")
@click.option("--overwrite", is_flag=True, help="Replace the training that the run folder holds.")
@click.option("--progress", type=click.Choice(MODES), help="As in mllkm train; wins over the job file.")
@cluster_options
@report_option
@debug_option
@click.pass_context
def run(
    context: click.Context,
    /,
    job_file: Path,
    dry_run: bool,
    resume: bool,
    overwrite: bool,
    progress: str | None,
    performance_report: Path | None,
    **options: Any,
) -> None:
    """Run the training that JOB.toml describes: data, parameters, memory budget, cluster and run folder.

    Paths in the file are relative to its folder. A cluster that the options name wins over that of the file;
    --workers 0 runs without. With --resume the same command begins a training and, after an interruption or a
    requeue, goes on with it, which is what batch systems need.

    \b
    Examples:
      mllkm run job.toml --dry-run
      mllkm run job.toml
      mllkm run job.toml --resume --workers 4
      mllkm run job.toml --resume --scheduler-file scheduler.json
    """
    if resume and overwrite:
        raise click.UsageError("--resume continues a training and --overwrite replaces it: give one of them", context)
    job = _load(job_file, cluster_spec(context))
    report = performance_report or job.performance_report
    if report is not None and job.cluster.kind == "none":
        raise click.UsageError("--performance-report is dask's: name a cluster too, with --workers 2", context)
    training = TrainingRun(
        data=job.data,
        x=job.x,
        y=job.y,
        run=job.run,
        parameters=job.parameters,
        resume=resume and _holds_training(job.run),
        overwrite=overwrite,
        progress=progress or job.progress,
        cluster=job.cluster,
        performance_report=report,
    )
    if dry_run:
        _show(training)
    else:
        training.execute(context)


def _load(path: Path, cluster: ClusterSpec | None) -> Job:
    """The job, or a line on stderr for each of its problems."""
    from mllkm_scale.run.job import load_job

    try:
        return load_job(path, cluster=cluster)
    except JobFileError as error:
        *others, last = str(error).splitlines()
        for line in others:
            click.echo(f"mllkm: error: {line}", err=True)
        raise JobFileError(last) from error


def _holds_training(path: Path) -> bool:
    folder = RunFolder(path)
    return folder.checkpoint.exists() or folder.model.exists()


def _show(training: TrainingRun) -> None:
    """What a training would do, as far as it can be known before it is begun; then why it would not, if so."""
    from mllkm_scale.params import resolve
    from mllkm_scale.run.plan import make_plan

    with open_data(training.data, training.x, training.y) as (dataset, held_out):
        test = "" if held_out is None else f", {held_out.n_rows:,} rows held out"
        click.echo(f"data: {training.data}, {dataset.n_rows:,} rows, {dataset.n_features:,} features{test}")
        plan = make_plan(dataset, resolve(**training.settings()))
        click.echo(plan.as_text())
    cluster, holds = training.cluster, _holds_training(training.run)
    if cluster is not None:
        click.echo(f"cluster: {in_words(cluster)}")
    click.echo(f"run folder: {training.run}{' (a training is there)' if holds else ''}")
    if cluster is not None and cluster.kind in ("local", "slurm"):
        needed = plan.worker_bytes(cluster.threads_per_worker)
        if needed > plan.budget_bytes:
            raise BudgetError(f"a worker needs {format_bytes(needed)}: give more memory, or fewer threads to a worker")
    if holds and not (training.resume or training.overwrite):
        raise ParameterError(f"{training.run} already holds a training: add --resume or --overwrite")
