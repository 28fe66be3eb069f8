"""Samples of CSV lines, with a cell per feature and a label; header, separator and label column as in `convert`.

If the first line has text among its features, the stream is a table. Its first lines determine the kinds of its columns
and the levels of its categories. Later texts that are not a level count as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import IO, Any, Unpack

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.readers.csv import CSVBlock, read_block
from mllkm_scale.data.readers.layout import CSVLayout, is_number, layout_of
from mllkm_scale.data.readers.options import LAST_COLUMN, ReadOptions
from mllkm_scale.data.readers.records import Records
from mllkm_scale.data.tables.cells import MISSING
from mllkm_scale.data.tables.coding import Recode, TableCoder, code_rows
from mllkm_scale.data.tables.columns import Columns
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.online.sources.class_labels import BadLabel
from mllkm_scale.online.sources.samples import CHUNK_ROWS
from mllkm_scale.online.sources.text_samples import Lines, Numbered, TextOptions, TextSamples

__all__ = ["CSVSamples"]


class CSVSamples(TextSamples):
    """Samples of CSV lines, each returned as soon as it arrives.

    The first line determines the separator and the columns. If it alone does not show whether it is a header (see
    `header`), the second line is waited for.

    Parameters
    ----------
    stream, classes, bad_lines, chunk_rows, max_line_bytes, name, owns_stream
        See `TextSamples`.
    label_column : str or int
        Name or position of the label column; the last one by default.
    header : bool, optional
        Whether the first line holds names. By default it does if none of its features is a number, or if its label is
        text and not one of `classes`, and the label of the second line is a number.
    delimiter : str, optional
        By default the first of comma, semicolon and tab that is in the first line.
    categories, as_number : sequence of str or int
        Columns, by name or position, that are categories or numbers whatever they look like; with them the stream is a
        table.
    warm_up : int
        Number of first lines that determine the columns of a table.

    Examples
    --------
    >>> import io
    >>> samples = CSVSamples(io.StringIO("weight,height,kind\\n3.5,25,cat\\n20,60,dog\\n"))
    >>> [(chunk.X.tolist(), chunk.y.tolist()) for chunk in samples.chunks()]
    [([[3.5, 25.0], [20.0, 60.0]], ['cat', 'dog'])]
    """

    def __init__(
        self,
        stream: IO[Any],
        *,
        label_column: str | int = LAST_COLUMN,
        header: bool | None = None,
        delimiter: str | None = None,
        categories: Sequence[str | int] = (),
        as_number: Sequence[str | int] = (),
        warm_up: int = CHUNK_ROWS,
        **options: Unpack[TextOptions],
    ) -> None:
        super().__init__(stream, **options)
        if isinstance(label_column, bool) or not isinstance(label_column, str | int):
            raise ParameterError(f"label_column={label_column!r}: give the name or the position of the labels' column")
        if isinstance(label_column, str) and header is False:
            raise ParameterError(f"label_column={label_column!r} needs a header: give its position instead")
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n '):
            raise ParameterError(f"delimiter={delimiter!r}: give one sign, such as ',' or a tab")
        self._options = ReadOptions(
            label_column=label_column, header=header, categories=tuple(categories), as_number=tuple(as_number)
        )
        self._warm_up = warm_up
        self._delimiter = delimiter
        self._layout: CSVLayout | None = None

    @property
    def _layout_known(self) -> bool:
        return self._layout is not None

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the header, if there is one."""
        names = None if self._layout is None else self._layout.feature_names
        return None if names is None else tuple(names)

    def _joined(self, blocks: Iterator[Numbered]) -> Iterator[Numbered]:
        records = Records()
        for block in blocks:
            if not records.begun and not any(b'"' in line for _, line in block):
                yield block
                continue
            # Quotes and separators are ASCII, so decoding UTF-8 as Latin-1 keeps them and all bytes.
            texts = [(number, line.decode("latin-1")) for number, line in block]
            yield [(number, line.encode("latin-1")) for number, line in records.take(texts)]
        yield [(number, line.encode("latin-1")) for number, line in records.rest()]

    def _records(self, blocks: Iterator[Lines]) -> Iterator[Lines]:
        """Lines that are samples; the first lines of a table together, after its columns are known."""
        lines, told = Lines([], []), False
        for record in self._samples(blocks):
            lines = lines + record
            if not told and self._is_table(lines) and len(lines) < self._warm_up:
                continue
            if not told and self._is_table(lines):
                self.columns = self._found(lines)
            told = True
            yield lines
            lines = Lines([], [])
        if len(lines):
            self.columns = self._found(lines)
            yield lines

    def _is_table(self, lines: Lines) -> bool:
        """Whether columns are named as categories or numbers, or the first line has text among its features."""
        layout = self._layout
        assert layout is not None
        if self._options.categories or self._options.as_number:
            return True
        try:
            first = lines.part(0, 1)
            [cells] = layout.cells(first.numbers, first.texts(self.name))
        except DataError:  # refused or skipped when it is parsed
            return False
        known = layout.features if len(cells) == layout.width else []
        texts = [layout.plain(cells[column].strip()) for column in known]
        return any(text not in MISSING and not is_number(text) for text in texts)

    def _found(self, lines: Lines) -> Columns:
        """The columns by these lines, without lines that cannot be read."""
        layout = self._layout
        assert layout is not None
        coder = self._coder(layout)
        blocks = list(self._readable(layout, lines))
        while True:
            try:
                for block in blocks:
                    coder.code(block.features, block.place)
                return coder.columns()
            except Recode:
                coder.restart()

    def _readable(self, layout: CSVLayout, lines: Lines) -> Iterator[CSVBlock]:
        try:
            block = read_block(layout, lines.numbers, lines.texts(self.name))
            self._coder(layout).code(block.features, block.place)
            yield block
        except DataError:
            if len(lines) > 1:
                half = len(lines) // 2
                yield from self._readable(layout, lines.part(0, half))
                yield from self._readable(layout, lines.part(half))

    def _coder(self, layout: CSVLayout) -> TableCoder:
        names, options = layout.feature_names or [""] * len(layout.features), self._options
        return TableCoder(names, self.name, options.categories, options.as_number, layout.features)

    def _samples(self, blocks: Iterator[Lines]) -> Iterator[Lines]:
        waiting = Lines([], [])
        for block in blocks:
            lines, waiting = waiting + block, Lines([], [])
            if self._layout is None:
                self._layout = self._layout_of(lines)
                if self._layout is None:
                    waiting = lines
                    continue
                lines = lines.part(int(lines.numbers[0] < self._layout.first_line))
            yield lines
        if waiting.lines:
            # At the end of the stream, a single line is a sample if it can be one and no header was announced.
            self._layout = layout_of(self.name, waiting.numbered(self.name), self._options, self._delimiter)
            yield waiting

    def _layout_of(self, lines: Lines) -> CSVLayout | None:
        """The layout by the first two lines, or by the first line if it is certainly a sample; None if this is
        unclear."""
        if self._options.header is not True and isinstance(self._options.label_column, int):
            first = lines.part(0, 1)
            plain = layout_of(
                self.name, first.numbered(self.name), replace(self._options, header=False), self._delimiter
            )
            [cells] = plain.cells(first.numbers, first.texts(self.name))
            if self._options.header is False or self._is_sample(plain, cells):
                return plain
        if len(lines) == 1:
            return None
        return layout_of(self.name, lines.part(0, 2).numbered(self.name), self._options, self._delimiter)

    def _is_sample(self, layout: CSVLayout, cells: list[str]) -> bool:
        assert layout.label is not None
        label = cells[layout.label].strip()
        return (is_number(label) or label in self._labels) and any(
            is_number(layout.plain(cells[i])) for i in layout.features
        )

    def _parse(self, lines: Lines) -> tuple[Array, Array]:
        layout, texts = self._layout, lines.texts(self.name)
        assert layout is not None
        assert layout.label is not None
        for number, text in zip(lines.numbers, texts, strict=True):
            if "\r" in text:
                raise DataError(f"{self.name}: line {number} has a carriage return within: end lines with a line feed")
        block = read_block(layout, lines.numbers, texts)
        labels = block.labels()
        if self.columns is None:
            X = block.numbers("learn")
        else:
            X = code_rows(block.features, self.columns, block.place, then="learn")
        finite = np.isfinite(X) if self.columns is None else ~np.isinf(X)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            place = layout.place(lines.numbers[row], layout.features[column])
            what = "NaN" if np.isnan(X[row, column]) else "infinity"
            raise DataError(f"{place} is {what}: give a number or leave the line out")
        try:
            return X, self._labels.read(labels)
        except BadLabel as bad:
            place = layout.place(lines.numbers[bad.place], layout.label)
            raise DataError(f"{place}, the label, {bad.problem}") from None
