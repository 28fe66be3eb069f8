"""How the outer loop goes, and all that its next round depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Settings", "State"]

Array = NDArray[Any]

_PATIENCE = 30  # rounds without a smaller gap
_TIGHTEST = 1e-8  # inner tolerance


@dataclass(frozen=True)
class Settings:
    """How the outer loop goes."""

    C: float = 1.0
    tol: float = 0.01
    seed: int = 0
    insertions: int = 100  # kernels inserted in a round, at most; a tenth more for each further class
    candidates: int = 4000  # violators looked at to choose them from, for one class; a quarter at least for several
    first_samples: int = 200  # working samples of a class in the first round
    margin: float = 3.0  # samples with y f(x) beyond it leave the working set; from 1.4 on many come back
    witnesses: int = 500  # support vectors on which the responses of candidates are compared, for up to four classes
    near: float = 0.05  # a kernel of zero weight stays while its q is so near to the largest
    overlap: str = "auto"  # scans run beside the next solving: "always", "never", or where they are the larger part
    pricing: str = "auto"  # scans are of all kernels: "full", or of a share where they would be the larger part

    def n_candidates(self, n_classes: int) -> int:
        """Violators looked at: those of one class crowd, so that few of many are unlike each other."""
        return max(self.candidates // 4, self.candidates // n_classes)

    def n_witnesses(self, n_classes: int) -> int:
        """Support vectors on which their responses are compared: of many classes fewer, each of which counts."""
        return max(100, min(self.witnesses, 4 * self.witnesses // n_classes))

    @property
    def negligible(self) -> float:
        """Weights and duals below this share of the largest count as zero."""
        return min(1e-4, 1e-2 * self.tol)


@dataclass(frozen=True)
class State:
    """All that the next round depends on."""

    round: int
    active: Array  # ids of the active kernels (s,)
    weights: Array  # (s,)
    working: Array  # (n, K) bool: the working samples of each class
    stage: int  # samples in play, of which these are some
    duals: Array  # (n, K), from 0 to C n / in_play, of the machine
    prices: Array  # (n, K), likewise, for which kernels were scanned, or will be: D is about these
    in_play: int  # samples that were in play when they were found
    inner_tol: float  # relative gap to which the next round solves the restricted problem
    pool: Array  # ids of the candidates that the last scan has found
    priced: bool  # whether that scan was one with these prices
    scanned: bool  # and one of all kernels
    bound: float = 0.0  # the largest D proved so far: duals of zero prove this one
    best_gap: float = np.inf  # certified so far
    best_primal: float = np.inf
    idle: int = 0  # rounds in which neither of them fell

    @property
    def stalled(self) -> bool:
        """Nothing is left to insert and rounding forbids a tighter solution, or the gap has not fallen for long."""
        return self.inner_tol < _TIGHTEST or self.idle >= _PATIENCE

    @property
    def feasible_duals(self) -> Array:
        """Duals (n, K) from 0 to C for all samples: D is their value."""
        return self.prices * (self.in_play / len(self.duals))

    @property
    def last_stage(self) -> bool:
        return self.in_play == len(self.duals)
