"""Given weights of the classes: "balanced", or a number for some labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mllkm_scale.errors import ParameterError

__all__ = ["ClassWeight", "check_class_weight", "class_weight_in_words", "read_class_weight"]

ClassWeight = str | Mapping[Any, float] | None

_LONGEST = 900  # characters that fit into a record


def check_class_weight(given: Any) -> None:
    """Refuse values that are not None, "balanced", or positive numbers by label."""
    if given is None or given == "balanced":
        return
    if not isinstance(given, Mapping) or not given:
        raise ParameterError(
            f"class_weight={given!r}: give 'balanced', weights by label such as {{0: 1.0, 1: 5.0}}, or None"
        )
    for label, weight in given.items():
        number = isinstance(weight, int | float | np.number) and not isinstance(weight, bool)
        if not number or not 0 < float(weight) < math.inf:
            raise ParameterError(f"class_weight={{{label!r}: {weight!r}}}: give a positive number for each label")


def read_class_weight(text: str) -> ClassWeight:
    """Parse the words balanced and none, or labels with weights.

    >>> read_class_weight("balanced"), read_class_weight("no:1,yes:5")
    ('balanced', {'no': 1.0, 'yes': 5.0})
    """
    if text.lower() in ("balanced", "none"):
        return None if text.lower() == "none" else "balanced"
    found: dict[str, float] = {}
    for part in text.split(","):
        label, _, weight = part.strip().rpartition(":")
        try:
            found[label] = float(weight)
        except ValueError:
            label = ""
        if not label:
            raise ParameterError(f"{text!r} is neither balanced nor labels with weights such as no:1,yes:5")
    return found


def class_weight_in_words(given: ClassWeight) -> str | None:
    """Text for `read_class_weight`; for many classes, only their number."""
    if given is None or isinstance(given, str):
        return given
    text = ",".join(f"{label}:{float(weight):g}" for label, weight in given.items())
    return text if len(text) <= _LONGEST else f"weights of {len(given)} classes"
