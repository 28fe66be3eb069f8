"""`mllkm train`: trains a model in a run folder, which can be resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mllkm_scale.cli.cluster_options import cluster_options, cluster_spec, report_option
from mllkm_scale.cli.commands.report import image_shape_option, page_option
from mllkm_scale.cli.group import debug_option, refuse_both_starts
from mllkm_scale.cli.options import data_set_options, given_parameters, training_options
from mllkm_scale.cli.output import progress_option
from mllkm_scale.cli.parsers import DATA
from mllkm_scale.cli.table_files import format_option, given_table, table_options
from mllkm_scale.cli.training_run import TrainingRun

__all__ = ["train"]


@click.command(short_help="Train a model within a memory budget.")
@click.argument("data", type=DATA)
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="RUN", help="Run folder.")
@data_set_options
@click.option(
    "--test",
    type=DATA,
    metavar="FILE",
    help="Labelled rows to test the model on at the end, a file like DATA"
    " (default: X_test and y_test of DATA, if it has them).",
)
@format_option
@table_options
@image_shape_option
@page_option
@click.option("--resume", is_flag=True, help="Continue the training of RUN from its last checkpoint.")
@click.option("--overwrite", is_flag=True, help="Replace the training in RUN.")
@progress_option
@cluster_options
@report_option
@training_options
@debug_option
@click.pass_context
def train(
    context: click.Context,
    /,
    data: Path,
    out: Path,
    x: str,
    y: str,
    sample_weight: str | None,
    test: Path | None,
    image_shape: str | None,
    report: bool | None,
    resume: bool,
    overwrite: bool,
    progress: str,
    performance_report: Path | None,
    **options: Any,
) -> None:
    """Train on DATA; the model is RUN/model.mllkm.

    DATA is an HDF5 file or a zarr group with the data sets X and y, or a file of any format that "mllkm convert" reads:
    CSV (.gz too), TSV, Parquet, LIBSVM and others. Such a file is read once and stored in RUN as HDF5;
    a line per column says what it holds. --resume uses the stored file, unless the original has changed. Columns may
    hold text, dates and missing values.

    zarr and Parquet may be a URL that fsspec opens, such as s3://bucket/train.zarr. These are not copied: the workers
    open them themselves.

    Training stops when the duality gap over all candidate kernels is at most --tol, and keeps its memory within
    --memory. Ctrl-C or SIGTERM stops it at the next safe point, and --resume continues from there to the same result.
    At the end the model is tested on the test rows, if there are any, and RUN/report.html shows the training with
    pictures. The workers of a dask cluster can do a part of the work, with the same result.

    \b
    Examples:
      mllkm train train.h5 --out run --memory 2GB
      mllkm train people.csv --out run --label-column income --test new-people.csv
      mllkm train train.h5 --out run --test test.h5
      mllkm train digits.h5 --out run --image-shape 28x28
      mllkm train train.h5 --out run --C 10 --gammas 0.01,0.1,1 --n-components 50
      mllkm train train.h5 --out run --class-weight balanced
      mllkm train train.h5 --out run --anchors kmeans:500 --tol 0.001
      mllkm train train.h5 --out run --resume
      mllkm train train.h5 --out run --workers 4
      mllkm train train.h5 --out run --scheduler tcp://node1:8786
      mllkm train train.h5 --out run-paper --preset paper
    """
    refuse_both_starts("a training run", context, resume=resume, overwrite=overwrite)
    cluster = cluster_spec(context)
    if performance_report is not None and (cluster is None or cluster.kind == "none"):
        raise click.UsageError("--performance-report is from dask: also name a cluster, with --workers 2", context)
    TrainingRun(
        data=data,
        x=x,
        y=y,
        sample_weight=sample_weight,
        run=out,
        parameters=given_parameters(context),
        resume=resume,
        overwrite=overwrite,
        progress=progress,
        cluster=cluster,
        performance_report=performance_report,
        test=test,
        image_shape=image_shape,
        report=report,
        table=given_table(context),
    ).execute(context)
