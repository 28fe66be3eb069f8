"""The result of a training run: the model, the duals that prove the D of its certificate, and facts about the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.events import Round
from mllkm_scale.base.units import format_bytes
from mllkm_scale.base.wording import percent
from mllkm_scale.model.model import Model
from mllkm_scale.plan.training import Plan

if TYPE_CHECKING:
    from mllkm_scale.model.evaluation import Evaluation

__all__ = ["SupportDuals", "TrainResult"]


@dataclass(frozen=True)
class SupportDuals:
    """Duals (n, K) that are zero except in some rows."""

    n_rows: int
    rows: Array
    values: Array  # (len(rows), K)

    @classmethod
    def of(cls, parts: Sequence[Array]) -> SupportDuals:
        """The duals of several machines, side by side."""
        duals = np.concatenate(parts, axis=1)
        rows = np.flatnonzero(duals.any(axis=1))
        return cls(len(duals), rows, duals[rows])

    def among(self, n_rows: int, kept: Array | None) -> SupportDuals:
        """As duals of a larger set of rows, in which these rows have the numbers `kept`; None for the same rows."""
        return self if kept is None else SupportDuals(n_rows, kept[self.rows], self.values)

    def dense(self) -> Array:
        """The full array."""
        duals = np.zeros((self.n_rows, self.values.shape[1]))
        duals[self.rows] = self.values
        return duals


@dataclass(frozen=True, repr=False)
class TrainResult:
    """A model, the duals that prove the D of its certificate, and facts about the run.

    `evaluation` is that on the test rows, or None if there are none.
    """

    model: Model
    support_duals: SupportDuals
    history: tuple[Round, ...]
    status: str
    plan: Plan
    peak_bytes: int
    evaluation: Evaluation | None = None

    @property
    def duals(self) -> Array:
        """The duals (n, K), from 0 to C_i."""
        return self.support_duals.dense()

    def __repr__(self) -> str:
        error = "" if self.evaluation is None else f", test error {percent(self.evaluation.error)}"
        memory = f"peak memory {format_bytes(self.peak_bytes)} of {format_bytes(self.plan.budget_bytes)}"
        return f"TrainResult({self.model!r}, {len(self.history)} rounds, {memory}{error})"
