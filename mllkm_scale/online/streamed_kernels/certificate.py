"""What is proved of a machine of streamed kernels (F5), and of how many kernels."""

from __future__ import annotations

from dataclasses import dataclass

from mllkm_scale.mkl.restricted import Objective

__all__ = ["StreamCertificate"]


@dataclass(frozen=True)
class StreamCertificate(Objective):
    """P of the machine, and D over all kernels of the stream that were not excluded: primal >= optimum >= dual.

    Examples
    --------
    >>> certificate = StreamCertificate(2.0, 1.0, 500, 20, 100, 380, likely_dual=1.99)
    >>> round(certificate.gap, 3), round(certificate.likely_gap, 3)
    (0.5, 0.005)
    """

    n_seen: int  # kernels that D is about
    n_active: int
    n_remembered: int
    n_forgotten: int  # times that a kernel was forgotten, in all passes
    likely_dual: float  # D over the active and the remembered kernels alone

    @property
    def likely_gap(self) -> float:
        """The gap if no forgotten kernel would violate now."""
        return Objective(self.primal, max(self.dual, self.likely_dual)).gap
