"""The type of arrays in signatures; shapes and what they hold stand in docstrings and comments."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

__all__ = ["Array"]

Array = NDArray[Any]
