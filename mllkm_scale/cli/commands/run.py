"""`mllkm run`: runs the training that a job file describes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mllkm_scale.base.events import PROGRESS_MODES
from mllkm_scale.cli.cluster_options import cluster_options, configured_cluster, given_cluster, in_words, report_option
from mllkm_scale.cli.group import debug_option, refuse_both_starts, say
from mllkm_scale.cli.training_run import TrainingRun
from mllkm_scale.config import configured
from mllkm_scale.errors import JobFileError

if TYPE_CHECKING:
    from mllkm_scale.run.job import Job

__all__ = ["run"]


@click.command(short_help="Run the training that a job file describes.")
@click.argument("job_file", metavar="JOB.toml", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Check the job and its data, and print the plan; nothing is written.")
@click.option("--resume", is_flag=True, help="Continue from the last checkpoint; begin if there is none yet.")
@click.option("--overwrite", is_flag=True, help="Replace the training in the run folder.")
@click.option("--progress", type=click.Choice(PROGRESS_MODES), help="As in mllkm train; overrides the job file.")
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

    Paths in the file are relative to its folder. A cluster in the options overrides that of the file; --workers 0 runs
    without one. With --resume, the same command begins a training run and continues it after an interruption or a
    requeue, as batch systems need.

    \b
    Examples:
      mllkm run job.toml --dry-run
      mllkm run job.toml
      mllkm run job.toml --resume --workers 4
      mllkm run job.toml --resume --scheduler-file scheduler.json
    """
    refuse_both_starts("a training run", context, resume=resume, overwrite=overwrite)
    given = given_cluster(context)
    job = _load(job_file)
    cluster = given or (None if job.tells("cluster") else configured_cluster()) or job.cluster
    if cluster.kind == "none":
        _refuse_report(performance_report, job, context)
    training = TrainingRun(
        data=job.data,
        x=job.x,
        y=job.y,
        sample_weight=job.sample_weight,
        run=job.run,
        parameters=job.parameters,
        resume=resume,
        overwrite=overwrite,
        progress=progress or (job.progress if job.tells("output", "progress") else configured("progress")),
        cluster=cluster,
        performance_report=performance_report or job.performance_report,
        test=job.test,
        image_shape=job.image_shape,
        report=job.report,
        table=job.table,
    )
    if not training.holds_training:  # for batch systems: the first start has the same command as later ones
        training = replace(training, resume=False)
    if dry_run:
        _show(training)
    else:
        training.execute(context)


def _load(path: Path) -> Job:
    """The job; on errors, a line on stderr for each problem."""
    from mllkm_scale.run.job import load_job

    try:
        return load_job(path)
    except JobFileError as error:
        *others, last = str(error).splitlines()
        for line in others:
            say(f"mllkm: error: {line}", err=True)
        raise JobFileError(last) from error


def _refuse_report(performance_report: Path | None, job: Job, context: click.Context) -> None:
    if performance_report is not None:
        raise click.UsageError("--performance-report is from dask: also name a cluster, with --workers 2", context)
    if job.performance_report is not None:
        where = job.where("output", "performance_report")
        raise JobFileError(
            f"{where}: performance_report is from dask: name a cluster in [cluster], or with --workers 2"
        )


def _show(training: TrainingRun) -> None:
    """Show what a training run would do, and then the error that would prevent it, if any."""
    with training.open_data() as (dataset, held_out):
        test = "" if held_out is None else f", {held_out.n_rows:,} rows held out"
        say(f"data: {training.data}, {dataset.n_rows:,} rows, {dataset.n_features:,} features{test}")
        plan = training.plan(dataset)
    say(plan.as_text())
    if training.cluster is not None:
        say(f"cluster: {in_words(training.cluster)}")
    say(f"run folder: {training.run}{' (a training run is there)' if training.holds_training else ''}")
    training.require_possible(plan)
