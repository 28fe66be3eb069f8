"""The source for a path: a data set of HDF5 or zarr, a file of CSV or JSON lines, or standard input."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, cast

from numpy.typing import ArrayLike

from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.readers.lines import MAX_LINE_BYTES
from mllkm_scale.data.readers.options import LAST_COLUMN
from mllkm_scale.data.readers.streams import is_gzip
from mllkm_scale.data.sources import one_line
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.online.sources.csv_samples import CSVSamples
from mllkm_scale.online.sources.dataset_samples import DatasetSamples
from mllkm_scale.online.sources.json_samples import JSONSamples
from mllkm_scale.online.sources.samples import CHUNK_ROWS, Samples
from mllkm_scale.online.sources.text_samples import TextOptions

__all__ = ["FORMATS", "open_samples"]

_DATASET = ("x", "y", "sample_weight", "passes", "shuffle")
_TEXT = ("label_column", "bad_lines", "max_line_bytes")
FORMATS = {
    "hdf5": _DATASET,
    "zarr": _DATASET,
    "csv": (*_TEXT, "header", "categories", "as_number"),
    "tsv": (*_TEXT, "header", "categories", "as_number"),
    "jsonl": _TEXT,
}
"""The formats, and the options that belong to each."""
STANDARD_INPUT = "-"
_BY_SUFFIX = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def open_samples(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    classes: ArrayLike | None = None,
    x: str = "X",
    y: str = "y",
    sample_weight: str | None = None,
    passes: int = 1,
    shuffle: bool = False,
    seed: int = 0,
    label_column: str | int | None = None,
    header: bool | None = None,
    bad_lines: str = "error",
    chunk_rows: int | None = None,
    max_line_bytes: int | str = MAX_LINE_BYTES,
    categories: Sequence[str | int] = (),
    as_number: Sequence[str | int] = (),
    warm_up: int = CHUNK_ROWS,
) -> Samples:
    """Open a stream of labelled samples.

    Parameters
    ----------
    path : path
        An HDF5 file, the folder of a zarr group, a file of CSV, TSV or JSON lines, plain or gzip;
        "-" for standard input.
    format : {"hdf5", "zarr", "csv", "tsv", "jsonl"}, optional
        By default from the name: .csv, .tsv, .jsonl or .ndjson, and .gz after these; everything else is a data set.
        Standard input is CSV unless said otherwise.
    classes : array-like, optional
        The classes that labels are matched with; see `ClassLabels`.
    x, y : str
        HDF5 and zarr: names of the data sets of the samples and of the labels.
    sample_weight : str, optional
        HDF5 and zarr: name of the data set of the weights of the samples.
    passes, shuffle, seed
        HDF5 and zarr: see `DatasetSamples`. Text is read once, in order: convert it first for more passes.
    label_column : str or int, optional
        CSV and TSV: name or position of the label column; the last one by default. JSON lines: the field.
    header : bool, optional
        CSV and TSV: whether the first line holds names; detected by default.
    bad_lines, max_line_bytes
        Text: see `TextSamples`.
    chunk_rows : int, optional
        Largest number of rows of a chunk: by default that of the grid of the data set, and 1024 for text.

    categories, as_number, warm_up
        CSV and TSV: see `CSVSamples`.

    Returns
    -------
    Samples
        Its `close` closes the file, but never standard input.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "pets.csv").write_text("weight,height,kind\\n3.5,25,cat\\n20,60,dog\\n")
    ...     samples = open_samples(f"{folder}/pets.csv", label_column="kind")
    ...     next(samples.chunks()).y.tolist()
    ...     samples.close()
    ['cat', 'dog']
    """
    standard = os.fspath(path) == STANDARD_INPUT
    kind = format or ("csv" if standard else _format_of(Path(path)))
    if kind not in FORMATS:
        raise ParameterError(f"format={format!r} is not known: choose one of {', '.join(FORMATS)}")
    given = {
        "x": x != "X",
        "y": y != "y",
        "sample_weight": sample_weight is not None,
        "passes": passes != 1,
        "shuffle": shuffle,
        "label_column": label_column is not None,
        "header": header is not None,
        "categories": bool(categories),
        "as_number": bool(as_number),
        "bad_lines": bad_lines != "error",
        "max_line_bytes": max_line_bytes != MAX_LINE_BYTES,
    }
    for option in (name for name, is_given in given.items() if is_given and name not in FORMATS[kind]):
        known = ", ".join(FORMATS[kind])
        raise ParameterError(f"{option} does not belong to the format {kind}, which knows {known}: leave it out")
    if kind in ("hdf5", "zarr"):
        if standard:
            raise ParameterError(f"standard input cannot be {kind}: give the path of the file")
        dataset = Dataset.open(path, x, y, sample_weight=sample_weight, chunk_rows=chunk_rows)
        with _closed_after_error(dataset):
            return DatasetSamples(dataset, classes=classes, passes=passes, shuffle=shuffle, seed=seed)
    options: TextOptions = {
        "classes": classes,
        "bad_lines": bad_lines,
        "chunk_rows": CHUNK_ROWS if chunk_rows is None else chunk_rows,
        "max_line_bytes": max_line_bytes,
        "name": "standard input" if standard else str(path),
        "owns_stream": not standard,
    }
    stream = _standard_input() if standard else _open_text(Path(path))
    with nullcontext() if standard else _closed_after_error(stream):
        if kind == "jsonl":
            return JSONSamples(stream, label_column=label_column, **options)  # type: ignore[arg-type]
        column = LAST_COLUMN if label_column is None else label_column
        delimiter = "\t" if kind == "tsv" else None
        return CSVSamples(
            stream,
            label_column=column,
            header=header,
            delimiter=delimiter,
            categories=categories,
            as_number=as_number,
            warm_up=warm_up,
            **options,
        )


@contextmanager
def _closed_after_error(opened: Dataset | IO[Any]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        opened.close()
        raise


def _format_of(path: Path) -> str:
    return _BY_SUFFIX.get(Path(path.name.lower().removesuffix(".gz")).suffix, "zarr" if path.is_dir() else "hdf5")


def _standard_input() -> IO[Any]:
    if sys.stdin is None or sys.stdin.closed:
        raise DataError("standard input is closed: pipe samples into it, or give the path of a file")
    return sys.stdin


def _open_text(path: Path) -> IO[Any]:
    if path.is_dir() or not path.exists():
        raise DataError(f"{path} {'is a folder' if path.is_dir() else 'does not exist'}: check the path")
    try:
        # Do not read from a named pipe here: the data would be lost.
        packed = path.is_file() and is_gzip(path)
        return cast(IO[Any], gzip.open(path, "rb")) if packed else path.open("rb")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({one_line(error)}): change its permissions") from error
