"""The type of arrays in signatures. Docstrings and comments state shapes and contents."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

__all__ = ["Array"]

Array = NDArray[Any]
