"""`mllkm stream`: learns from samples as they arrive, from a file or from standard input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mllkm_scale.base.events import Listener, Notice
from mllkm_scale.cli.cluster_options import cluster_options, cluster_spec, in_words, open_cluster
from mllkm_scale.cli.commands.report import image_shape_option, page_option
from mllkm_scale.cli.ending import OwnCheckpoint, ends_at_a_safe_point
from mllkm_scale.cli.group import debug_option, refuse_both_starts, say
from mllkm_scale.cli.options import given_stream_parameters, stream_options
from mllkm_scale.cli.output import progress_option
from mllkm_scale.cli.table_files import as_hdf5, kind_options
from mllkm_scale.cli.training_run import held_out_of, require_folder, tell_evaluation, tell_report
from mllkm_scale.run.folder import MODEL
from mllkm_scale.run.progress.listeners import choose_listener

if TYPE_CHECKING:
    from mllkm_scale.cluster import Client
    from mllkm_scale.data import Dataset
    from mllkm_scale.params import Params

__all__ = ["stream"]


@click.command(short_help="Learn from samples as they arrive.")
@click.argument("data", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="RUN", help="Folder of the stream.")
@click.option(
    "--format",
    type=click.Choice(["hdf5", "zarr", "csv", "tsv", "jsonl"]),
    help="Format of DATA, if its name does not say; standard input is csv by default.",
)
@click.option("--classes", metavar="A,B,...", help="All possible labels. Text: by default those of the warm-up.")
@click.option("--x", default="X", show_default=True, metavar="NAME", help="HDF5, zarr: data set of the samples.")
@click.option("--y", default="y", show_default=True, metavar="NAME", help="HDF5, zarr: data set of the labels.")
@click.option("--sample-weight", metavar="NAME", help="HDF5, zarr: data set of the weights of the samples.")
@click.option(
    "--prepare-from",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="HDF5, zarr: samples like those of the stream (such as DATA itself), which determine scaling, projection and"
    " gammas (default: the first samples).",
)
@click.option("--passes", type=click.IntRange(1), default=1, show_default=True, help="HDF5, zarr: passes over DATA.")
@click.option("--shuffle", is_flag=True, help="HDF5, zarr: random order of chunks, and of the rows of each.")
@click.option("--label-column", metavar="NAME|N", help="Text: column or field of the labels (default: the last).")
@click.option("--header/--no-header", default=None, help="CSV: whether the first line has names (default: detected).")
@click.option(
    "--bad-lines",
    type=click.Choice(["error", "skip"]),
    default="error",
    show_default=True,
    help="Text: what to do with a line that cannot be read.",
)
@kind_options
@image_shape_option
@page_option
@click.option("--resume", is_flag=True, help="Continue the stream of RUN after the samples that it has learned.")
@click.option("--overwrite", is_flag=True, help="Replace what RUN holds.")
@click.option(
    "--checkpoint-every",
    "checkpoint_s",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How often the state and the current model are saved.",
)
@progress_option
@cluster_options
@stream_options
@debug_option
@click.pass_context
def stream(
    context: click.Context,
    /,
    data: Path,
    out: Path,
    format: str | None,
    classes: str | None,
    x: str,
    y: str,
    sample_weight: str | None,
    prepare_from: Path | None,
    passes: int,
    shuffle: bool,
    label_column: str | None,
    header: bool | None,
    bad_lines: str,
    categories: tuple[str, ...],
    as_number: tuple[str, ...],
    image_shape: str | None,
    report: bool | None,
    resume: bool,
    overwrite: bool,
    checkpoint_s: float,
    progress: str,
    **options: Any,
) -> None:
    """Learn from the samples of DATA in their order: HDF5, zarr, CSV, Parquet, JSON lines, or - for standard input.

    Columns of CSV and Parquet, and of tables in HDF5, may hold text, dates and missing values. The first line of a CSV
    stream decides whether there is text. The first samples then decide what each column holds; levels that appear later
    are treated as unknown.

    Every sample is predicted before it is learned. The share of errors is the prequential error, which
    RUN/stream.jsonl records. RUN/model.mllkm is the model of the last checkpoint, and at the end the final one. The
    samples and kernels that are kept stay within --memory. Ctrl-C or SIGTERM stops the stream with a checkpoint, and
    --resume continues from there to the same result, also with a longer DATA. If DATA holds X_test and y_test too,
    the model is evaluated on them at the end. RUN/report.html shows the stream with pictures.

    \b
    Examples:
      mllkm stream train.h5 --out run --memory 1GB
      mllkm stream train.h5 --out run --passes 2 --max-kernels 200 --n-components 50
      mllkm stream train.h5 --out run --window 20000 --prepare-from train.h5
      tail -n +2 -f log.csv | mllkm stream - --out run --classes no,yes --no-header
      mllkm stream events.jsonl --out run --resume
    """
    refuse_both_starts("a stream", context, resume=resume, overwrite=overwrite)
    from mllkm_scale.data import Dataset
    from mllkm_scale.online import DatasetSamples, open_samples
    from mllkm_scale.online import stream as learn
    from mllkm_scale.online.params import stream_params
    from mllkm_scale.report.finalize import require_test_rows

    parameters = given_stream_parameters(context)
    params, online = stream_params(parameters)
    given = None if classes is None else _classes(classes)
    require_folder(out, resume, overwrite)  # before waiting for a cluster
    column = _column(label_column)
    kinds: dict[str, Any] = {"categories": categories, "as_number": as_number}
    if format is None and data.suffix.lower() in (".parquet", ".pq"):
        table = kinds if column is None else kinds | {"label_column": column}
        data, column, kinds = Path(str(as_hdf5(data, out, table, progress))), None, {}
    checkpoint, aloud = OwnCheckpoint(out, resume), progress in ("auto", "plain")
    with ExitStack() as stack:
        samples = open_samples(
            data,
            format=format,
            classes=given,
            x=x,
            y=y,
            sample_weight=sample_weight,
            passes=passes,
            shuffle=shuffle,
            seed=int(params.random_state or 0),
            label_column=column,
            header=header,
            bad_lines=bad_lines,
            warm_up=online.warm_up,
            **kinds,
        )
        stack.enter_context(closing(samples))
        dataset = samples.dataset if isinstance(samples, DatasetSamples) else None
        held_out = None if dataset is None else held_out_of(data)
        if dataset is not None and held_out is not None:
            require_test_rows(dataset, stack.enter_context(held_out))
        like = None if prepare_from is None else stack.enter_context(Dataset.open(prepare_from, x, None))
        listener = stack.enter_context(choose_listener(progress))
        client = stack.enter_context(_client(context, params, listener))
        with ends_at_a_safe_point(context, checkpoint, listener, what="the stream", aloud=aloud) as stop:
            result = learn(
                samples,
                classes=_labels_of(dataset) if given is None and dataset is not None else given,
                like=like,
                test=held_out,
                client=client,
                run_dir=out,
                resume=resume,
                overwrite=overwrite,
                listener=listener,
                should_stop=lambda: stop.requested,
                waiting=nullcontext if dataset is not None else stop.waiting,  # no waiting for rows on disk
                checkpoint_s=checkpoint_s,
                image_shape=image_shape,
                report=report,
                **parameters,
            )
        if progress != "json":
            say(f"model: {out / MODEL} ({result.model.n_kernels} kernels)")
        if held_out is not None and result.evaluation is not None:
            tell_evaluation(result.evaluation, held_out.name, progress)
        tell_report(out, progress)


def _labels_of(dataset: Dataset) -> Any:
    return dataset.label_codes()[0]


def _classes(text: str) -> list[Any]:
    """Labels separated by commas: numbers if all are numbers."""
    words = [word.strip() for word in text.split(",")]
    try:
        return [int(word) for word in words]
    except ValueError:
        return words


def _column(text: str | None) -> str | int | None:
    return int(text) if text is not None and text.lstrip("-").isdecimal() else text


@contextmanager
def _client(context: click.Context, params: Params, listener: Listener) -> Iterator[Client | None]:
    spec = cluster_spec(context)
    if spec is None or spec.kind == "none":
        yield None
        return
    from mllkm_scale.cluster import describe

    listener(Notice(f"waiting for the cluster: {in_words(spec)}"))
    with open_cluster(spec, params.budget_bytes, params.worker_timeout, context) as client:
        listener(Notice(f"cluster: {describe(client)}"))
        yield client
