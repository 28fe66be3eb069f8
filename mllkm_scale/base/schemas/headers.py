"""The headers of archive files: model.mllkm, checkpoints, learning.npz and end.npz."""

from __future__ import annotations

from typing import Any, Literal

from mllkm_scale.base.schemas.fields import (
    Bound,
    Calibrated,
    Choice,
    Count,
    Duration,
    Header,
    Line,
    Positive,
    Real,
    Seed,
    Share,
    Status,
    Word,
    require_plain,
)

__all__ = ["LearningHeader", "ModelHeader", "PathEnd", "Point", "StreamHeader", "TrainingHeader"]


class FamilyHeader(Header):
    """The family of kernels."""

    map: Word
    componentwise: bool
    local_bias: Duration


class Certificate(Header):
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
        require_plain(self.params, "params")


class ModelHeader(Header):
    """Of model.mllkm."""

    family: FamilyHeader
    certificate: Certificate
    feature_names: list[Line] | None = None
    calibration: Calibrated | None = None


class _Checkpoint(Header):
    fingerprint: Word
    round: Count


class TrainingHeader(_Checkpoint):
    """Of the checkpoint of a training run."""

    seed: Seed
    elapsed_s: Duration
    objectives: list[tuple[Bound, Bound]]
    choice: Choice | None = None
    calibration: Calibrated | None = None


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
    family: FamilyHeader | None = None
    feature_names: list[Line] | None = None
    scored: list[Count] = []

    def __post_init__(self) -> None:
        if self.errors > self.tested:
            raise ValueError(f"there are {self.errors} errors of {self.tested} samples")
        fixed = (self.n_seen, self.n_blocks, self.sweep, self.inserted, self.dropped, self.forgotten, self.C)
        if self.started and (None in fixed or self.family is None):
            raise ValueError("what the warm-up fixes is missing")


class LearningHeader(Header):
    """Of learning.npz."""

    fingerprint: Word
    seed: Seed


class Point(Header):
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

    point: Point
    C: Positive
    machines: Count
    proofs: Count
