"""Into how many ranges a pass is cut: a few seconds each, by the pace at which earlier passes went."""

from __future__ import annotations

from itertools import pairwise

__all__ = ["Pace"]

TASK_S = 2.0
"""Length of a range that is aimed at: far more than a scheduler takes for it, and little to lose with a worker."""

_FIRST_PACE = 5e-10  # seconds a multiply-add, before anything was measured


class Pace:
    """Seconds a multiply-add of each kind of work, as measured.

    Examples
    --------
    >>> pace = Pace()
    >>> pace.learn("scan", work=1e9, seconds=1.0)
    >>> pace.cut("scan", n_units=8, unit_work=1e9, threads=2)
    [range(0, 2), range(2, 4), range(4, 6), range(6, 8)]
    """

    def __init__(self) -> None:
        self._paces: dict[str, float] = {}

    def learn(self, kind: str, work: float, seconds: float) -> None:
        """Remember how long so many multiply-adds took a thread."""
        if work > 0 and seconds > 0:
            self._paces[kind] = seconds / work

    def cut(self, kind: str, n_units: int, unit_work: float, threads: int) -> list[range]:
        """Ranges of nearly equal length, as many for each thread."""
        total_s = n_units * unit_work * self._paces.get(kind, _FIRST_PACE)
        threads = max(1, threads)
        each = max(1, round(total_s / (TASK_S * threads)))
        count = min(n_units, each * threads)
        edges = [-(-n_units * i // count) for i in range(count + 1)] if count else [0]
        return [range(first, last) for first, last in pairwise(edges)]
