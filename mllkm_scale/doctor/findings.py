"""A finding: what was looked at, how it is, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["LEVELS", "Finding", "Level"]

Level = Literal["ok", "warning", "problem"]
LEVELS: tuple[Level, ...] = ("ok", "warning", "problem")


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's; a warning or a problem has a remedy.

    >>> Finding("disk", "warning", "1.0 GB free", "free some space").in_words
    '1.0 GB free: free some space'
    """

    subject: str
    level: Level
    text: str
    remedy: str = ""

    @property
    def in_words(self) -> str:
        """What was found, and the remedy."""
        return f"{self.text}: {self.remedy}" if self.remedy else self.text
