"""The JSON files of a run folder, and of a folder of paths."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from msgspec import Meta

from mllkm_scale.base.schemas.fields import (
    Calibrated,
    Choice,
    Count,
    Duration,
    Positive,
    Real,
    Record,
    Seed,
    Share,
    Status,
    Text,
    Word,
    require_plain,
)
from mllkm_scale.base.schemas.headers import Point

__all__ = ["EvaluationFile", "PathFile", "PlanFile", "RunFile", "Selected", "SizeFile", "Tried"]


class _Data(Record):
    name: Text | None = None
    rows: Count | None = None
    features: Count | None = None
    feature_names: list[Text] | None = None
    image_shape: list[Annotated[int, Meta(ge=1, le=2**31)]] | None = None


class _PathPoint(Point, forbid_unknown_fields=False):
    """A point of path.json: as in end.npz, with its name."""

    name: Text


class PathFile(Record):
    """Of path.json."""

    parameter: Literal["C", "max_kernels", "max_bytes"]
    values: list[Positive]
    seed: Seed
    points: list[_PathPoint]
    data: _Data | None = None
    validation: Text | None = None
    knee: Text | None = None


class Tried(Record, forbid_unknown_fields=True):
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


class Selected(Record, forbid_unknown_fields=True):
    """Of selection.json."""

    tried: list[Tried]
    taken: Count
    calibration: Calibrated | None = None

    def __post_init__(self) -> None:
        if self.taken >= len(self.tried):
            raise ValueError(f"setting {self.taken} is taken of {len(self.tried)}")


class SizeFile(Record, forbid_unknown_fields=True):
    """Of size.json."""

    max_bytes: Count
    bits: Literal[4, 8]
    anchors: Word
    metric: Count | Word | None
    scaling: Word
    ridge: Duration
    n_components: Count | None
    max_features: Count | None
    calibration: Calibrated | None

    def __post_init__(self) -> None:
        counts = (self.metric, self.n_components, self.max_features)
        if not re.fullmatch(r"learned:[1-9][0-9]{0,8}", self.anchors) or 0 in counts:
            raise ValueError("a machine has kernels, directions, components and features")


class _Curve(Record):
    label: bool | int | Real | Text
    roc_area: Share
    average_precision: Share
    false_rate: list[Share] = []
    recall: list[Share] = []
    precision: list[Share] = []

    def __post_init__(self) -> None:
        if not len(self.false_rate) == len(self.recall) == len(self.precision) <= 1000:
            raise ValueError("the points of a curve do not fit together")


class _Strong(Record):
    feature: Text
    value: Text
    added: Real


class _Explained(Record):
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


class EvaluationFile(Record):
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


class _PlanRow(Record):
    what: Text = ""
    bytes: Count = 0
    note: Text = ""


class PlanFile(Record):
    """Of plan.json."""

    budget_bytes: Count | None = None
    inner: Text | None = None
    reason: Text | None = None
    rows: list[_PlanRow] = []


class _Result(Record):
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


class _Learned(Record):
    n_kernels: Count
    metric: Count | Word | None = None
    importance: list[Duration] = []
    features: list[Count] | None = None
    quantile: list[bool] = []
    dropped_columns: Count | None = None
    dropped_features: Count | None = None
    kept_kernels: Count | None = None
    other_kernels: Count | None = None


class _Cluster(Record):
    workers: Count | None = None
    lost_workers: Count = 0
    master_waited_share: Duration | None = None
    workers_idle_share: Share | None = None
    worker_peak_bytes: Count | None = None
    worker_bytes: Count | None = None


class RunFile(Record):
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
            require_plain(self.parameters, "parameters")
