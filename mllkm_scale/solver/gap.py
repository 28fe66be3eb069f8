"""The relative duality gap of an SVM without bias term."""

from __future__ import annotations

import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["relative_gap"]


def relative_gap(duals: Array, margins: Array, C: float) -> float:
    """(P - D) / P with P = 1/2 alpha'Q alpha + C sum hinge and alpha'Q alpha = sum alpha_i y_i f(x_i)."""
    norm = float(duals @ margins)
    primal = 0.5 * norm + C * float(np.maximum(0.0, 1.0 - margins).sum())
    return 0.0 if primal == 0 else (primal - float(duals.sum()) + 0.5 * norm) / primal
