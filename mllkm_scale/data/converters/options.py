"""What the user may choose when a file is converted."""

from __future__ import annotations

import os
from dataclasses import dataclass

from mllkm_scale.data.readers.options import ReadOptions

__all__ = ["ConvertOptions"]


@dataclass(frozen=True)
class ConvertOptions(ReadOptions):
    """Choices of one conversion, beside those of a table; see `convert` for what they mean in each format."""

    x: str | None = None
    y: str | os.PathLike[str] | None = None
    hold_out: float | None = None
    seed: int = 0
    sparse: bool | None = False
