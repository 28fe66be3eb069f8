"""`mllkm predict`: the labels that a model gives to a data set, written to HDF5."""

from __future__ import annotations

from pathlib import Path

import click

from mllkm_scale.cli.group import debug_option
from mllkm_scale.cli.output import bar, jobs_option, model_path, overwrite_option, wants_model
from mllkm_scale.units import format_bytes

__all__ = ["predict"]


@click.command(short_help="Predict the labels of a data set.")
@wants_model
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="PRED.h5", help="File to write.")
@click.option("--x", default="X", show_default=True, metavar="NAME", help="Data set of the samples.")
@click.option("--scores", is_flag=True, help="Write the decision values of every class as well.")
@overwrite_option
@jobs_option
@debug_option
def predict(model: Path, data: Path, out: Path, x: str, scores: bool, overwrite: bool, n_jobs: int) -> None:
    """Predict the labels of DATA with MODEL, a model file or the run folder that holds one.

    The rows are read, predicted and written chunk by chunk.

    \b
    Examples:
      mllkm predict run/model.mllkm new.h5 --out predictions.h5
      mllkm predict run new.h5 --x X_test --scores --out predictions.h5 --overwrite
    """
    from mllkm_scale.model import load_model, predict_file

    machine = load_model(model_path(model))
    with bar(f"predicting {data.name}") as progress:
        summary = predict_file(
            machine, data, out, x=x, scores=scores, overwrite=overwrite, progress=progress, n_jobs=n_jobs
        )
    written = "prediction and scores" if summary.scores else "prediction"
    click.echo(f"{out}: {written} of {summary.n_rows:,} rows, {format_bytes(summary.size_bytes)}")
    for label, count in zip(summary.classes, summary.counts, strict=True):
        click.echo(f"  {label!s:<16} {count:>12,}")
