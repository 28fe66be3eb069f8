"""`mllkm path`: trains models of several sizes to choose from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mllkm_scale.cli.cluster_options import cluster_options, cluster_spec
from mllkm_scale.cli.commands.report import image_shape_option, page_option
from mllkm_scale.cli.group import debug_option, refuse_both_starts
from mllkm_scale.cli.options import data_set_options, given_parameters, training_options
from mllkm_scale.cli.output import overwrite_option, progress_option
from mllkm_scale.cli.path_run import PathRun, below_option
from mllkm_scale.cli.table_files import format_option, given_table, table_options

__all__ = ["path"]


def _numbers(context: click.Context, parameter: click.Parameter, text: str | None) -> list[float] | None:
    """Parse numbers separated by commas."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of numbers such as 1,10,100", context, parameter) from None


@click.command(short_help="Train models of several sizes to choose from.")
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="PATH", help="Folder of the path.")
@click.option("--Cs", "Cs", metavar="C,C,...", callback=_numbers, help="Values of C of the models.")
@click.option(
    "--kernel-counts", metavar="N,N,...", callback=_numbers, help="Largest numbers of kernels, instead of --Cs."
)
@click.option(
    "--bytes",
    "byte_counts",
    metavar="SIZE,SIZE,...",
    callback=lambda _, __, text: None if text is None else text.split(","),
    help="Bytes on a device of the models, such as 2kB,16kB, instead of --Cs.",
)
@click.option(
    "--validation",
    metavar="FILE|SHARE",
    default="0.2",
    show_default=True,
    help="Rows to measure errors on: a file like DATA, or a share of the rows of DATA.",
)
@below_option
@data_set_options
@click.option("--resume", is_flag=True, help="Continue the path in PATH.")
@overwrite_option
@format_option
@table_options
@image_shape_option
@page_option
@progress_option
@cluster_options
@training_options
@debug_option
@click.pass_context
def path(
    context: click.Context,
    /,
    data: Path,
    out: Path,
    Cs: list[float] | None,
    kernel_counts: list[float] | None,
    byte_counts: list[str] | None,
    validation: str,
    below: tuple[str, ...],
    x: str,
    y: str,
    sample_weight: str | None,
    resume: bool,
    overwrite: bool,
    image_shape: str | None,
    report: bool | None,
    progress: str,
    **options: Any,
) -> None:
    """Train models of several sizes on DATA, each from the one before it; DATA as in "mllkm train".

    The models differ in C (by default seven values around the automatic one), or in the number of kernels. In the
    second case each model starts with the kernels of largest weight of the previous one, and exchanges some of them for
    better ones. With --bytes, each model is the best one for a device with this number of bytes for its constants, and
    has a C header, PATH/max_bytes=SIZE/model.h; errors are then those in integers.

    The error of every model is measured on validation rows, and the cost of a row on this machine. PATH/report.html
    plots error against cost, and marks the knee, beyond which accuracy becomes expensive. Every model has its own run
    folder, such as PATH/C=1. If DATA holds X_test and y_test, the chosen model is evaluated on them: the best one
    within --below, or the knee.

    \b
    Examples:
      mllkm path train.h5 --out path --memory 2GB
      mllkm path train.h5 --out path --Cs 0.1,0.5,2
      mllkm path train.h5 --out path --kernel-counts 400,200,100,50,20 --below 20us
      mllkm path train.h5 --out path --bytes 2kB,16kB,64kB
      mllkm path train.h5 --out path --validation validation.h5 --resume
      mllkm choose path --below 100kB --out small.mllkm
    """
    refuse_both_starts("a path", context, resume=resume, overwrite=overwrite)
    PathRun(
        data=data,
        x=x,
        y=y,
        sample_weight=sample_weight,
        run=out,
        parameters=given_parameters(context),
        resume=resume,
        overwrite=overwrite,
        progress=progress,
        cluster=cluster_spec(context),
        image_shape=image_shape,
        report=report,
        Cs=Cs,
        kernel_counts=kernel_counts,
        byte_counts=byte_counts,
        validation=validation,
        below=below,
        table=given_table(context),
    ).execute(context)
