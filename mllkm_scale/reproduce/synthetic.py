"""The synthetic data of the paper's figures: two classes, uniform on a square, beside a piece-wise linear line.

The paper does not print the line; this one bends four times, and is a function of the first feature.
"""

from __future__ import annotations

import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["KNOTS", "boundary", "draw_samples"]


KNOTS = np.array([[-1.0, -0.45], [-0.55, 0.5], [-0.1, -0.45], [0.35, 0.55], [0.7, -0.3], [1.0, 0.2]])
"""Corners of the line, from left to right."""


def boundary(x: Array) -> Array:
    """Height of the line at x.

    >>> boundary(np.array([-1.0, 0.35])).tolist()
    [-0.45, 0.55]
    """
    return np.interp(x, *KNOTS.T)


def draw_samples(n: int, seed: int) -> tuple[Array, Array]:
    """n samples, uniform on [-1, 1]^2, and their labels: +1 above the line, -1 below it."""
    X = np.random.default_rng(seed).uniform(-1.0, 1.0, (n, 2))
    return X, np.where(X[:, 1] > boundary(X[:, 0]), 1, -1)
