"""Values of a job file to values of parameters: typed as the fields of a dataclass are.

The text "none" stands for None, and a whole number may stand for a number. A value of another type is a
ParameterError that names the key and says what is wanted, as is one that the key cannot have.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.anchors import anchor_spec
from mllkm_scale.params import checked
from mllkm_scale.units import parse_bytes

__all__ = ["image_shape_value", "memory_value", "one_of", "parameter_value", "text_value", "typed"]

# In the order in which a message lists them, and in which they are tried.
_KINDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "text",
    (float,): "a list of numbers",
    (str,): "a list of texts",
    NoneType: '"none"',
}
_OTHER = object()


def typed(hint: Any, key: str, value: Any) -> Any:
    """The value of a key as a type hint wants it.

    >>> typed(float, "C", 10), typed(int | None, "workers", "none"), typed(str | list[float], "gammas", [1, 2.5])
    (10.0, None, (1.0, 2.5))
    """
    wanted = _kinds_of(hint)
    kinds = [kind for kind in _KINDS if kind in wanted]
    for kind in kinds:
        found = _as_kind(value, kind)
        if found is not _OTHER:
            return None if NoneType in kinds and str(found).lower() == "none" else found
    listed = " or ".join(dict.fromkeys(_KINDS[kind] for kind in kinds))
    raise ParameterError(f"{key} must be {listed}, not {_in_words(value)}")


def _kinds_of(hint: Any) -> list[Any]:
    """The kinds of a hint: types, and (type,) for a sequence of it. Arrays are left out: they come from files."""
    if get_origin(hint) in (Union, UnionType):
        return [kind for part in get_args(hint) for kind in _kinds_of(part)]
    if get_origin(hint) is Literal:
        return [str]
    inner = get_args(hint)
    return [(inner[0],) if inner and inner[0] in (str, float) else hint]


def _as_kind(value: Any, kind: Any) -> Any:
    if isinstance(kind, tuple):
        items = [_as_kind(item, kind[0]) for item in value] if isinstance(value, list) else [_OTHER]
        return _OTHER if _OTHER in items else tuple(items)
    if kind is NoneType:
        return "none" if str(value).lower() == "none" else _OTHER
    if isinstance(value, bool):  # which is an int to Python, but not to TOML
        return value if kind is bool else _OTHER
    if kind is float and isinstance(value, int):
        return float(value)
    return value if isinstance(value, str if kind is Path else kind) else _OTHER


def _in_words(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return f"the number {value}"
        case str():
            return f'the text "{value}"'
        case list():
            return "a list" if all(type(item) is type(value[0]) for item in value) else "a list of several types"
        case dict():
            return "a table"
    return f"the time {value}"


def text_value(key: str, value: Any) -> str:
    """A text that is not empty."""
    text: str = typed(str, key, value)
    if not text.strip():
        raise ParameterError(f"{key} is empty: give a name")
    return text


def one_of(choices: tuple[str, ...], key: str, value: Any) -> str:
    """A text that is one of the choices."""
    text: str = typed(str, key, value)
    if text not in choices:
        raise ParameterError(f"{key}={text!r} is not known: choose one of {', '.join(choices)}")
    return text


def memory_value(key: str, value: Any) -> str | int:
    """A byte size, as text or a number."""
    size: str | int = typed(str | int, key, value)
    try:
        parse_bytes(size)
    except ParameterError as error:
        raise ParameterError(f"{key}: {error}") from None
    return size


def image_shape_value(key: str, value: Any) -> str:
    """The shape of images, such as "28x28"."""
    from mllkm_scale.report.image_shape import read_image_shape

    text = text_value(key, value)
    read_image_shape(text)
    return text


def parameter_value(hint: Any, place: Callable[[str], Path], name: str, value: Any) -> Any:
    """The value of the parameter `name` of `Params`; `place` says where a path of the job file leads."""
    found = typed(hint, name, value)
    if name == "gammas":
        return _gammas(found)
    if name == "anchors":
        return _anchors(found, place)
    if name == "n_components":
        return _components(found)
    checked(**{name: found})
    return found


def _gammas(gammas: Any) -> Any:
    if gammas == "auto":
        return gammas
    values = (gammas,) if isinstance(gammas, float) else gammas
    if isinstance(values, str) or not values or not all(math.isfinite(gamma) and gamma > 0 for gamma in values):
        shown = list(values) if isinstance(values, tuple) else repr(values)
        raise ParameterError(f'gammas={shown}: give positive numbers such as [0.1, 1, 10], or "auto"')
    return values


def _components(components: Any) -> Any:
    if components is None or (components >= 1 if isinstance(components, int) else 0 < components < 1):
        return components
    raise ParameterError(f"n_components={components}: give a whole number from 1, or a share between 0 and 1")


def _anchors(anchors: Any, place: Callable[[str], Path]) -> Any:
    if isinstance(anchors, str) and anchors.endswith(".npy"):
        return _rows_of(place(anchors))
    text = str(anchors).lower()
    value = int(text) if text.isdecimal() else text
    try:
        anchor_spec(value)
    except ParameterError:
        raise ParameterError(
            f'anchors={anchors!r} is none of: "auto", "learned", "learned:200", "learned+all", "all", 500,'
            ' "kmeans:200", "anchors.npy"'
        ) from None
    return value


def _rows_of(path: Path) -> Any:
    try:
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ParameterError(f"anchors: {path} cannot be read ({error}): write it with numpy.save") from None
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.dtype.kind not in "fiu" or 0 in rows.shape:
        raise ParameterError(f"anchors: {path} is not a table of numbers: give one row of numbers an anchor")
    return np.array(rows)
