"""The tables of a job file: their keys, and the types of their values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_type_hints

import msgspec

from mllkm_scale.base.location import Format
from mllkm_scale.errors import ParameterError
from mllkm_scale.params import Params
from mllkm_scale.run.job.cluster import ClusterSpec

__all__ = ["TABLES", "about_key", "did_you_mean", "read_value"]

Text = Annotated[str, msgspec.Meta(pattern=r"\S")]

_CALLED = {  # names used elsewhere: the table and the key of a job file
    "memory_budget": ("budget", "memory"),
    "scratch_dir": ("budget", "scratch"),
    "verbose": ("output", "progress"),
    "seed": ("parameters", "random_state"),
    "jobs": ("parameters", "n_jobs"),
    "out": ("output", "run"),
}
# An array of anchors is in a file.
_PARAMETERS = {"preset": str | None} | get_type_hints(Params) | {"anchors": str | int}

TABLES: dict[str, dict[str, Any]] = {
    "data": {
        "path": Path,
        "x": Text,
        "y": Text,
        "sample_weight": Text,
        "test": Path,
        "image_shape": Text,
        "format": Format,
        "label_column": str | int,
        "header": bool,
        "categories": list[str | int],
        "as_number": list[str | int],
    },
    "parameters": {key: hint for key, hint in _PARAMETERS.items() if key not in _CALLED},
    "budget": {"memory": str | int, "scratch": Path},
    "cluster": get_type_hints(ClusterSpec),
    "output": {"run": Path, "progress": str, "report": bool, "performance_report": Path},
}
"""The tables of a job file, their keys, and the types of these."""

_WANTED = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text", "array": "a list"}
_FOUND = {"bool": "{}", "int": "the number {}", "float": "the number {}", "str": 'the text "{}"'}
_FOUND |= {"array": "a list", "object": "a table"}
_WRONG_TYPE = re.compile(r"Expected `([^`]+)`, got `([^`]+)`(?: - at `\$\[(\d+)\]`)?")


def read_value(key: str, value: Any, hint: Any, folder: Path) -> Any:
    """The value of a key as its type; "none" stands for None, and paths are relative to `folder`.

    Raises
    ------
    ParameterError
        If it has another type; the message names the key and the allowed types.

    Examples
    --------
    >>> read_value("C", 10, float | str, Path()), read_value("workers", "none", int | None, Path())
    (10.0, None)
    """
    if NoneType in get_args(hint) and str(value).lower() == "none":
        return None
    try:
        return msgspec.convert(value, hint, dec_hook=lambda _, text: _place(folder, text))
    except msgspec.ValidationError as error:
        message = str(error)
    if "matching regex" in message:
        raise ParameterError(f"{key} is empty: give a name")
    found = _WRONG_TYPE.fullmatch(message)
    if found is None:
        raise ParameterError(message)
    wanted = " or ".join(_WANTED.get(kind, '"none"') for kind in found[1].split(" | "))
    if found[3]:
        key, value = f"{key}[{found[3]}]", value[int(found[3])]
    shown = str(value).lower() if isinstance(value, bool) else value
    raise ParameterError(f"{key} must be {wanted}, not {_FOUND.get(found[2], 'the time {}').format(shown)}")


def _place(folder: Path, text: Any) -> Path:
    path = Path(msgspec.convert(text, Text))
    try:
        return folder / path.expanduser()
    except RuntimeError:
        raise ParameterError(f"{path}: there is no home folder of that name: write the whole path") from None


def about_key(key: str, table: str | None = None) -> str:
    """The message for an unknown key of a table, or a key outside any table.

    >>> about_key("max_round", "parameters")
    'unknown key max_round in [parameters]: did you mean max_rounds?'
    """
    home = next(((name, key) for name, keys in TABLES.items() if key in keys), _CALLED.get(key))
    if home is not None:
        where = "is outside any table" if table is None else f"is not a key of [{table}]"
        return f"{key} {where}: write {home[1]} in [{home[0]}]"
    if table is None:
        return f"{key} is outside any table: the tables are {', '.join(f'[{name}]' for name in TABLES)}"
    return f"unknown key {key} in [{table}]: {did_you_mean(key, TABLES[table])}"


def did_you_mean(name: str, known: Iterable[str], form: str = "{}") -> str:
    """A suggestion of the most similar name, or all names if none is similar."""
    names = list(known)
    close = [other for other in names if other.lower() == name.lower()] or difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {form.format(close[0])}?"
    return f"known are {', '.join(form.format(other) for other in names)}"
