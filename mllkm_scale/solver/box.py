"""The box of the dual, and the loss that it comes from: every sample has a weight, one where none are given.

0 <= alpha_i <= C_i        C sum_i weight_i max(0, 1 - y_i f_i)        C_i = C weight_i
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.weighted import unit_weights

__all__ = ["Box"]


@dataclass(frozen=True, eq=False)
class Box:
    """C, and the weights (n,) of the samples.

    Examples
    --------
    >>> box = Box(10.0, np.array([1.0, 0.5]))
    >>> box.upper.tolist(), box.loss(np.array([2.0, -1.0])), box.take([1]).upper.tolist()
    ([10.0, 5.0], 10.0, [5.0])
    """

    C: float
    weights: Array

    @classmethod
    def of(cls, C: float | Box, n: int) -> Box:
        """A box as it is, or that of n samples with this C and no weights, which take no memory."""
        return C if isinstance(C, Box) else cls(float(C), unit_weights(n))

    @property
    def upper(self) -> Array:
        """C_i (n,)."""
        return np.asarray(self.C * self.weights)

    def take(self, rows: Array) -> Box:
        """The box of some samples."""
        return Box(self.C, self.weights[rows])

    def hinge(self, margins: Array) -> float:
        """sum_i weight_i max(0, 1 - margin_i), over all columns of margins (n,) or (n, K)."""
        short = np.maximum(0.0, 1.0 - margins)
        short *= self.weights if margins.ndim == 1 else self.weights[:, None]
        return float(short.sum())

    def loss(self, margins: Array) -> float:
        """C times that."""
        return self.C * self.hinge(margins)
