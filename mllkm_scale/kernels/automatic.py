"""The values of "auto" for numbers, computed from the prepared samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["local_bias_of", "weight_of_loss"]

LOCAL_BIAS_SHARE = 0.1
"""``local_bias="auto"`` is this share of the mean squared distance of the prepared samples."""

FEATURES_PER_C, LEAST_C = 20.0, 0.5
"""``C="auto"`` is the number of features divided by the first number, and at least the second.

The diagonal of a kernel of unit trace is one, but its other entries shrink as the number of features grows. Samples
then help each other less, and need larger duals to reach the margin.
"""


def local_bias_of(local_bias: float | str, sample: NDArray[Any]) -> float:
    """The local bias for this value of the parameter; `sample` holds some prepared rows.

    >>> local_bias_of(0.5, np.eye(2)), local_bias_of("auto", np.eye(2))
    (0.5, 0.1)
    """
    if isinstance(local_bias, str):
        return float(2.0 * LOCAL_BIAS_SHARE * sample.astype(np.float64).var(axis=0).sum())
    return float(local_bias)


def weight_of_loss(C: float | str, n_features: int) -> float:
    """The C for this value of the parameter, and this number of features after projection.

    >>> weight_of_loss(3.0, 50), weight_of_loss("auto", 50), weight_of_loss("auto", 4)
    (3.0, 2.5, 0.5)
    """
    return max(LEAST_C, n_features / FEATURES_PER_C) if isinstance(C, str) else float(C)
