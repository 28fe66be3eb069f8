"""`mllkm convert`: converts a file of another format to HDF5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mllkm_scale.base.location import FORMATS
from mllkm_scale.base.units import format_bytes
from mllkm_scale.cli.group import debug_option, say
from mllkm_scale.cli.output import bar, overwrite_option
from mllkm_scale.cli.parsers import DATA, parse_label_column
from mllkm_scale.cli.table_files import table_options, tell_columns

__all__ = ["convert"]


@click.command(short_help="Convert CSV, LIBSVM, NPZ, NPY, IDX or Parquet to HDF5.")
@click.argument("source", metavar="IN", type=DATA)
@click.argument("target", metavar="OUT.h5", type=click.Path(path_type=Path))
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="Format of IN; default: by its name.")
@click.option("--x", metavar="NAME", help="NPZ: the array that becomes X.")
@click.option("--y", metavar="NAME|FILE", help="NPZ: the array that becomes y. NPY and IDX: the file of the labels.")
@table_options
@click.option(
    "--sample-weight",
    metavar="NAME|N",
    callback=lambda context, parameter, text: None if text is None else parse_label_column(text),
    help="CSV, TSV and Parquet: the column of the weights of the rows, which becomes the data set sample_weight.",
)
@click.option("--sparse", is_flag=True, help="LIBSVM: store X without its zeros; for files of many columns.")
@click.option(
    "--hold-out",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="Move a random share of the rows of each class to X_test and y_test.",
)
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Seed of --hold-out.  [default: 0]")
@overwrite_option
@debug_option
def convert(
    source: Path,
    target: Path,
    format_name: str | None,
    x: str | None,
    y: str | None,
    label_column: str | int | None,
    sample_weight: str | int | None,
    header: bool | None,
    categories: tuple[str, ...],
    as_number: tuple[str, ...],
    sparse: bool,
    hold_out: float | None,
    seed: int | None,
    overwrite: bool,
) -> None:
    """Convert IN to the HDF5 file OUT.h5 with the data sets X (samples) and y (labels).

    The columns of a table may hold numbers, text, booleans and dates, and cells may be empty. The detected kind of each
    column is printed; --categories and --as-number override it.

    The file is read in blocks, never as a whole. CSV, TSV, LIBSVM and IDX files may be packed by gzip. With --hold-out,
    `mllkm train OUT.h5` tests its model on the held-out rows.

    \b
    Examples:
      mllkm convert train.csv train.h5
      mllkm convert data.csv data.h5 --hold-out 0.2
      mllkm convert iris.csv iris.h5 --label-column species
      mllkm convert survey.csv survey.h5 --sample-weight weight
      mllkm convert new.csv new.h5 --label-column none
      mllkm convert homes.csv homes.h5 --categories zip,street
      mllkm convert a9a.libsvm a9a.h5
      mllkm convert news20.svm news20.h5 --sparse
      mllkm convert mnist.npz mnist.h5 --x x_train --y y_train
      mllkm convert train-images-idx3-ubyte.gz mnist.h5 --y train-labels-idx1-ubyte.gz
    """
    if seed is not None and hold_out is None:
        raise click.UsageError("--seed is for --hold-out: also give a share, such as --hold-out 0.2")
    from mllkm_scale.data.converters import convert as convert_file

    with bar(f"converting {source.name}") as progress:
        summary = convert_file(
            source,
            target,
            x=x,
            y=y,
            format=format_name,
            label_column=label_column,
            sample_weight=sample_weight,
            header=header,
            categories=categories,
            as_number=as_number,
            sparse=sparse,
            hold_out=hold_out,
            seed=seed or 0,
            progress=progress,
            overwrite=overwrite,
        )
    say(f"{target}: {format_bytes(summary.size_bytes)}, from {source} ({summary.format})")
    width = max(13, *map(len, summary.arrays))
    for name, (shape, kind) in summary.arrays.items():
        say(f"  {name:<{width}} {_shape(shape):<16} {kind}")
    tell_columns(summary.columns)


def _shape(shape: tuple[Any, ...]) -> str:
    return " x ".join(f"{size:,}" for size in shape) or "scalar"
