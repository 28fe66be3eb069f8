"""Options of a conversion."""

from __future__ import annotations

import os
from dataclasses import dataclass

from mllkm_scale.data.readers.options import ReadOptions

__all__ = ["ConvertOptions"]


@dataclass(frozen=True)
class ConvertOptions(ReadOptions):
    """Options of a conversion, besides those of tables; `convert` explains them for each format."""

    x: str | None = None
    y: str | os.PathLike[str] | None = None
    hold_out: float | None = None
    seed: int = 0
    sparse: bool | None = False
