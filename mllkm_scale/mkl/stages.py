"""From few samples to all: each stage of training has four times the samples of the one before.

A random part of n_s of the n samples, with the box C n / n_s in the place of C, stands for all of them: the value of
its problem is about that of the whole, and so are its weights. Kernels are found and weighted where that is cheap; the
last stage, which has all samples, starts near its end. Duals of a stage times n_s / n are feasible for all samples.

That is for noisy data, of which half the samples or more may be support vectors. Of others few samples matter, and the
working sets find them among all: from the first stage they go to the last.
"""

from __future__ import annotations

import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["Stages"]


_GROWTH = 4
_LEAST = 3000  # samples of the first stage


class Stages:
    """The samples in play: the first of a random order of all n."""

    def __init__(self, n_rows: int, seed: int) -> None:
        self.n_rows, self.sizes = n_rows, [n_rows]
        while self.sizes[0] // _GROWTH >= _LEAST:
            self.sizes.insert(0, self.sizes[0] // _GROWTH)
        self._rank = np.random.default_rng([seed, 3]).permutation(n_rows)

    @property
    def first(self) -> int:
        """Samples of the first stage."""
        return self.sizes[0]

    def after(self, count: int) -> int:
        """Samples of the stage after the one of so many."""
        return self.sizes[self.sizes.index(count) + 1]

    def mask(self, count: int) -> Array:
        """Which of the n are the samples of the stage of so many."""
        return self._rank < count

    def box(self, count: int, C: float) -> float:
        return C * self.n_rows / count
