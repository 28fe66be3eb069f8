"""Samples of JSON lines, one object each, in one of two forms, which the first line determines:

{"x": [0.5, 2.0], "y": "cat"}            a list of features: "x" or "features"; the label: "y" or "label"
{"weight": 3.5, "height": 25, "y": 1}    a number per field: features in the order of the first line, and the label
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, Unpack

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.online.sources.class_labels import BadLabel, label_text, shown
from mllkm_scale.online.sources.text_samples import Lines, TextOptions, TextSamples

__all__ = ["JSONSamples"]


FEATURES = ("x", "features")
LABELS = ("y", "label")


@dataclass(frozen=True)
class _Layout:
    """The field of the label, and the field of the list of features, or the fields that are the features."""

    label: str
    width: int
    list_field: str | None
    fields: tuple[str, ...] = ()

    def values(self, sample: dict[str, Any], where: str) -> list[Any]:
        """The values of the features of a sample."""
        if self.list_field is not None:
            values = sample.get(self.list_field)
            if not isinstance(values, list):
                raise DataError(f"{where} has no list {self.list_field!r}: give the features as the first line does")
        else:
            if len(sample) != self.width + 1 or any(field not in sample for field in self.fields):
                named = {*self.fields, self.label}
                odd = sorted(named ^ set(sample))[0]
                problem = "no field" if odd in named else "the field"
                raise DataError(f"{where} has {problem} {shown(odd)}, unlike the first line: give the same fields")
            values = [sample[field] for field in self.fields]
        if len(values) != self.width:
            raise DataError(f"{where} has {len(values)} features instead of {self.width}: give every line the same")
        return values

    def name_of(self, column: int) -> str:
        """The name of a feature for messages."""
        return repr(self.fields[column]) if self.fields else f"feature {column} (0-based)"


class JSONSamples(TextSamples):
    """Samples of JSON lines, each returned as soon as it arrives.

    Parameters
    ----------
    stream, classes, bad_lines, chunk_rows, max_line_bytes, name, owns_stream
        See `TextSamples`.
    label_column : str, optional
        Field of the label; "y" or "label" by default.

    Examples
    --------
    >>> import io
    >>> samples = JSONSamples(io.StringIO('{"x": [1, 2], "y": 0}\\n{"x": [3, 4], "y": 1}\\n'), classes=[0, 1])
    >>> [(chunk.X.tolist(), chunk.y.tolist()) for chunk in samples.chunks()]
    [([[1.0, 2.0], [3.0, 4.0]], [0, 1])]
    """

    def __init__(self, stream: IO[Any], *, label_column: str | None = None, **options: Unpack[TextOptions]) -> None:
        super().__init__(stream, **options)
        if not isinstance(label_column, str | None):
            raise ParameterError(f"label_column={label_column!r}: give the name of the labels' field")
        self._label_fields = LABELS if label_column is None else (label_column,)
        self._layout: _Layout | None = None

    @property
    def _layout_known(self) -> bool:
        return self._layout is not None

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The fields, if there is one per feature."""
        return None if self._layout is None else self._layout.fields or None

    def _records(self, blocks: Iterator[Lines]) -> Iterator[Lines]:
        return blocks

    def _parse(self, lines: Lines) -> tuple[Array, Array]:
        wheres = [f"{self.name}: line {number}" for number in lines.numbers]
        samples = [_object(text, where) for text, where in zip(lines.texts(self.name), wheres, strict=True)]
        layout = self._layout or self._layout_of(samples[0], wheres[0])
        rows = [layout.values(sample, where) for sample, where in zip(samples, wheres, strict=True)]
        X = _numbers(rows, layout, wheres)
        texts = [_label(sample, layout.label, where) for sample, where in zip(samples, wheres, strict=True)]
        try:
            y = self._labels.read(texts)
        except BadLabel as bad:
            raise DataError(f"{wheres[bad.place]}, the label {layout.label!r}, {bad.problem}") from None
        # A bad line does not determine the layout of the others.
        self._layout = layout
        return X, y

    def _layout_of(self, sample: dict[str, Any], where: str) -> _Layout:
        label = next((field for field in self._label_fields if field in sample), None)
        if label is None:
            wanted = " or ".join(map(repr, self._label_fields))
            raise DataError(f"{where} has no field {wanted}: label it, or name the field of the labels (label_column)")
        list_field = next((field for field in FEATURES if isinstance(sample.get(field), list)), None)
        fields = () if list_field else tuple(field for field in sample if field != label)
        width = len(sample[list_field]) if list_field else len(fields)
        if width == 0:
            raise DataError(f"{where} has no features: give them as a list 'x', or as fields with one number each")
        return _Layout(label, width, list_field, fields)


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        sample = json.loads(text)
    except RecursionError:
        raise DataError(f"{where} is nested too deeply: give an object of numbers and a label") from None
    except ValueError as error:
        raise DataError(f"{where} is not JSON ({error}): give one object per line") from None
    if not isinstance(sample, dict):
        raise DataError(f'{where} is a {type(sample).__name__}: give an object such as {{"x": [1, 2], "y": 0}}')
    return sample


def _numbers(rows: list[list[Any]], layout: _Layout, wheres: list[str]) -> Array:
    try:
        X = np.array(rows)
    except ValueError:  # lists among the numbers
        X = np.empty((0, 0), dtype=object)
    if X.ndim == 2 and X.dtype.kind in "fiub":
        X = X.astype(np.float64, copy=False)
        if np.isfinite(X).all():
            return X
    for row, where in zip(rows, wheres, strict=True):
        for column, value in enumerate(row):
            _require_number(value, f"{where}, {layout.name_of(column)},")
    return np.array([[float(value) for value in row] for row in rows])


def _require_number(value: Any, place: str) -> None:
    if not isinstance(value, int | float):
        raise DataError(f"{place} is {_as_json(value)}, not a number: encode it as a number")
    try:
        finite = math.isfinite(value)
    except OverflowError:  # a whole number beyond the range of floats
        finite = False
    if not finite:
        raise DataError(f"{place} is {_as_json(value)}: give a finite number or leave the line out")


def _label(sample: dict[str, Any], field: str, where: str) -> str:
    if field not in sample:
        raise DataError(f"{where} has no field {field!r}: label it or leave it out")
    label = sample[field]
    if not isinstance(label, str | int | float):
        raise DataError(f"{where}, the label {field!r}, is {_as_json(label)}: give text or a number")
    return label_text(label)


def _as_json(value: Any) -> str:
    """The beginning of a value, as in the line."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
