"""`mllkm report`: writes the report of a run again, or compares several runs."""

from __future__ import annotations

from pathlib import Path

import click

from mllkm_scale.cli.group import debug_option, say

__all__ = ["image_shape_option", "page_option", "report"]

image_shape_option = click.option(
    "--image-shape",
    metavar="HxW",
    help="Rows are images of this height and width, such as 28x28 or 32x32x3: the report shows anchors as images.",
)
page_option = click.option(
    "--report/--no-report", default=None, help="Write RUN/report.html at the end (default: as configured, yes)."
)


@click.command(short_help="Write the report of a run, or compare runs.")
@click.argument("runs", metavar="RUN [RUN ...]", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="HTML file to write (default: report.html in RUN; comparison.html here, for several).",
)
@image_shape_option
@click.option("--all-shapes", is_flag=True, help="Component-wise machines: draw the shape functions of all features.")
@debug_option
@click.pass_context
def report(
    context: click.Context, /, runs: tuple[Path, ...], out: Path | None, image_shape: str | None, all_shapes: bool
) -> None:
    """Write an HTML report on the training or stream in the folder RUN, or a comparison of several runs.

    A report needs only the run folder, also if the run was interrupted or is still running. It opens in any browser
    without a network. Every training run ends with a report; this command writes it again. The report of a path shows
    error against cost.

    \b
    Examples:
      mllkm report run
      mllkm report run --image-shape 28x28 --out usps.html
      mllkm report run-C1 run-C10 run-C100 --out sizes.html
      mllkm report path
    """
    from mllkm_scale.path.report import is_path, write_path_page
    from mllkm_scale.report import write_comparison, write_report

    if len(runs) == 1 and is_path(runs[0]):
        if image_shape is not None:
            raise click.UsageError("--image-shape is for a model of a path: name its folder", context)
        page = write_path_page(runs[0], out=out)
    elif len(runs) == 1:
        page = write_report(runs[0], out=out, image_shape=image_shape, all_shapes=all_shapes)
    elif image_shape is not None:
        raise click.UsageError("--image-shape is for the report of one run: leave it out to compare runs", context)
    else:
        page = write_comparison(runs, out=out or "comparison.html")
    say(f"report: {page}")
