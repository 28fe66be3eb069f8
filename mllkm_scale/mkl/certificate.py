"""What a round of the outer loop proves, and what it saw on the way."""

from __future__ import annotations

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
    lagged: bool = False  # D is the one of the duals before, whose scan ran beside the solving
