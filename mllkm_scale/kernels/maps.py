"""The four conformal maps h (the paper's Table 1), evaluated from squared distances.

    exponential  e^(-gamma t)         gaussian  e^(-gamma t^2)
    linear       max(0, 1 - gamma t)  squared   max(0, 1 - gamma t^2)

`linear` and `squared` are bounded: they vanish beyond a radius.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.errors import ParameterError

__all__ = [
    "MAPS",
    "MapName",
    "bump_slopes",
    "bumps",
    "check_map",
    "falls_exponentially",
    "gamma_of_half_width",
    "uses_plain_distance",
]

MapName = Literal["exponential", "gaussian", "linear", "squared"]
MAPS: tuple[MapName, ...] = get_args(MapName)


def check_map(name: str) -> MapName:
    """Return the name if it is one of the four maps; otherwise raise a ParameterError."""
    if name not in MAPS:
        raise ParameterError(f"map={name!r} is not known: choose one of {', '.join(MAPS)}")
    return name


def uses_plain_distance(name: MapName) -> bool:
    """Whether h is a function of t (exponential, linear) or of t^2 (gaussian, squared)."""
    return name in ("exponential", "linear")


def falls_exponentially(name: MapName) -> bool:
    """Whether h is positive everywhere (exponential, gaussian), or bounded."""
    return name in ("exponential", "gaussian")


def bumps(
    name: MapName,
    squared_distances: NDArray[Any],
    gamma: float | NDArray[Any],
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """h at the given squared distances; `gamma` broadcasts against them.

    Parameters
    ----------
    out : array, optional
        Array for the result; may be `squared_distances` itself.

    Examples
    --------
    >>> bumps("squared", np.array([0.0, 1.0, 4.0]), 0.5).tolist()
    [1.0, 0.5, 0.0]
    """
    if uses_plain_distance(name):
        out = np.sqrt(squared_distances, out=out)
        out = np.multiply(out, gamma, out=out)
    else:
        out = np.multiply(squared_distances, gamma, out=out)
    if falls_exponentially(name):
        np.negative(out, out=out)
        np.exp(out, out=out)
    else:
        np.subtract(1.0, out, out=out)
        np.maximum(out, 0.0, out=out)
    return out


def bump_slopes(name: MapName, squared_distances: NDArray[Any], gamma: float | NDArray[Any]) -> NDArray[Any]:
    """h'(t) / t at the given squared distances: the gradient of h(|x - c|) is this times x - c.

    It is 0 at an anchor, where h of the plain distance has a kink, and where a bounded h has ended.

    Examples
    --------
    >>> bump_slopes("squared", np.array([0.0, 1.0, 4.0]), 0.5).tolist()
    [-1.0, -1.0, -0.0]
    """
    h = bumps(name, squared_distances, gamma)
    steepness = -np.asarray(gamma) * (h if falls_exponentially(name) else h > 0)
    if not uses_plain_distance(name):
        return 2.0 * steepness
    distances = np.sqrt(squared_distances)
    return np.divide(steepness, distances, out=np.zeros_like(h), where=distances > 0)


def gamma_of_half_width(name: MapName, half_width: float) -> float:
    """The gamma for which h falls to 1/2 at the distance `half_width`.

    >>> gamma_of_half_width("linear", 2.0)
    0.25
    """
    distance = half_width if uses_plain_distance(name) else half_width**2
    return (math.log(2) if falls_exponentially(name) else 0.5) / distance
