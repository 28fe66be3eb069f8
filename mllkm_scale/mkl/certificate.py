"""What a round of the outer loop proves, and what it saw on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mllkm_scale.mkl.restricted import Objective

__all__ = ["Certificate"]


@dataclass(frozen=True)
class Certificate(Objective):
    """P and D of F5 over all samples and all kernels; sizes, and how long the parts of the round took."""

    n_active: int  # kernels with a positive weight
    n_support: int  # samples with a nonzero dual
    n_working: int  # working samples, summed over the classes
    n_violating_samples: int  # within the margin, but not in a working set
    n_violating_kernels: int  # among the candidates of the scan
    inner_gap: float
    inner_steps: int
    solve_s: float
    margins_s: float
    scan_s: float
    n_scanned: int  # kernels of all scans of the round
    lagged: bool = False  # D is not of these duals, but the best bound of earlier ones
    likely_dual: float = -math.inf  # D of these duals as far as kernels were scanned, if not all were

    @property
    def likely_gap(self) -> float:
        """The gap if no kernel violates more than those that were scanned."""
        return Objective(self.primal, max(self.dual, self.likely_dual)).gap
