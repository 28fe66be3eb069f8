"""The best kernels of a range of anchors, and the merging of neighbouring ranges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["Best"]


@dataclass(frozen=True)
class Best:
    """The best kernel of each of the best anchors, best first, and the largest q of all the others.

    For equal values, the smaller id comes first. So the result of `joined` depends on the anchors, not on how they were
    divided into ranges.
    """

    ids: Array
    values: Array
    rest: float = 0.0

    @classmethod
    def none(cls) -> Best:
        return cls(np.empty(0, np.int64), np.empty(0))

    @classmethod
    def of(cls, q: Array, first_anchor: int) -> Best:
        """Build from the forms q (anchors, gammas) of neighbouring anchors; q is overwritten."""
        rows, gamma = np.arange(len(q)), q.argmax(axis=1)
        values = q[rows, gamma]
        q[rows, gamma] = 0.0
        order = np.argsort(-values, kind="stable")
        ids = (first_anchor + rows) * q.shape[1] + gamma
        return cls(ids[order], values[order], float(q.max(initial=0.0)))

    def joined(self, following: Best, count: int) -> Best:
        """Merge with the anchors that follow, and keep the `count` best."""
        ids = np.concatenate([self.ids, following.ids])
        values = np.concatenate([self.values, following.values])
        order = np.argsort(-values, kind="stable")
        left_out = float(values[order[count]]) if len(order) > count else 0.0
        order = order[:count]
        return Best(ids[order], values[order], max(self.rest, following.rest, left_out))
