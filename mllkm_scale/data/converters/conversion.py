"""Streaming conversion of other formats to HDF5: only a few blocks are in memory."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mllkm_scale.base.files.folders import writing
from mllkm_scale.base.location import URL, Location, as_location
from mllkm_scale.data.converters.csv_text import convert_csv, convert_tsv
from mllkm_scale.data.converters.hold_out import HoldOutWriter
from mllkm_scale.data.converters.idx import convert_idx
from mllkm_scale.data.converters.libsvm import convert_libsvm
from mllkm_scale.data.converters.npy import convert_npy
from mllkm_scale.data.converters.npz import convert_npz
from mllkm_scale.data.converters.options import ConvertOptions
from mllkm_scale.data.converters.parquet import convert_parquet
from mllkm_scale.data.converters.writer import HDF5Writer
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.hdf5_source import named, open_hdf5
from mllkm_scale.data.readers.options import LAST_COLUMN, Progress, silent
from mllkm_scale.data.readers.streams import is_gzip
from mllkm_scale.data.sources import one_line
from mllkm_scale.data.tables.columns import COLUMN_ARRAYS, Columns
from mllkm_scale.errors import DataError, ParameterError

__all__ = [
    "FORMATS",
    "ConvertSummary",
    "convert",
    "converted_once",
    "format_of",
    "must_be_converted",
    "require_parquet",
    "require_readable",
]

_STAMP = "converted_from"

Converter = Callable[[Any, HDF5Writer, ConvertOptions, Progress], None]


@dataclass(frozen=True)
class _Format:
    """A format: its converter, its file names, and its options."""

    convert: Converter
    pattern: str
    options: frozenset[str] = frozenset()
    gzip: bool = True


_TABLE = frozenset({"label_column", "sample_weight", "categories", "as_number"})

FORMATS = {
    "csv": _Format(convert_csv, r"\.csv", _TABLE | {"header"}),
    "tsv": _Format(convert_tsv, r"\.tsv", _TABLE | {"header"}),
    "libsvm": _Format(convert_libsvm, r"\.(libsvm|svmlight|svm)", frozenset({"sparse"})),
    "npz": _Format(convert_npz, r"\.npz", frozenset({"x", "y"}), gzip=False),
    "npy": _Format(convert_npy, r"\.npy", frozenset({"y"}), gzip=False),
    "idx": _Format(convert_idx, r"\.idx|[.-]idx\d-[a-z]+", frozenset({"y"})),
    "parquet": _Format(convert_parquet, r"\.(parquet|pq)", _TABLE, gzip=False),
}


@dataclass(frozen=True)
class ConvertSummary:
    """What a conversion wrote: every array by name, with its shape and type.

    `n_rows` and `n_features` describe X; they are 0 if no array has that name. `label_type` is the type of y. `columns`
    describes a table with categories or missing values, and is None otherwise.
    """

    source: Location
    target: Path
    format: str
    arrays: dict[str, tuple[tuple[int, ...], str]]
    n_rows: int
    n_features: int
    label_type: str | None
    size_bytes: int
    columns: Columns | None = None


def convert(
    source: str | os.PathLike[str] | URL,
    target: str | os.PathLike[str],
    *,
    x: str | None = None,
    y: str | os.PathLike[str] | None = None,
    format: str | None = None,
    label_column: str | int | None = LAST_COLUMN,
    sample_weight: str | int | None = None,
    header: bool | None = None,
    categories: Sequence[str | int] = (),
    as_number: Sequence[str | int] = (),
    hold_out: float | None = None,
    seed: int = 0,
    sparse: bool | None = False,
    progress: Progress | None = None,
    overwrite: bool = False,
) -> ConvertSummary:
    """Convert a file to an HDF5 file with the data sets X and y.

    Names of columns become the data set feature_names. Columns of a table may hold numbers, text (categories), booleans
    (true and false) and dates (ISO 8601), and cells may be empty. The cells of a column determine its kind, which is
    stored beside X (`Dataset.columns`). In X, categories are codes, and missing values are NaN.

    The target appears only when it is complete. After an error or an interruption, an existing target is unchanged.

    Parameters
    ----------
    source, target : path
        The target ends with .h5 or .hdf5. Parquet may be a folder of files, or a URL that fsspec opens.
    x : str, optional
        NPZ: the array that becomes X. All other arrays keep their names.
    y : str or path, optional
        NPZ: the array that becomes y. NPY and IDX: the file of the labels.
    format : {"csv", "tsv", "libsvm", "npz", "npy", "idx", "parquet"}, optional
        By default from the name of the file. CSV, TSV, LIBSVM and IDX files may be packed by gzip.
    label_column : str or int or None
        CSV, TSV and Parquet: name or position of the label column, the last one by default; None for no labels.
    sample_weight : str or int, optional
        CSV, TSV and Parquet: name or position of the column of the weights, which becomes the data set sample_weight.
    header : bool, optional
        CSV and TSV: whether the first line holds names; detected by default.
    categories, as_number : sequence of str or int
        CSV, TSV and Parquet: columns, by name or position, to read as categories or as numbers, whatever their cells
        look like.
    hold_out : float, optional
        Share of the rows of each class, drawn at random, that become X_test and y_test of the same file. The first row
        of a class is never drawn.
    seed : int
        Seed of the draw; the same file, share and seed give the same rows.
    sparse : bool or None
        LIBSVM: store X without its zeros (`mllkm_scale.data.sparse`). None: if it is wide and mostly zeros.
    progress : callable, optional
        Called as ``progress(done, total)`` after each block, in bytes or rows.
    overwrite : bool
        Replace a target that exists.

    Returns
    -------
    ConvertSummary

    Raises
    ------
    DataError
        If the source is damaged or has values that cannot be converted; the message names file, line or row, and
        column.
    ParameterError
        If the target exists, or an option does not belong to the format.
    ScratchError
        If the target cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "pets.csv").write_text("weight,height,kind\\n3.5,25,cat\\n20,60,dog\\n")
    ...     summary = convert(f"{folder}/pets.csv", f"{folder}/pets.h5")
    >>> summary.arrays
    {'X': ((2, 2), 'float64'), 'feature_names': ((2,), 'text'), 'y': ((2,), 'text')}
    """
    origin, goal = as_location(source), Path(target).absolute()
    kind = format or format_of(origin)
    if kind is None:
        raise ParameterError(f"the format of {origin} is not clear from its name: name one of {', '.join(FORMATS)}")
    options = ConvertOptions(
        x=x,
        y=y,
        label_column=label_column,
        sample_weight=sample_weight,
        header=header,
        hold_out=hold_out,
        seed=seed,
        categories=tuple(categories),
        as_number=tuple(as_number),
        sparse=sparse,
    )
    return write_converted(origin, goal, kind, options, progress or silent, overwrite=overwrite)


def converted_once(
    source: Location, folder: Path, options: ConvertOptions, progress: Progress = silent, format: str | None = None
) -> tuple[Path, ConvertSummary | None]:
    """The HDF5 file of a source of another format in a folder, and a summary of the conversion; None if the file
    existed.

    The file stores the size and time of the source, and the options; if one of them has changed, it is made again.
    """
    kind = format or format_of(source)
    assert kind is not None
    state = require_readable(source, kind).stat()
    stamp = json.dumps({"bytes": state.st_size, "modified_ns": state.st_mtime_ns, "options": f"{kind} {options!r}"})
    target = folder.absolute() / f"{source.name}.h5"
    if _stamp_of(target) == stamp:
        return target, None
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return target, write_converted(source, target, kind, options, progress, overwrite=True, stamp=stamp)


def _stamp_of(target: Path) -> str | None:
    """The stored description of the source of a conversion; None if the file is missing or cannot be read."""
    try:
        with named(target), open_hdf5(target) as file:
            return str(file.attrs.get(_STAMP))
    except DataError:
        return None


def write_converted(
    origin: Location,
    goal: Path,
    kind: str,
    options: ConvertOptions,
    progress: Progress,
    *,
    overwrite: bool,
    stamp: str | None = None,
) -> ConvertSummary:
    """The conversion of `convert`, with options of checked types."""
    if kind not in FORMATS:
        raise ParameterError(f"{kind!r} is not a format: choose one of {', '.join(FORMATS)}")
    _require_known_options(kind, options)
    if goal.suffix.lower() not in (".h5", ".hdf5"):
        raise ParameterError(f"{goal.name} must be an HDF5 file: name it {goal.stem}.h5")
    if kind == "parquet":
        require_parquet(origin)
    else:
        require_readable(origin, kind)
    if options.y is not None and kind != "npz":
        require_readable(Path(options.y), kind)
    with _writer(goal, kind, options, overwrite) as writer:
        try:
            FORMATS[kind].convert(origin, writer, options, progress)
        except OSError as error:
            raise DataError(f"{origin} cannot be read ({one_line(error)}): copy it again") from error
        if isinstance(writer, HoldOutWriter):
            writer.require_held_out(Path(str(origin)))
        if stamp is not None:
            writer.write_attributes(**{_STAMP: stamp})
        arrays = writer.arrays
        _require_usable(origin, options, arrays)
    shape = arrays["X"][0] if "X" in arrays and len(arrays["X"][0]) == 2 else (0, 0)
    if "X_indptr" in arrays:
        with Dataset.open(goal, "X", None) as written:
            shape = (written.n_rows, written.n_features)
    label_type = arrays["y"][1] if "y" in arrays else None
    columns = None
    if COLUMN_ARRAYS[0] in arrays and "X" in arrays:
        with Dataset.open(goal, "X", None) as written:
            columns = written.columns
    return ConvertSummary(origin, goal, kind, arrays, shape[0], shape[1], label_type, goal.stat().st_size, columns)


def _writer(goal: Path, kind: str, options: ConvertOptions, overwrite: bool) -> HDF5Writer:
    if options.hold_out is None:
        return HDF5Writer(goal, overwrite=overwrite)
    if options.label_column is None or (options.y is None and kind in ("npy", "idx")):
        how = "name the file of the labels with y" if kind in ("npy", "idx") else "name their column"
        raise ParameterError(f"hold_out={options.hold_out!r} needs labels: {how}")
    return HoldOutWriter(goal, options.hold_out, options.seed, overwrite=overwrite)


def format_of(source: Location) -> str | None:
    """The format of a file by its name; None if the name shows no format.

    >>> format_of(Path("train.csv.gz")), format_of(Path("train.h5"))
    ('csv', None)
    """
    name = source.name.lower().removesuffix(".gz")
    known = (kind for kind, format in FORMATS.items() if re.search(f"({format.pattern})$", name))
    return next(known, None)


def must_be_converted(source: Location, format: str | None = None) -> bool:
    """Whether this file must be converted to read its rows: it is neither HDF5, nor a folder, nor Parquet at a URL."""
    kind = format or format_of(source)
    return kind not in (None, "parquet") if isinstance(source, URL) else kind is not None and not source.is_dir()


def _require_known_options(kind: str, options: ConvertOptions) -> None:
    given = {
        "x": options.x is not None,
        "y": options.y is not None,
        "label_column": options.label_column != LAST_COLUMN,
        "sample_weight": options.sample_weight is not None,
        "header": options.header is not None,
        "categories": bool(options.categories),
        "as_number": bool(options.as_number),
        "sparse": bool(options.sparse),
    }
    for option, is_given in given.items():
        if is_given and option not in FORMATS[kind].options:
            known = ", ".join(sorted(FORMATS[kind].options)) or "no options"
            raise ParameterError(f"{option} does not belong to the format {kind}, which knows {known}: leave it out")
    for name in ("label_column", "sample_weight"):
        column = getattr(options, name)
        if isinstance(column, str) and options.header is False:
            raise ParameterError(f"{name}={column!r} needs a header: give its position instead")
    if isinstance(options.label_column, bool) or not isinstance(options.label_column, str | int | None):
        raise ParameterError(f"label_column must be a name, a position or None, not {options.label_column!r}")


def require_parquet(source: Location) -> None:
    """Refuse Parquet that is missing; it may be a file, a folder, or a URL."""
    if isinstance(source, Path) and not source.is_dir():
        require_readable(source, "parquet")


def require_readable(source: Location, kind: str) -> Path:
    """The path of a file; an error if it is missing, empty, or compressed in a format that does not allow it."""
    if isinstance(source, URL):
        raise DataError(f"{source} is {kind}, which is not read by URL: copy it first, or give zarr or Parquet")
    if not source.is_file():
        problem = "is not a file" if source.exists() else "does not exist"
        raise DataError(f"{source} {problem}: check the path")
    try:
        if source.stat().st_size == 0:
            raise DataError(f"{source} is empty: copy it again")
        packed = is_gzip(source)
    except OSError as error:
        raise DataError(f"{source} cannot be read ({one_line(error)}): change its permissions") from error
    if packed and not FORMATS[kind].gzip:
        raise DataError(f"{source} is packed by gzip, which {kind} files cannot be: unpack it first with gunzip")
    return source


def _require_usable(source: Location, options: ConvertOptions, arrays: dict[str, tuple[tuple[int, ...], str]]) -> None:
    if not arrays:
        raise DataError(f"{source} holds no rows: give at least one")
    if "X" not in arrays:
        return
    shape, kind = arrays["X"]
    if 0 in shape or kind == "text":
        raise DataError(f"{source} has X of shape {shape} and type {kind}: give rows of numbers")
    if "y" in arrays and arrays["y"][0][:1] != shape[:1]:
        labels = arrays["y"][0]
        raise DataError(f"{source} has X of shape {shape}, but {options.y or 'y'} has shape {labels}: label every row")
