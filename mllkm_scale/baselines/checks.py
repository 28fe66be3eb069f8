"""Whether the parameters of a baseline can work: each check names the parameter, its value, and the remedy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from mllkm_scale.errors import ParameterError

__all__ = ["check_choice", "check_count", "check_positive", "seed_of", "warn_of_gap"]


def check_positive(**values: object) -> None:
    """Every value is a finite number above zero.

    >>> check_positive(C=-1.0)
    Traceback (most recent call last):
    mllkm_scale.errors.ParameterError: C=-1.0: give a positive number
    """
    for name, value in values.items():
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or not (math.isfinite(value) and value > 0):  # type: ignore[arg-type, operator]
            raise ParameterError(f"{name}={value!r}: give a positive number")


def check_count(**values: object) -> None:
    """Every value is a whole number from 1."""
    for name, value in values.items():
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
            raise ParameterError(f"{name}={value!r}: give a whole number from 1")


def check_choice(choices: Sequence[str], **values: object) -> None:
    """Every value is one of the choices."""
    for name, value in values.items():
        if value not in choices:
            raise ParameterError(f"{name}={value!r} is not known: choose one of {', '.join(choices)}")


def seed_of(random_state: int | None) -> int:
    """The seed itself, or a fresh one for None."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if not isinstance(random_state, int | np.integer) or isinstance(random_state, bool) or random_state < 0:
        raise ParameterError(f"random_state={random_state!r}: give a whole number from 0, or None for a random one")
    return int(random_state)


def warn_of_gap(method: str, gap: float, tol: float, max_iter: int) -> None:
    """A ConvergenceWarning at the caller of fit, if a method has run out of epochs before its gap was small enough."""
    if gap > tol:
        warnings.warn(
            f"{method} ends after {max_iter} epochs at a relative gap of {gap:.1e}, above tol={tol}: "
            "scale the features, or raise max_iter or tol",
            ConvergenceWarning,
            stacklevel=4,
        )
