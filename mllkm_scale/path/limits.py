"""The request of a path: the values of its parameter, and limits of the cost of a model.

The values are of C or bytes on a device, in increasing order, or numbers of kernels, in decreasing order. Costs are
texts such as "20us" per row, or "100kB" for the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.units import format_bytes, parse_bytes
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.automatic import weight_of_loss

__all__ = ["Limits", "PathValues", "parse_limits", "path_values"]

AROUND_AUTO = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)
"""The default values of C of a path, relative to the value of C="auto"."""

_TIME = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(us|µs|μs|ms|ns)\s*", re.IGNORECASE)
_MICROSECONDS = {"ns": 1e-3, "us": 1.0, "ms": 1e3}


@dataclass(frozen=True)
class PathValues:
    """The parameter that differs along a path, and its values in the order in which they are trained."""

    parameter: str  # "C", "max_kernels" or "max_bytes"
    values: tuple[float, ...]  # empty for values of C around the automatic one

    def resolved(self, n_features: int) -> tuple[float, ...]:
        """The values, for data with this number of features after projection."""
        auto = weight_of_loss("auto", n_features)
        return self.values or tuple(factor * auto for factor in AROUND_AUTO)


def path_values(
    Cs: Sequence[float] | None, kernel_counts: Sequence[float] | None, byte_counts: Sequence[str | int] | None = None
) -> PathValues:
    """The given values, checked and in order; values of C around the automatic one if none are given.

    >>> path_values([1.0, 0.1], None).values, path_values(None, [10, 200]).values
    ((0.1, 1.0), (200, 10))
    >>> path_values(None, None, ["16kB", 2000]).values
    (2000, 16000)
    """
    if sum(given is not None for given in (Cs, kernel_counts, byte_counts)) > 1:
        raise ParameterError("Cs, kernel_counts and byte_counts are three paths: give one of them")
    if byte_counts is not None:
        sizes = _distinct("byte_counts", [parse_bytes(size) for size in byte_counts])
        return PathValues("max_bytes", tuple(sorted(int(size) for size in sizes)))
    if kernel_counts is not None:
        counts = _distinct("kernel_counts", kernel_counts)
        if any(int(count) != count or count < 1 for count in counts):
            raise ParameterError(f"kernel_counts={list(kernel_counts)!r}: give whole numbers from 1")
        return PathValues("max_kernels", tuple(sorted((int(count) for count in counts), reverse=True)))
    if Cs is None:
        return PathValues("C", ())
    values = _distinct("Cs", Cs)
    if any(not value > 0 for value in values):
        raise ParameterError(f"Cs={list(Cs)!r}: give positive numbers")
    return PathValues("C", tuple(sorted(values)))


def _distinct(name: str, given: Sequence[float]) -> list[float]:
    try:
        values = [float(value) for value in np.ravel(given)]
    except (TypeError, ValueError):
        raise ParameterError(f"{name}={given!r}: give numbers") from None
    if not values or not all(math.isfinite(value) for value in values):
        raise ParameterError(f"{name}={given!r}: give at least one number, and finite ones")
    if len({f"{value:g}" for value in values}) < len(values):
        raise ParameterError(f"{name}={list(given)!r}: give numbers that differ in their first six digits")
    return values


@dataclass(frozen=True)
class Limits:
    """Largest time per row in microseconds, and largest model file in bytes; None for no limit."""

    row_us: float | None = None
    model_bytes: int | None = None

    def hold(self, row_us: float, model_bytes: int) -> bool:
        """Whether a model of this cost is within the limits."""
        return (self.row_us is None or row_us <= self.row_us) and (
            self.model_bytes is None or model_bytes <= self.model_bytes
        )

    def __str__(self) -> str:
        said = [] if self.row_us is None else [f"{self.row_us:g} us a row"]
        said += [] if self.model_bytes is None else [format_bytes(self.model_bytes)]
        return " and ".join(said) or "any limit"


def parse_limits(texts: str | Sequence[str] | None) -> Limits:
    """Parse limits such as "20us" or "100kB"; of two limits of one kind, the stricter one counts.

    >>> parse_limits(["20us", "100kB"]), parse_limits("0.5 ms").row_us, str(parse_limits("1MiB"))
    (Limits(row_us=20.0, model_bytes=100000), 500.0, '1.0 MB')
    """
    row_us: list[float] = []
    sizes: list[int] = []
    for text in [texts] if isinstance(texts, str) else texts or ():
        match = _TIME.fullmatch(text)
        if match is not None:
            number, unit = match.groups()
            row_us.append(float(number) * _MICROSECONDS[re.sub("[µμ]", "u", unit.lower())])
            continue
        try:
            if not re.search(r"b\s*$", text, re.IGNORECASE):
                raise ParameterError("no unit")
            sizes.append(parse_bytes(text))
        except ParameterError:
            raise ParameterError(
                f"{text!r} is not a limit: write a time per row such as '20us', or a size such as '100kB'"
            ) from None
    if row_us and min(row_us) <= 0:
        raise ParameterError(f"{min(row_us)} us is not a limit: give a positive time")
    return Limits(min(row_us, default=None), min(sizes, default=None))
