"""Rows of CSV text to predict, from a file or as they arrive through a pipe, without labels.

Separator and header are detected as in `convert`. Columns are matched by name if the text and the model have names.
Columns that are not features are left out, whatever they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import IO, Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.readers.csv import read_block
from mllkm_scale.data.readers.layout import CSVLayout, is_blank, is_number, layout_of
from mllkm_scale.data.readers.options import ReadOptions
from mllkm_scale.data.readers.records import in_records
from mllkm_scale.data.tables.coding import code_rows
from mllkm_scale.data.tables.encoding import Encoding
from mllkm_scale.errors import DataError
from mllkm_scale.model.names import Features, MatchedColumns

__all__ = ["csv_rows", "piped_records"]

Lines = list[tuple[int, str]]


def csv_rows(
    blocks: Iterator[Lines],
    name: str,
    options: ReadOptions,
    delimiter: str | None,
    features: Features,
    encoding: Encoding | None = None,
    matched: Callable[[MatchedColumns], object] = lambda columns: None,
) -> Iterator[Array]:
    """Rows of each block of lines, encoded if there is an encoding; the first lines determine the layout.

    `matched` is called with the columns that were matched by name.

    Raises
    ------
    DataError
        If a line has other columns, or a cell does not fit its column; the message names line and column.

    Examples
    --------
    >>> lines = iter([[(1, "width;kind"), (2, "1.5;a"), (3, "2;b")]])
    >>> [rows.tolist() for rows in csv_rows(lines, "new.csv", ReadOptions(), None, Features(1, ("width",)))]
    [[[1.5], [2.0]]]
    """
    layout: CSVLayout | None = None
    waiting: Lines = []
    for block in blocks:
        waiting += [(number, line) for number, line in block if not is_blank(line)]
        if layout is None and _tells_layout(waiting, options, features):
            layout = _layout(waiting, name, options, delimiter, features, matched)
        if layout is not None and waiting:
            yield from _parsed(waiting, layout, encoding)
            waiting = []
    if layout is None:
        if not waiting:
            raise DataError(f"{name} is empty: give a line per sample")
        yield from _parsed(waiting, _layout(waiting, name, options, delimiter, features, matched), encoding)


def piped_records(stream: IO[Any], name: str) -> Iterator[Lines]:
    """Numbered records of a stream as they arrive, without waiting for more than the current record.

    >>> import io
    >>> list(piped_records(io.BytesIO(b"1,2\\r\\n3,4"), "standard input"))
    [[(1, '1,2')], [(2, '3,4')], []]
    """
    return in_records(_piped_lines(stream, name))


def _piped_lines(stream: IO[Any], name: str) -> Iterator[Lines]:
    from mllkm_scale.data.readers.lines import line_blocks

    for first, lines in line_blocks(stream, name):
        numbered = []
        for number, line in enumerate(lines, first):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise DataError(f"{name}: line {number} is not UTF-8 text: write it as UTF-8") from None
            numbered.append((number, text.removesuffix("\r")))
        yield numbered


def _tells_layout(lines: Lines, options: ReadOptions, features: Features) -> bool:
    """Whether no further line is needed: if no cell is a number, a second line shows whether the first holds names."""
    if len(lines) >= 2:
        return True
    if not lines:
        return False
    plain = options.header is False or (options.header is None and not isinstance(options.label_column, str))
    if plain and options.header is None and _names_features(lines[0][1], features):
        return False
    return plain and any(is_number(cell) for cell in lines[0][1].replace(";", ",").split(","))


def _names_features(line: str, features: Features) -> bool:
    """Whether a line holds the names of features, at least one of which is not a number."""
    texts = [] if features.names is None else [name for name in features.names if not is_number(name)]
    return bool(texts) and all(text in line for text in texts)


def _layout(
    lines: Lines,
    name: str,
    options: ReadOptions,
    delimiter: str | None,
    features: Features,
    matched: Callable[[MatchedColumns], object],
) -> CSVLayout:
    if options.header is None and _names_features(lines[0][1], features):
        options = replace(options, header=True)
    layout = layout_of(name, lines[:2], options, delimiter)
    by_name = features.match(layout.feature_names, name)
    if by_name is not None:
        matched(by_name)
        return layout.taking(by_name.positions)
    found, n_features = len(layout.features), features.count
    if found != n_features:
        hint = "give the same features in the same order"
        if found == n_features + 1 and layout.label is None:
            hint = "if one column is the label, name it as the label column"
        raise DataError(f"{name} has {found} features per row, but the model was trained with {n_features}: {hint}")
    return layout


def _parsed(lines: Lines, layout: CSVLayout, encoding: Encoding | None) -> Iterator[Array]:
    kept = [(number, line) for number, line in lines if number >= layout.first_line]
    if not kept:
        return
    block = read_block(layout, [number for number, _ in kept], [line for _, line in kept])
    if encoding is None:
        X = block.numbers("predict")
    else:
        X = code_rows(block.features, encoding.columns, block.place)
    broken = np.argwhere(np.isinf(X))
    if len(broken):
        row, column = (int(number) for number in broken[0])
        raise DataError(f"{block.place(row, column)} is infinity: remove or replace it, then predict")
    yield X if encoding is None else encoding.apply(X)
