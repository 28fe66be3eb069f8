"""Advice on a training run: likely mistakes, and how to avoid them. Advice does not change a result.

The command line prints it like a notice, and the estimator issues it as a warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import psutil

from mllkm_scale.base.events import Advice
from mllkm_scale.base.units import format_bytes
from mllkm_scale.base.wording import percent

if TYPE_CHECKING:
    from mllkm_scale.data.checks import DataSummary
    from mllkm_scale.params import Params

__all__ = ["advice_on_data", "advice_on_end", "advice_on_memory"]

UNEQUAL = 1000.0  # ratio of the ranges of the widest and the narrowest feature
FEW, OF_MANY = 5, 500  # samples of a class, and of all classes
ENDS = {
    "max_rounds": "allow more rounds",
    "time_limit": "allow more time",
    "precision": "this is the limit of double precision; use a smaller C, or a larger tol",
}


def advice_on_data(summary: DataSummary, params: Params) -> Iterator[Advice]:
    """Advice after the pass over the data."""
    if params.scaling == "none" and summary.spread > UNEQUAL:
        yield Advice(
            f"feature {summary.widest} (from 0) spans {summary.spread:,.0f} times as much as feature"
            f" {summary.narrowest}, and there is no scaling, so that the widest features determine the distances: use"
            " scaling standard",
            "data",
        )
    rare = [place for place, count in enumerate(summary.class_counts) if count < FEW]
    if rare and summary.n_rows >= OF_MANY:
        label, count = summary.classes[rare[0]], summary.class_counts[rare[0]]
        more = f", and {len(rare) - 1} other classes have as few" if len(rare) > 1 else ""
        yield Advice(
            f"the class {label!r} has {count} of {summary.n_rows:,} rows{more}, which is too few to learn it: add rows,"
            " merge it with another class, or leave it out",
            "data",
        )


def advice_on_memory(budget_bytes: int) -> Iterator[Advice]:
    """Advice on a budget that exceeds the memory of the machine."""
    there = int(psutil.virtual_memory().total)
    if budget_bytes > there:
        yield Advice(
            f"the memory budget of {format_bytes(budget_bytes)} is more than this machine has, which is"
            f" {format_bytes(there)}: give a smaller one, such as the one that mllkm doctor suggests",
            "memory",
        )


def advice_on_end(status: str, gap: float, tol: float) -> Iterator[Advice]:
    """Advice on a training run that ended above the tolerance, by another limit than the number of kernels.

    >>> [advice.text for advice in advice_on_end("max_rounds", 0.05, 0.01)]
    ['training ended by max_rounds with a gap of 5 %, above the tolerance of 1 %: allow more rounds, or a larger tol']
    >>> list(advice_on_end("max_kernels", 0.05, 0.01))
    []
    """
    if status in ENDS and gap > tol:
        yield Advice(
            f"training ended by {status} with a gap of {percent(gap)}, above the tolerance of {percent(tol)}:"
            f" {ENDS[status]}, or a larger tol",
            "end",
        )
