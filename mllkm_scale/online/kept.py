"""The samples that a machine keeps while it learns online, and the rule by which it forgets them.

Samples that were within the margin of some class are kept, with their duals. A support vector cannot be removed
abruptly: other duals balance it, and the machine would be wrong around it. So it fades. The loss of sample i has the
weight

    C_i = C weight_i min(1, 4 (1 - r_i / max_samples), 4 (1 - t_i / window)),

where r_i is the number of kept samples that are newer, and t_i the number of samples that arrived after it; its duals
are at most C_i. While a quarter of the capacity is free, no sample fades. A sample is dropped when C_i is zero. A
sample with zero duals that was last well beyond the margin of every class is dropped at any time, because it has no
effect on the machine.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["BEYOND", "KeptSamples", "distinct_runs", "latest_of_each"]


BEYOND = 1.5
"""Margin beyond which a sample with zero duals is dropped."""

FADES = 0.25
"""Share of the capacity, and of the window, in which samples fade."""

_LEAST_ROOM = 512  # samples for which memory is allocated at the start


class KeptSamples:
    """Arrays with one row per sample; `n` rows are in use, and the arrays grow as needed.

    Attributes
    ----------
    rows : array (n, d)
    codes : array (n,)
        Positions of their labels among the classes.
    duals : array (n, K)
    margins : array (n,)
        The smallest y f over the classes, when it was last computed.
    ids : array (n,)
        Identity of the sample: a sample that arrives again is not kept twice.
    weights : array (n,)
        Weight of each in the loss, at its last arrival.
    since : array (n,)
        Number of samples before its last arrival.
    """

    NAMES = ("rows", "codes", "duals", "margins", "ids", "since", "weights")

    def __init__(self, n_features: int, n_outputs: int) -> None:
        room = _LEAST_ROOM
        self.n = 0
        self._arrays: dict[str, Array] = {
            "rows": np.empty((room, n_features)),
            "codes": np.empty(room, np.int64),
            "duals": np.empty((room, n_outputs)),
            "margins": np.empty(room),
            "ids": np.empty(room, np.int64),
            "since": np.empty(room, np.int64),
            "weights": np.empty(room),
        }

    def __len__(self) -> int:
        return self.n

    @property
    def rows(self) -> Array:
        return self._arrays["rows"][: self.n]

    @property
    def codes(self) -> Array:
        return self._arrays["codes"][: self.n]

    @property
    def duals(self) -> Array:
        return self._arrays["duals"][: self.n]

    @property
    def margins(self) -> Array:
        return self._arrays["margins"][: self.n]

    @property
    def ids(self) -> Array:
        return self._arrays["ids"][: self.n]

    @property
    def since(self) -> Array:
        return self._arrays["since"][: self.n]

    @property
    def weights(self) -> Array:
        return self._arrays["weights"][: self.n]

    def find(self, ids: Array) -> Array:
        """Positions of these samples; -1 for samples that are not kept."""
        if not self.n or ids.min() > self.ids.max():
            return np.full(len(ids), -1)
        order = np.argsort(self.ids, kind="stable")
        at = np.minimum(np.searchsorted(self.ids, ids, sorter=order), self.n - 1)
        found = order[at]
        return np.where(self.ids[found] == ids, found, -1)

    def append(self, **new: Array) -> None:
        """Keep more samples, given by name; their weights are one if none are given."""
        n = self.n + len(new["rows"])
        for name, values in ({"weights": np.ones(len(new["rows"]))} | new).items():
            array = self._arrays[name]
            if n > len(array):
                larger = np.empty((max(n, len(array) * 5 // 4), *array.shape[1:]), array.dtype)
                larger[: self.n] = array[: self.n]
                self._arrays[name] = array = larger
            array[self.n : n] = values
        self.n = n

    def retain(self, at: Array) -> None:
        """Keep only the samples at these positions, in order."""
        for array in self._arrays.values():
            array[: len(at)] = array[at]
        self.n = len(at)

    def boxes(self, C: float, now: int, max_samples: int, window: int | None) -> Array:
        """C_i of every sample, after `now` samples have arrived."""
        left = np.empty(self.n)
        left[np.argsort(-self.since, kind="stable")] = 1.0 - np.arange(self.n) / max_samples
        if window is not None:
            left = np.minimum(left, 1.0 - (now - self.since) / window)
        return np.asarray(C * self.weights * np.clip(left / FADES, 0.0, 1.0))

    def leaving(self, boxes: Array) -> Array:
        """Positions of the samples to drop."""
        idle = ~self.duals.any(axis=1)
        return np.flatnonzero((boxes <= 0.0) | (idle & (self.margins > BEYOND)))

    def to_arrays(self) -> dict[str, Array]:
        return {name: self._arrays[name][: self.n] for name in self.NAMES}

    def copy(self) -> KeptSamples:
        return KeptSamples.from_arrays(self.to_arrays())

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> KeptSamples:
        kept = cls(arrays["rows"].shape[1], arrays["duals"].shape[1])
        kept.append(**{name: arrays[name] for name in cls.NAMES if name in arrays})
        return kept


def latest_of_each(ids: Array) -> Array:
    """Last position of each sample, in the order of arrival.

    >>> latest_of_each(np.array([7, 8, 7, 9])).tolist()
    [1, 2, 3]
    """
    return np.sort(len(ids) - 1 - np.unique(ids[::-1], return_index=True)[1])


def distinct_runs(ids: Array) -> list[slice]:
    """Runs without repeated samples: a new run begins at each sample that is already in the run, whose dual continues
    from its last value.

    >>> distinct_runs(np.array([7, 8, 7, 9, 9]))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    cuts, since_cut = [0], set[int]()
    for at, id in enumerate(ids.tolist()):
        if id in since_cut:
            cuts.append(at)
            since_cut.clear()
        since_cut.add(id)
    return [slice(start, stop) for start, stop in pairwise([*cuts, len(ids)])]
