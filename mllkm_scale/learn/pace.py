"""How far a descent has come in its cycle: by its steps, or by the clock where the time is too short for all of them.

The step length rises and falls once in a cycle, and a descent that is cut off while steps are long is a bad machine. So
where the pace shows that the time will not be enough, what is left of the cycle follows the clock, and ends with it.
As long as the time is enough, the clock changes no bit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

__all__ = ["Pace"]

_JUDGED_AT = 0.25  # share of the time after which the pace tells whether the rest is enough

_LEAST_STEPS = 200  # of what is left of the cycle, however little time there is


@dataclass(frozen=True)
class _Moment:
    """A share of the time, a share of the cycle, and a number of steps."""

    time: float
    cycle: float
    steps: int


class Pace:
    """The pace of a descent of so many steps, which may take so many seconds from now on."""

    def __init__(self, n_steps: int, seconds: float | None = None) -> None:
        self.n_steps, self.seconds, self._started = n_steps, seconds, time.perf_counter()
        self._hurried_from: _Moment | None = None

    @property
    def hurried(self) -> bool:
        """Whether the time is too short for all the steps."""
        return self._hurried_from is not None

    def done(self, steps: int) -> float:
        """The share of the cycle that is done after so many steps."""
        cycle = min(1.0, steps / self.n_steps)
        if self.seconds is None:
            return cycle
        spent = (time.perf_counter() - self._started) / self.seconds if self.seconds > 0 else 1.0
        if self._hurried_from is None and spent >= _JUDGED_AT and cycle < spent:
            self._hurried_from = _Moment(min(spent, 1.0), cycle, steps)
        if self._hurried_from is None:
            return cycle
        begun = self._hurried_from
        by_clock = (spent - begun.time) / (1.0 - begun.time) if begun.time < 1 else 1.0
        share = min(1.0, by_clock, (steps - begun.steps) / _LEAST_STEPS)
        return max(cycle, begun.cycle + (1.0 - begun.cycle) * share)
