"""Parsers of texts of the command line; invalid texts raise a ParameterError."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mllkm_scale.base.location import URL, as_location
from mllkm_scale.base.units import parse_bytes
from mllkm_scale.errors import ParameterError

__all__ = [
    "DATA",
    "Parser",
    "parse_components",
    "parse_label_column",
    "parse_metric",
    "parse_number",
    "parse_rows",
    "parse_size",
]

Parser = Callable[[str], Any]


class DataPath(click.Path):
    """The path of data, or a URL that fsspec opens."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        location = as_location(value)
        return location if isinstance(location, URL) else super().convert(str(location), param, ctx)


DATA = DataPath(path_type=Path, allow_dash=True)
"""Type of arguments that name data."""


def parse_number(kind: type[int] | type[float], **words: Any) -> Parser:
    """A parser of numbers, and of words with a value.

    >>> parse = parse_number(int, none=None)
    >>> parse("12"), parse("none")
    (12, None)
    """

    def parse(text: str) -> Any:
        if text.lower() in words:
            return words[text.lower()]
        try:
            return kind(text)
        except ValueError:
            known = "".join(f", nor {word}" for word in words)
            what = "a whole number" if kind is int else "a number"
            raise ParameterError(f"{text!r} is not {what}{known}") from None

    return parse


def parse_metric(text: str) -> str | int | None:
    """The word auto, diagonal, full or none, or a number of components.

    >>> parse_metric("diagonal"), parse_metric("10"), parse_metric("none")
    ('diagonal', 10, None)
    """
    if text.lower() in ("auto", "diagonal", "full"):
        return text.lower()
    return parse_number(int, none=None)(text)


def parse_components(text: str) -> int | float | None:
    """A number of components, the share of the variance that they keep, or the word none.

    >>> parse_components("50"), parse_components("0.95")
    (50, 0.95)
    """
    if text.lower() == "none":
        return None
    try:
        components = int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
    except ValueError:
        raise ParameterError(f"{text!r} is not a number such as 50, nor a share such as 0.95") from None
    if not (components >= 1 if isinstance(components, int) else 0 < components < 1):
        raise ParameterError(f"{text!r}: give a whole number from 1, or a share between 0 and 1")
    return components


def parse_rows(text: str) -> tuple[int, int]:
    """The first row and the one after the last.

    >>> parse_rows("0:5"), parse_rows("7")
    ((0, 5), (7, 8))
    """
    match = re.fullmatch(r"(\d+)(?::(\d+))?", text.strip())
    if match is None:
        raise ParameterError(f"{text!r} is no range of rows: give a row such as 7, or rows such as 0:5")
    first = int(match[1])
    last = first + 1 if match[2] is None else int(match[2])
    if not first < last:
        raise ParameterError(f"{text!r} has no rows: give the first row and the one after the last, such as 0:5")
    return first, last


def parse_size(text: str) -> str:
    """A checked byte size, as written."""
    parse_bytes(text)
    return text


def parse_label_column(text: str) -> str | int | None:
    """The name of a column, its position, or one of the words last and none.

    >>> [parse_label_column(text) for text in ("kind", "0", "last", "none")]
    ['kind', 0, -1, None]
    """
    if text.lower() in ("last", "none"):
        return -1 if text.lower() == "last" else None
    return int(text) if re.fullmatch(r"-?\d+", text) else text
