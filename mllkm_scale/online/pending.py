"""Samples that wait until there are enough of them to be learned together."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.errors import DataError

__all__ = ["Pending"]


@dataclass
class Pending:
    """Rows (n, d) as they came, their labels or codes (n,), ids (n,), and which came for the first time (n,)."""

    X: Array = field(default_factory=lambda: np.empty((0, 0)))
    y: Array = field(default_factory=lambda: np.empty(0))
    ids: Array = field(default_factory=lambda: np.empty(0, np.int64))
    new: Array = field(default_factory=lambda: np.empty(0, bool))

    def __len__(self) -> int:
        return len(self.ids)

    def append(self, X: Array, y: Array, ids: Array, new: bool) -> None:
        """More samples come; the first ones say how many features there are."""
        if len(X) != len(y):
            raise DataError(f"there are {len(X)} rows and {len(y)} labels: give one label per row")
        if self.X.shape[1] and X.shape[1] != self.X.shape[1]:
            raise DataError(
                f"these rows have {X.shape[1]} features, those before had {self.X.shape[1]}: give the same features in"
                " the same order"
            )
        first = not self.X.shape[1]
        self.X, self.y = (
            (X.copy(), np.array(y)) if first else (np.concatenate([self.X, X]), np.concatenate([self.y, y]))
        )
        self.ids = np.concatenate([self.ids, ids])
        self.new = np.concatenate([self.new, np.full(len(X), new)])

    def take(self, n: int) -> Pending:
        """The first n, which wait no longer."""
        first = Pending(self.X[:n], self.y[:n], self.ids[:n], self.new[:n])
        self.X, self.y, self.ids, self.new = self.X[n:], self.y[n:], self.ids[n:], self.new[n:]
        return first
