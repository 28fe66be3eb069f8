"""What a model may cost, as people say it: "20us" a row, "100kB" of file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mllkm_scale.base.units import format_bytes, parse_bytes
from mllkm_scale.errors import ParameterError

__all__ = ["Limits", "parse_limits"]

_TIME = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(us|µs|μs|ms|ns)\s*", re.IGNORECASE)
_MICROSECONDS = {"ns": 1e-3, "us": 1.0, "ms": 1e3}


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
                f"{text!r} is no limit: write a time of a row such as '20us', or a size such as '100kB'"
            ) from None
    if row_us and min(row_us) <= 0:
        raise ParameterError(f"{min(row_us)} us is no limit: give a positive time")
    return Limits(min(row_us, default=None), min(sizes, default=None))
