"""Events and other values in a form that JSON can hold."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from mllkm_scale.base.events import Event

__all__ = ["event_fields", "jsonable"]


def event_fields(event: Event) -> dict[str, Any]:
    """An event as a dictionary for JSON; "event" names its type.

    >>> from mllkm_scale.base.events import Notice
    >>> event_fields(Notice("waiting for workers"))
    {'event': 'notice', 'text': 'waiting for workers'}
    """
    fields: dict[str, Any] = jsonable(event)
    return {"event": type(event).__name__.lower()} | fields


def jsonable(value: Any) -> Any:
    """A value in a form that JSON can hold: dataclasses and arrays unfolded, numbers that are not finite as None.

    >>> jsonable({"gap": math.inf, "shape": (2, 3)})
    {'gap': None, 'shape': [2, 3]}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy's arrays and scalars
        return jsonable(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)
