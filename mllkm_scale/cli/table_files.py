"""Input files of other formats than HDF5: options for reading them, and their conversion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mllkm_scale.base.location import FORMATS, Location, is_parquet
from mllkm_scale.cli.group import say
from mllkm_scale.cli.output import bar, print_json
from mllkm_scale.cli.parsers import parse_label_column

if TYPE_CHECKING:
    from mllkm_scale.data import Dataset
    from mllkm_scale.data.readers.options import KnownTable
    from mllkm_scale.data.tables.columns import Columns
    from mllkm_scale.model import Model
    from mllkm_scale.model.names import Features

__all__ = [
    "as_hdf5",
    "format_option",
    "given_table",
    "kind_options",
    "known_of_dataset",
    "known_of_model",
    "labels_in",
    "layout_options",
    "new_rows_options",
    "scratch_folder",
    "table_options",
    "tell_columns",
    "weighted_hdf5",
]

Command = TypeVar("Command", bound=Callable[..., Any])


def layout_options(command: Command) -> Command:
    """Give a command the options for the label column and the header."""
    label = click.option(
        "--label-column",
        "--target",
        "label_column",
        metavar="NAME|N|last|none",
        default="last",
        show_default=True,
        callback=lambda context, parameter, text: parse_label_column(text),
        help="CSV, TSV and Parquet: the column of the labels, by name or position (0 is the first).",
    )
    header = click.option(
        "--header/--no-header",
        default=None,
        help="CSV and TSV: whether the first line has names (default: detected).",
    )
    return label(header(command))


def new_rows_options(command: Command) -> Command:
    """Give a command the options for rows without labels, and for matching columns."""
    x = click.option("--x", metavar="NAME", help="HDF5, zarr and NPZ: data set of the samples.  [default: X]")
    label = click.option(
        "--label-column",
        metavar="NAME|N|last|none",
        default="none",
        show_default=True,
        callback=lambda context, parameter, text: parse_label_column(text),
        help="CSV, TSV and Parquet: a column that is not a feature, to be ignored; needed if columns have no names.",
    )
    help = "Match columns by position, even if they have names."
    return x(label(click.option("--by-position", is_flag=True, help=help)(command)))


def kind_options(command: Command) -> Command:
    """Give a command the options for the kinds of columns."""
    categories = click.option(
        "--categories",
        metavar="NAME,...",
        multiple=True,
        callback=lambda context, parameter, given: _names(given),
        help="CSV, TSV and Parquet: columns to read as categories, whatever they look like; by name or position.",
    )
    as_number = click.option(
        "--as-number",
        metavar="NAME,...",
        multiple=True,
        callback=lambda context, parameter, given: _names(given),
        help="CSV, TSV and Parquet: columns of numbers; other cells are refused, with their place.",
    )
    return categories(as_number(command))


def table_options(command: Command) -> Command:
    """Give a command all options for tables."""
    return layout_options(kind_options(command))


def format_option(command: Command) -> Command:
    """Give a command the option for the format of its data."""
    help = "Format of DATA, if its name does not say."
    return click.option("--format", "format", type=click.Choice(FORMATS), help=help)(command)


def given_table(context: click.Context) -> dict[str, Any]:
    """The options of `convert` that were given."""
    names = ("format", "label_column", "header", "categories", "as_number")
    return {name: context.params[name] for name in names if name in context.params}


def as_hdf5(
    data: Location, folder: Path, table: Mapping[str, Any], progress: str = "auto", known: KnownTable | None = None
) -> Location:
    """The file itself if it is HDF5, zarr, or Parquet at a URL or in a folder; otherwise its conversion, made once.

    If columns are `known`, only these are read.
    """
    from mllkm_scale.data.converters.conversion import converted_once, must_be_converted
    from mllkm_scale.data.converters.options import ConvertOptions
    from mllkm_scale.data.readers.options import silent

    options = dict(table)
    format = options.pop("format", None)
    if not must_be_converted(data, format):
        return data
    how = ConvertOptions(**options, sparse=None)
    if known is not None:
        how = replace(how, categories=(), as_number=(), known=known)
    aloud = progress in ("auto", "plain")
    with bar(f"reading {data.name}") if aloud else nullcontext(silent) as tell:
        path, summary = converted_once(data, folder, how, tell, format)
    if progress == "json":
        rows = {} if summary is None else {"rows": summary.n_rows, "features": summary.n_features}
        print_json({"event": "read", "data": str(data), "stored": str(path)} | rows, indent=None)
    elif aloud and summary is None:
        say(f"{data}: as it was read before, {path}", err=True)
    elif aloud and summary is not None:
        say(f"{data}: {summary.n_rows:,} rows of {summary.n_features:,} columns", err=True)
        tell_columns(summary.columns, err=True)
    return path


def weighted_hdf5(
    data: Location, folder: Path, table: Mapping[str, Any], sample_weight: str | None, progress: str = "auto"
) -> tuple[Location, str | None]:
    """Like `as_hdf5`, with the name of the data set of the weights, if there are any; in a table they are a column."""
    from mllkm_scale.data.weights import SAMPLE_WEIGHT

    if sample_weight is None:
        return as_hdf5(data, folder, table, progress), None
    column = {"sample_weight": parse_label_column(sample_weight)}
    stored = as_hdf5(data, folder, {**table, **column}, progress)
    return stored, sample_weight if stored == data else SAMPLE_WEIGHT


def labels_in(data: Location, y: str, table: Mapping[str, Any]) -> Any:
    """The name of the labels of data that were not converted: a column of Parquet, and otherwise a data set."""
    return table.get("label_column", y) if is_parquet(data) else y


def tell_columns(columns: Columns | None, *, err: bool = False) -> None:
    """Print a line per column of a table with more than numbers."""
    if columns is not None:
        say("\n".join(["columns:", *(f"  {line}" for line in columns.describe())]), err=err)


@contextmanager
def scratch_folder(parent: str | None = None) -> Iterator[Path]:
    """A temporary folder for conversions."""
    if parent is not None:
        Path(parent).mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="mllkm-", dir=parent) as folder:
        yield Path(folder)


def known_of_dataset(dataset: Dataset) -> KnownTable:
    """The columns of a data set, in any order, for a table of test rows."""
    from mllkm_scale.model.names import Features

    return _known(Features(dataset.n_features, dataset.feature_names), dataset.columns)


def known_of_model(model: Model, *, by_position: bool = False) -> KnownTable:
    """The training columns of a model."""
    features = replace(model.features, names=None) if by_position else model.features
    return _known(features, None if model.encoding is None else model.encoding.columns)


def _known(features: Features, columns: Columns | None) -> KnownTable:
    from mllkm_scale.data.readers.options import KnownTable
    from mllkm_scale.data.tables.columns import Column, Columns

    def pick(names: Sequence[str] | None) -> Sequence[int] | None:
        found = features.match(names, "the file")
        if found is not None and found.ignored:
            say(str(found.remark("the file")), err=True)
        return None if found is None else found.positions

    numbers = Columns(tuple(Column(name) for name in features.names or [""] * features.count))
    return KnownTable(columns or numbers, plain=columns is None, pick=pick)


def _names(given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for names in given for name in names.split(",") if name.strip())
