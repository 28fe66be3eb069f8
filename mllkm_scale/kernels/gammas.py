"""The scales of the bumps: a list, the paper's logarithmic interval, or values from the distances of the data.

The parameter `gammas` is read, checked and counted here alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.distances import squared_distances
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import gamma_of_half_width

__all__ = [
    "GAMMA_NAMES",
    "HALF_WIDTHS",
    "auto_gammas",
    "logspace",
    "median_distance",
    "n_gammas",
    "read_gammas",
    "resolve_gammas",
]

HALF_WIDTHS = {"auto": (0.5, 0.75, 1.0, 1.5, 3.0), "wide": (1.0, 1.5, 3.0), "narrow": (0.2, 0.35, 0.5, 0.75, 1.0)}
"""Half-widths of the bumps for gammas by name, in median distances of the data."""

GAMMA_NAMES = tuple(HALF_WIDTHS)
"""The words that the parameter may be."""


def logspace(low: float = 0.01, high: float = 10.0, count: int = 10) -> Array:
    """`count` gammas, evenly spaced on a logarithmic scale; the paper's interval is [0.01, 10].

    >>> logspace(0.01, 10, 4).tolist()
    [0.01, 0.1, 1.0, 10.0]
    """
    if not (0 < low <= high and count >= 1):
        raise ParameterError(f"logspace({low}, {high}, {count}): needs 0 < low <= high and at least one gamma")
    return np.round(np.geomspace(low, high, count), 12)


def auto_gammas(family: Family, X: Array, name: str = "auto") -> Array:
    """Gammas whose bumps fall to one half at `HALF_WIDTHS` times the median distance within the sample X."""
    median = median_distance(family, X)
    if median is None:
        return np.array([1.0])
    return np.array([gamma_of_half_width(family.map, factor * median) for factor in HALF_WIDTHS[name]])


def median_distance(family: Family, X: Array) -> float | None:
    """The median distance between the two halves of a sample; of single features if component-wise.

    None if all samples are the same.
    """
    half = len(X) // 2
    left, right = X[:half].astype(np.float64), X[half : 2 * half].astype(np.float64)
    if family.componentwise:
        distances = np.abs(left - right).ravel()
    else:
        distances = np.sqrt(squared_distances(left, right)).ravel()
    distances = distances[distances > 0]
    return float(np.median(distances)) if len(distances) else None


def read_gammas(text: str) -> str | tuple[float, ...]:
    """The parameter that a text stands for: auto, wide or narrow, or positive numbers with commas between them.

    >>> read_gammas("auto"), read_gammas("0.1,1,10")
    ('auto', (0.1, 1.0, 10.0))
    """
    if text.lower() in GAMMA_NAMES:
        return text.lower()
    try:
        gammas = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ParameterError(f"{text!r} is not auto, wide or narrow, nor numbers such as 0.1,1,10") from None
    if not all(math.isfinite(gamma) and gamma > 0 for gamma in gammas):
        raise ParameterError(f"{text!r}: gammas must be positive")
    return gammas


def n_gammas(gammas: str | float | Iterable[float]) -> int:
    """How many gammas there are at most; of a name, as many as any name has.

    >>> n_gammas("wide"), n_gammas([0.1, 1.0]), n_gammas(2.0)
    (5, 2, 1)
    """
    return max(map(len, HALF_WIDTHS.values())) if isinstance(gammas, str) else int(np.size(gammas))  # type: ignore[arg-type]


def resolve_gammas(gammas: str | float | Iterable[float], family: Family, X: Array) -> Array:
    """The checked gammas for this value of the parameter; X is a sample of the prepared data."""
    if isinstance(gammas, str):
        if gammas not in GAMMA_NAMES:
            raise ParameterError(f"gammas={gammas!r}: give a list of positive numbers, 'auto', 'wide' or 'narrow'")
        return auto_gammas(family, X, gammas)
    values = np.atleast_1d(np.asarray(gammas, dtype=np.float64))
    if values.ndim != 1 or not len(values) or not np.all(np.isfinite(values) & (values > 0)):
        raise ParameterError(f"gammas={gammas!r}: every gamma must be a positive finite number")
    return np.unique(values)
