"""The types and ranges of fields, and the parts that headers of archive files and JSON files share."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from mllkm_scale.base.schemas.conform import conform

__all__ = [
    "Bound",
    "Calibrated",
    "Choice",
    "Count",
    "Duration",
    "Header",
    "Line",
    "Parameters",
    "Positive",
    "Real",
    "Record",
    "Seed",
    "Share",
    "Status",
    "Text",
    "Word",
    "require_plain",
]

_MOST = sys.float_info.max

Status = Literal[
    "converged",
    "learned",
    "max_rounds",
    "max_kernels",
    "time_limit",
    "precision",
    "interrupted",
    "ended",
    "online",
    "streaming",
]
Real = Annotated[float, Meta(ge=-_MOST, le=_MOST)]  # finite: NaN is in no range
Positive = Annotated[float, Meta(gt=0.0, le=_MOST)]
Duration = Annotated[float, Meta(ge=0.0, le=_MOST)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Bound = float  # of an optimum: NaN where nothing is proved, and infinite where one side is not
Count = Annotated[int, Meta(ge=0, le=2**62)]
Seed = Annotated[int, Meta(ge=0)]
Text = Annotated[str, Meta(max_length=4096)]  # of the user, such as a path: escaped wherever it is shown
Word = Annotated[str, Meta(max_length=64, pattern=r"^[A-Za-z0-9_.:+=-]*\Z")]  # of the package itself
Line = Annotated[str, Meta(max_length=1000, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]*\Z")]
# No union holds both a bounded text and a list: msgspec 0.22 frees such a type twice.


class Header(Struct, forbid_unknown_fields=True):
    """The header of an archive file, or a part of one."""


class Record(Struct):
    """A JSON file of a run folder, or a part of one."""


class Parameters(Record):
    """Parameters that are read again from a file; all the others are shown only."""

    tol: Real | None = None
    C: Real | Word | None = None
    metric: Count | Word | None = None
    anchors: Count | Line | None = None
    multi_class: Word | None = None


class Calibrated(Header):
    """How scores become probabilities; `Calibration` checks what its fields mean together."""

    method: Literal["temperature", "isotonic"]
    slope: Positive
    knots: list[Real] = []
    levels: list[Share] = []
    n_rows: Count = 0
    source: Line = ""
    log_loss: Bound = 0.0

    def __post_init__(self) -> None:
        if len(self.knots) != len(self.levels):
            raise ValueError(f"there are {len(self.knots)} knots and {len(self.levels)} levels")


class Choice(Header):
    """With which C learned kernels are weighed, if they are."""

    C: Positive
    mkl: bool
    reason: Line
    Cs: list[Positive] = []
    errors: list[Share] = []
    learned_error: Share | None = None
    calibration: Calibrated | None = None

    def __post_init__(self) -> None:
        if len(self.Cs) != len(self.errors):
            raise ValueError(f"there are {len(self.Cs)} Cs and {len(self.errors)} errors")


def require_plain(parameters: dict[str, Any], where: str) -> None:
    """Parameters are numbers, booleans, short texts, lists of these, or null."""
    for name, value in parameters.items():
        conform(name, Line, where)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str):
                conform(item, Line, f"{where}.{name}")
            elif not isinstance(item, bool | int | float | None):
                raise ValueError(f"{where}.{name}: expected plain values, got `{type(item).__name__}`")
    conform(parameters, Parameters, where)
