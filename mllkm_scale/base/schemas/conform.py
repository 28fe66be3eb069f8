"""The checks of files: JSON of bounded depth, objects that conform to a schema, and arrays of a kind and a shape."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from mllkm_scale.base.arrays import Array
from mllkm_scale.printable import printable

__all__ = ["MOST_JSON_BYTES", "conform", "conform_array", "parse_json"]

T = TypeVar("T")

MOST_JSON_BYTES = 64_000_000
"""A JSON file is never larger: run.json of a million feature names of 50 letters is."""

_DEEPEST = 40  # lists and objects within each other


def parse_json(text: str | bytes) -> Any:
    """What a JSON text holds; a ValueError if it is none, or nests too deeply to be one of this package.

    >>> parse_json("[1, NaN]"), parse_json('{"a": []}')
    ([1, nan], {'a': []})
    >>> parse_json("[" * 50 + "]" * 50)
    Traceback (most recent call last):
    ValueError: its lists and objects nest too deeply
    """
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("its lists and objects nest too deeply") from None
    level = [found]
    for _ in range(_DEEPEST):
        level = [item for one in level if isinstance(one, list | dict) for item in _items(one)]
        if not level:
            return found
    raise ValueError("its lists and objects nest too deeply")


def _items(value: list[Any] | dict[str, Any]) -> Any:
    return value.values() if isinstance(value, dict) else value


def conform(found: Any, kind: type[T], where: str = "") -> T:
    """What was found as an object of `kind`; a ValueError that names the field if it cannot be one.

    >>> from mllkm_scale.base.schemas.headers import LearningHeader
    >>> conform({"fingerprint": "f", "seed": -1}, LearningHeader)
    Traceback (most recent call last):
    ValueError: seed: expected `int` >= 0
    """
    try:
        return msgspec.convert(found, kind)
    except (msgspec.ValidationError, OverflowError, RecursionError) as error:
        what, _, place = str(error).partition(" - at `$")
        place = f"{where}{place.rstrip('`')}".removeprefix(".")
        what = f"{what[:1].lower()}{what[1:]}"
        raise ValueError(printable(f"{place}: {what}" if place else what, longest=300)) from None


def conform_array(
    arrays: Mapping[str, Array],
    name: str,
    kind: str,
    shape: tuple[int | None, ...],
    *,
    least: float | None = None,
    most: float | None = None,
) -> Array:
    """An array of an archive file; a ValueError that names it if it is missing, or not what it should be.

    Parameters
    ----------
    kind : str
        Its kind as NumPy names it: "f", whose entries have to be finite, "i", "b" or "U".
    shape : tuple of int or None
        Its shape; None is for any size.
    least, most : float, optional
        The range of its entries.

    Examples
    --------
    >>> import numpy as np
    >>> conform_array({"weights": np.array([0.5, -0.5])}, "weights", "f", (None,), least=0.0)
    Traceback (most recent call last):
    ValueError: the array weights holds -0.5, less than 0
    """
    if name not in arrays:
        raise ValueError(f"the array {name} is missing")
    values = arrays[name]
    fits = len(values.shape) == len(shape) and all(
        want in (None, size) for size, want in zip(values.shape, shape, strict=True)
    )
    if not fits or values.dtype.kind not in ("iu" if kind == "i" else kind):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(
            f"the array {name} has shape {values.shape} and type {values.dtype}, not ({wanted}) and {kind}"
        )
    if not values.size:
        return values
    low, high = (values.min(), values.max()) if kind in "fi" else (0, 0)
    if not (math.isfinite(low) and math.isfinite(high)):  # the extremes of an array with NaN are NaN
        raise ValueError(f"the array {name} holds NaN or infinity")
    if least is not None and low < least:
        raise ValueError(f"the array {name} holds {low}, less than {least:g}")
    if most is not None and high > most:
        raise ValueError(f"the array {name} holds {high}, more than {most:g}")
    return values
