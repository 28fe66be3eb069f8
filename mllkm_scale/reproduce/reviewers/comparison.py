"""What a comparison is: something that is run, and then told in tables and shown in a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mllkm_scale.reproduce.parts import Parts, Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Comparison", "Tell"]

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Comparison:
    """A question of the reviewers, and how it is answered.

    `run(parts, tell, quick)` gives a record; a part of it that is in `parts` already is not computed again. With
    `quick` it is small: it shows that all works, and its figures mean nothing.
    """

    name: str
    question: str
    run: Callable[[Parts, Tell, bool], Record]
    markdown: Callable[[Record], list[str]]
    draw: Callable[[Record], Figure]
