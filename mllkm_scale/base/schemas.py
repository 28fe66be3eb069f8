"""What the headers and JSON files of this package may hold: every field by its type, range and length, in one place.

A file is read in three steps: `parse_json` bounds its size and depth, `conform` compares what was found with a class of
this module, and whoever asked builds the object. What does not conform is refused with the path of the field, such as
``certificate.status``. A field that comes later needs a line here, with a default for files that lack it.

Sealed headers are closed: a field that is not known is refused, for their format has a version. JSON files of a run
folder are open: other versions of the package may write fewer fields or more.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from mllkm_scale.base.arrays import Array
from mllkm_scale.printable import printable

__all__ = [
    "MOST_JSON_BYTES",
    "STATUSES",
    "Bound",
    "Choice",
    "Count",
    "Duration",
    "EvaluationFile",
    "LearningHeader",
    "ModelHeader",
    "PathEnd",
    "PathFile",
    "PlanFile",
    "Positive",
    "Real",
    "RunFile",
    "Selected",
    "Share",
    "StreamHeader",
    "TrainingHeader",
    "Tried",
    "conform",
    "conform_array",
    "parse_json",
]

T = TypeVar("T")

MOST_JSON_BYTES = 64_000_000
"""A JSON file is never larger: run.json of a million feature names of 50 letters is."""

_DEEPEST = 40  # lists and objects within each other
_MOST = sys.float_info.max

STATUSES = (
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
)
"""By which rule a training or a stream can have ended."""

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


class _Header(Struct, forbid_unknown_fields=True):
    """The header of an archive file, or a part of one."""


class _Record(Struct):
    """A JSON file of a run folder, or a part of one."""


class Parameters(_Record):
    """Parameters that are read again from a file; all the others are shown only."""

    tol: Real | None = None
    C: Real | Word | None = None
    metric: Count | Word | None = None
    anchors: Count | Line | None = None
    multi_class: Word | None = None


class FamilyHeader(_Header):
    """The family of kernels."""

    map: Word
    componentwise: bool
    local_bias: Duration


class Certificate(_Header):
    """What was proved of a model."""

    primal: Bound
    dual: Bound
    gap: Bound
    tol: Bound
    status: Status
    n_open: Count
    n_train: Count
    seed: Seed | None
    package_version: Word
    params: dict[str, Any]

    def __post_init__(self) -> None:
        _require_plain(self.params, "params")


class Calibrated(_Header):
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


class ModelHeader(_Header):
    """Of model.mllkm."""

    family: FamilyHeader
    certificate: Certificate
    feature_names: list[Line] | None = None
    calibration: Calibrated | None = None


class Choice(_Header):
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


class _Checkpoint(_Header):
    fingerprint: Word
    round: Count


class TrainingHeader(_Checkpoint):
    """Of the checkpoint of a training."""

    seed: Seed
    elapsed_s: Duration
    objectives: list[tuple[Bound, Bound]]
    choice: Choice | None = None
    calibration: Calibrated | None = None


class _Family(_Header):
    map: Word
    componentwise: bool
    local_bias: Duration


class StreamHeader(_Checkpoint):
    """Of the checkpoint of a stream; what the warm-up fixes is there as soon as it has ended."""

    seed: Seed
    elapsed_s: Duration
    tested: Count
    errors: Count
    recent: list[tuple[Count, ...]]
    started: bool
    n_seen: Count | None = None
    n_blocks: Count | None = None
    sweep: Count | None = None
    inserted: Count | None = None
    dropped: Count | None = None
    forgotten: Count | None = None
    C: Positive | None = None
    family: _Family | None = None
    feature_names: list[Line] | None = None
    scored: list[Count] = []

    def __post_init__(self) -> None:
        if self.errors > self.tested:
            raise ValueError(f"there are {self.errors} errors of {self.tested} samples")
        fixed = (self.n_seen, self.n_blocks, self.sweep, self.inserted, self.dropped, self.forgotten, self.C)
        if self.started and (None in fixed or self.family is None):
            raise ValueError("what the warm-up fixes is missing")


class LearningHeader(_Header):
    """Of learning.npz."""

    fingerprint: Word
    seed: Seed


class _Point(_Header):
    parameter: Literal["C", "max_kernels", "max_bytes"]
    value: Positive
    n_kernels: Count
    error: Share
    row_us: Positive
    model_bytes: Count
    multiply_adds: Count
    gap: Real | None
    status: Status
    elapsed_s: Duration


class PathEnd(_Checkpoint):
    """Of end.npz: a point of a path, and how many states and proofs are with it."""

    point: _Point
    C: Positive
    machines: Count
    proofs: Count


class _Data(_Record):
    name: Text | None = None
    rows: Count | None = None
    features: Count | None = None
    feature_names: list[Text] | None = None
    image_shape: list[Annotated[int, Meta(ge=1, le=2**31)]] | None = None


class _PathPoint(_Record):
    """A point of path.json: as in end.npz, with its name."""

    name: Text
    parameter: Literal["C", "max_kernels", "max_bytes"]
    value: Positive
    n_kernels: Count
    error: Share
    row_us: Positive
    model_bytes: Count
    multiply_adds: Count
    gap: Real | None
    status: Status
    elapsed_s: Duration


class PathFile(_Record):
    """Of path.json."""

    parameter: Literal["C", "max_kernels", "max_bytes"]
    values: list[Positive]
    seed: Seed
    points: list[_PathPoint]
    data: _Data | None = None
    validation: Text | None = None
    knee: Text | None = None


class Tried(_Record, forbid_unknown_fields=True):
    """A setting of selection.json."""

    anchors: Word
    scaling: Word
    metric: Count | Word | None
    ridge: Positive | Word
    C: Positive | Word
    error: Share
    judged: Duration
    gammas: Word | None = None
    finish: Word = "auto"
    rows: Count = 0


class Selected(_Record, forbid_unknown_fields=True):
    """Of selection.json."""

    tried: list[Tried]
    taken: Count
    calibration: Calibrated | None = None

    def __post_init__(self) -> None:
        if self.taken >= len(self.tried):
            raise ValueError(f"setting {self.taken} is taken of {len(self.tried)}")


class _Curve(_Record):
    label: bool | int | Real | Text
    roc_area: Share
    average_precision: Share
    false_rate: list[Share] = []
    recall: list[Share] = []
    precision: list[Share] = []

    def __post_init__(self) -> None:
        if not len(self.false_rate) == len(self.recall) == len(self.precision) <= 1000:
            raise ValueError("the points of a curve do not fit together")


class _Strong(_Record):
    feature: Text
    value: Text
    added: Real


class _Explained(_Record):
    """A row of the test data, and what adds most to the score of its label."""

    row: Count
    truth: Text
    right: bool
    title: Text
    meaning: Text
    features: list[_Strong]
    rest: Real
    constant: Real
    score: Real


class EvaluationFile(_Record):
    """Of evaluation.json; what follows from the confusion matrix is not read."""

    classes: list[bool | int | Real | Text]
    confusion: list[list[Count]]
    data: Text = ""
    log_loss: Duration | None = None
    brier: Duration | None = None
    calibration_error: Share | None = None
    bins: list[list[Duration]] | None = None
    curves: list[_Curve] = []
    explained: list[_Explained] = []
    calibration_by_chance: Share | None = None

    def __post_init__(self) -> None:
        if self.bins is not None and (len(self.bins) != 3 or len({len(row) for row in self.bins}) != 1):
            raise ValueError("the bins of the calibration do not fit together")
        n = len(self.classes)
        if not n or len(self.confusion) != n or any(len(row) != n for row in self.confusion):
            raise ValueError(f"the confusion matrix does not fit {n} classes")
        if not any(map(any, self.confusion)):
            raise ValueError("no row was evaluated")
        measured = [value is None for value in (self.log_loss, self.brier, self.calibration_error)]
        if any(measured) and not all(measured):
            raise ValueError("log_loss, brier and calibration_error are not all there")


class _PlanRow(_Record):
    what: Text = ""
    bytes: Count = 0
    note: Text = ""


class PlanFile(_Record):
    """Of plan.json."""

    budget_bytes: Count | None = None
    inner: Text | None = None
    reason: Text | None = None
    rows: list[_PlanRow] = []


class _Result(_Record):
    status: Status
    gap: Real | None = None
    tol: Real | None = None
    n_kernels: Count | None = None
    n_rounds: Count | None = None
    n_samples: Count | None = None
    error: Share | None = None
    recent_error: Share | None = None
    samples_per_s: Duration | None = None
    peak_bytes: Count | None = None
    budget_bytes: Count | None = None
    elapsed_s: Duration | None = None
    reason: Text | None = None


class _Learned(_Record):
    n_kernels: Count
    metric: Count | Word | None = None
    importance: list[Duration] = []
    features: list[Count] | None = None
    quantile: list[bool] = []
    dropped_columns: Count | None = None
    dropped_features: Count | None = None
    kept_kernels: Count | None = None
    other_kernels: Count | None = None


class _Cluster(_Record):
    workers: Count | None = None
    lost_workers: Count = 0
    master_waited_share: Duration | None = None
    workers_idle_share: Share | None = None
    worker_peak_bytes: Count | None = None
    worker_bytes: Count | None = None


class RunFile(_Record):
    """Of run.json."""

    version: Text | None = None
    data: _Data | None = None
    parameters: dict[str, Any] | None = None
    plan: PlanFile | None = None
    selection: Selected | None = None
    choice: Choice | None = None
    learned: _Learned | None = None
    cluster: _Cluster | None = None
    result: _Result | None = None

    def __post_init__(self) -> None:
        if self.parameters is not None:
            _require_plain(self.parameters, "parameters")


def _require_plain(parameters: dict[str, Any], where: str) -> None:
    """Parameters are numbers, booleans, short texts, lists of these, or null."""
    for name, value in parameters.items():
        _converted(name, Line, where)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str):
                _converted(item, Line, f"{where}.{name}")
            elif not isinstance(item, bool | int | float | None):
                raise ValueError(f"{where}.{name}: expected plain values, got `{type(item).__name__}`")
    conform(parameters, Parameters, where)


def parse_json(text: str | bytes) -> Any:
    """What a JSON text holds; a ValueError if it is none, or nests too deeply to be one of this package.

    >>> parse_json("[1, NaN]"), parse_json('{"a": []}')
    ([1, nan], {'a': []})
    >>> parse_json("[" * 50 + "]" * 50)
    Traceback (most recent call last):
    ValueError: its lists and objects nest too deeply
    """
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("its lists and objects nest too deeply") from None
    level = [found]
    for _ in range(_DEEPEST):
        level = [item for one in level if isinstance(one, list | dict) for item in _items(one)]
        if not level:
            return found
    raise ValueError("its lists and objects nest too deeply")


def _items(value: list[Any] | dict[str, Any]) -> Any:
    return value.values() if isinstance(value, dict) else value


def conform(found: Any, kind: type[T], where: str = "") -> T:
    """What was found as an object of `kind`; a ValueError that names the field if it cannot be one.

    >>> conform({"fingerprint": "f", "seed": -1}, LearningHeader)
    Traceback (most recent call last):
    ValueError: seed: expected `int` >= 0
    """
    converted: T = _converted(found, kind, where)
    return converted


def conform_array(
    arrays: Mapping[str, Array],
    name: str,
    kind: str,
    shape: tuple[int | None, ...],
    *,
    least: float | None = None,
    most: float | None = None,
) -> Array:
    """An array of an archive file; a ValueError that names it if it is missing, or not what it should be.

    Parameters
    ----------
    kind : str
        Its kind as NumPy names it: "f", whose entries have to be finite, "i", "b" or "U".
    shape : tuple of int or None
        Its shape; None is for any size.
    least, most : float, optional
        The range of its entries.

    Examples
    --------
    >>> import numpy as np
    >>> conform_array({"weights": np.array([0.5, -0.5])}, "weights", "f", (None,), least=0.0)
    Traceback (most recent call last):
    ValueError: the array weights holds -0.5, less than 0
    """
    if name not in arrays:
        raise ValueError(f"the array {name} is missing")
    values = arrays[name]
    fits = len(values.shape) == len(shape) and all(
        want in (None, size) for size, want in zip(values.shape, shape, strict=True)
    )
    if not fits or values.dtype.kind not in ("iu" if kind == "i" else kind):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(
            f"the array {name} has shape {values.shape} and type {values.dtype}, not ({wanted}) and {kind}"
        )
    if not values.size:
        return values
    low, high = (values.min(), values.max()) if kind in "fi" else (0, 0)
    if not (math.isfinite(low) and math.isfinite(high)):  # the extremes of an array with NaN are NaN
        raise ValueError(f"the array {name} holds NaN or infinity")
    if least is not None and low < least:
        raise ValueError(f"the array {name} holds {low}, less than {least:g}")
    if most is not None and high > most:
        raise ValueError(f"the array {name} holds {high}, more than {most:g}")
    return values


def _converted(found: Any, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(found, kind)
    except (msgspec.ValidationError, OverflowError, RecursionError) as error:
        what, _, place = str(error).partition(" - at `$")
        place = f"{where}{place.rstrip('`')}".removeprefix(".")
        what = f"{what[:1].lower()}{what[1:]}"
        raise ValueError(printable(f"{place}: {what}" if place else what, longest=300)) from None
