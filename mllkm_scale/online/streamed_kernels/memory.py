"""The kernels that are not active: remembered, as many as the budget allows, with the price they had when last seen.

A price is q_m / max over the active set of q at the duals of that time: at 1 a kernel is about to violate. On a budget
the kernels of the smallest prices are forgotten; of equal ones, those that came last.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.online.streamed_kernels.lists import Kernels

__all__ = ["Discarded"]


class Discarded:
    """Discarded kernels, at most `limit` of them; `n_forgotten` counts those that had to go."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit, self.n_forgotten = limit, 0
        self._parts: list[Kernels] = []
        self._prices = np.empty(0)
        self._keys: dict[Hashable, None] = {}  # in the order of the kernels

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._keys

    @property
    def kernels(self) -> Kernels | None:
        """All of them as one list, in the order in which they came; None without any."""
        if len(self._parts) > 1:
            self._parts = [self._parts[0].joined(self._parts[1:])]
        return self._parts[0] if self._parts else None

    def would_forget(self, n_more: int) -> bool:
        """Whether with so many more some must go."""
        return self.limit is not None and len(self) + n_more > self.limit

    def add(self, kernels: Kernels, prices: Array) -> None:
        """Remember these; beyond the limit, forget the cheapest."""
        if self.limit is not None and len(self) >= self.limit > 0:
            dear = prices > self._prices.min()  # the others would go at once
            self.n_forgotten += int(np.count_nonzero(~dear))
            kernels, prices = kernels.take(dear), prices[dear]
        if not len(kernels):
            return
        self._parts.append(kernels)
        self._prices = np.concatenate([self._prices, prices])
        self._keys |= dict.fromkeys(kernels.keys())
        if self.would_forget(0):
            assert self.limit is not None
            self.n_forgotten += len(self) - self.limit
            self._keep(np.sort(np.argsort(-self._prices, kind="stable")[: self.limit]))

    def renew(self, prices: Array) -> None:
        """Prices of all of them, at other duals."""
        self._prices = prices

    def pop(self, places: Array) -> Kernels:
        """Take these kernels out."""
        kernels = self.kernels
        assert kernels is not None
        taken = kernels.take(places)
        self._keep(np.delete(np.arange(len(self)), places))
        return taken

    def _keep(self, places: Array) -> None:
        kernels = self.kernels
        assert kernels is not None
        keys = list(self._keys)
        self._parts = [kernels.take(places)] if len(places) else []
        self._prices, self._keys = self._prices[places], dict.fromkeys(keys[m] for m in places.tolist())
