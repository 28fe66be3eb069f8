"""`mllkm predict`: predicts the labels of the rows of a file, and writes them to HDF5 or CSV."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mllkm_scale.base.location import FORMATS
from mllkm_scale.base.units import format_bytes
from mllkm_scale.cli.cluster_options import cluster_options, cluster_spec, open_cluster
from mllkm_scale.cli.group import debug_option, say
from mllkm_scale.cli.output import bar, columns_ignored, jobs_option, open_model, overwrite_option, wants_model
from mllkm_scale.cli.parsers import DATA
from mllkm_scale.cli.table_files import new_rows_options
from mllkm_scale.printable import printable

if TYPE_CHECKING:
    from mllkm_scale.cluster import Client
    from mllkm_scale.run.job.cluster import ClusterSpec

__all__ = ["predict"]


PIPE = "-"


@click.command(short_help="Predict the labels of a data set.")
@wants_model
@click.argument("data", type=DATA)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="PRED",
    help="File to write: .h5, .csv or .tsv; - for CSV on standard output.",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(("hdf5", "zarr", *FORMATS)),
    help="Format of DATA; default: by its name.",
)
@new_rows_options
@click.option(
    "--header/--no-header",
    default=None,
    help="CSV and TSV: whether the first line has names (default: detected).",
)
@click.option("--scores", is_flag=True, help="Also write the decision values of every class.")
@click.option("--probabilities", is_flag=True, help="Also write the probability of every class.")
@click.option("--direct", is_flag=True, help="Evaluate every kernel of a component-wise model, without tables.")
@overwrite_option
@jobs_option
@cluster_options
@debug_option
@click.pass_context
def predict(
    context: click.Context,
    /,
    model: Path,
    data: Path,
    out: Path,
    format_name: str | None,
    x: str | None,
    label_column: str | int | None,
    header: bool | None,
    by_position: bool,
    scores: bool,
    probabilities: bool,
    direct: bool,
    overwrite: bool,
    n_jobs: int,
    **options: Any,
) -> None:
    """Predict the labels of DATA with MODEL, a model file or a run folder.

    DATA is HDF5, zarr, or any format that "mllkm convert" reads; - is CSV on standard input, predicted as it arrives.
    zarr and Parquet may be a URL that fsspec opens, such as s3://bucket/new.zarr.

    The rows are read, predicted and written block by block, so that files may be of any size. The workers of a dask
    cluster can predict, with the same result; DATA must then be HDF5 or zarr, and the workers must see DATA and the
    folder of PRED.

    If DATA and MODEL have names of features, columns are matched by name, in any order; other columns, such as the
    label, are ignored with a message. Columns without names are matched by position.

    Component-wise models are evaluated by tables if these are faster; their error is at most 1e-6 ("mllkm inspect" has
    the figures).

    \b
    Examples:
      mllkm predict run new.csv --out predictions.csv
      mllkm predict run test.csv --scores --out predictions.csv
      mllkm predict run test.csv --probabilities --out predictions.csv
      mllkm predict run no-names.csv --label-column last --out predictions.csv
      mllkm predict run/model.mllkm new.h5 --x X_test --out predictions.h5 --overwrite
      mllkm predict run new.h5 --out predictions.h5 --workers 4
      tail -n +2 -f log.csv | mllkm predict run - --out - --no-header
    """
    from mllkm_scale.prediction import predict_file

    spec = cluster_spec(context)
    machine = open_model(model)
    piped = PIPE in (str(data), str(out))  # no progress bar between piped lines
    with _client(spec, context) as client, nullcontext() if piped else bar(f"predicting {data.name}") as progress:
        summary = predict_file(
            machine.direct() if direct else machine,
            data,
            out,
            format=format_name,
            x=x,
            label_column=label_column,
            header=header,
            by_position=by_position,
            scores=scores,
            probabilities=probabilities,
            overwrite=overwrite,
            progress=progress,
            n_jobs=n_jobs,
            client=client,
        )
    if summary.ignored:
        say(columns_ignored(data.name if str(data) != PIPE else "standard input", summary.ignored), err=True)
    if str(out) == PIPE:
        return
    parts = ["prediction"] + ["scores"] * summary.scores + ["probabilities"] * summary.probabilities
    written = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
    say(f"{out}: {written} of {summary.n_rows:,} rows, {format_bytes(summary.size_bytes)}")
    for label, count in zip(summary.classes, summary.counts, strict=True):
        say(f"  {printable(label, longest=60):<16} {count:>12,}")


@contextmanager
def _client(spec: ClusterSpec | None, context: click.Context) -> Iterator[Client | None]:
    if spec is None or spec.kind == "none":
        yield None
        return
    from mllkm_scale.cluster import describe
    from mllkm_scale.params import resolve

    # Workers that are started here get the budget that a training run has by default; a chunk is far below it.
    usual = resolve()
    with open_cluster(spec, usual.budget_bytes, usual.worker_timeout, context) as client:
        say(f"cluster: {describe(client)}", err=True)
        yield client
