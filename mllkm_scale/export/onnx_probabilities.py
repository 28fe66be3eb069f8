"""Probabilities as a graph, from scores (n, K): see `mllkm_scale.model.calibration`."""

from __future__ import annotations

import numpy as np

from mllkm_scale.data.preparation.quantiles import Quantiles
from mllkm_scale.export.onnx_machine import Graph, add_levels
from mllkm_scale.model.calibration import TEMPERATURE, Calibration

__all__ = ["add_probabilities"]


def add_probabilities(graph: Graph, calibration: Calibration, scores: str, n_scores: int) -> str:
    """Probabilities (n, c) of scores (n, K); K = 1 for two classes."""
    if n_scores > 1:
        return graph("Softmax", graph("Mul", scores, calibration.slope), axis=1)
    if calibration.method == TEMPERATURE:
        scaled = graph("Mul", scores, calibration.slope)
        return graph("Concat", graph("Sigmoid", graph("Neg", scaled)), graph("Sigmoid", scaled), axis=1)
    second = add_levels(graph, Quantiles.of([(np.array(calibration.knots), np.array(calibration.levels))]), scores)
    return graph("Concat", graph("Sub", 1.0, second), second, axis=1)
