"""What a descent tells at the end of an epoch."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Epoch"]


@dataclass(frozen=True)
class Epoch:
    """What an epoch has shown."""

    number: int
    n_epochs: int
    loss: float  # mean over the rows of the hinge, each before its step
    within: float  # share of rows that were within the margin of some class
    held_error: float | None  # share of the held-out rows that are predicted wrongly
    rows_per_s: float
    elapsed_s: float
    left_s: float
