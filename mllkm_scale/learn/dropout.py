"""Dropout of kernels: every step of the descent uses a random part of them, always of the same size.

Leaving out a kernel is the same as setting its bump to zero. A step copies the parameters of the kernels that it uses,
and works on a machine of these only, so the others cost nothing. The predictors of the kept kernels are multiplied by
the inverse of the share that is kept.
"""

from __future__ import annotations

from dataclasses import replace

import numba
import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.learn.machine import Layout, LearnedMachine

__all__ = ["Dropout", "draw_kernels", "kept_kernels"]


_BY_KERNEL = ("predictors", "anchors", "log_gammas")


def kept_kernels(n_kernels: int, share: float) -> int:
    """Number of kernels of a step that leaves out this share.

    >>> kept_kernels(10, 0.25), kept_kernels(1, 0.5), kept_kernels(7, 0.0)
    (8, 1, 7)
    """
    return max(1, round((1.0 - share) * n_kernels))


class Dropout:
    """The part of a machine that a step uses; `machine` is overwritten by the next draw."""

    def __init__(self, layout: Layout, share: float, seed: int) -> None:
        self.layout, self.seed = layout, seed % 2**63
        n_kept = kept_kernels(layout.n_kernels, share)
        self.machine = LearnedMachine.zeros(replace(layout, n_kernels=n_kept))
        self.kept = np.zeros(n_kept, np.int64)
        self._factor = np.float32(layout.n_kernels / n_kept)

    def draw(self, machine: LearnedMachine, step: int) -> LearnedMachine:
        """The machine of the kernels that this step uses."""
        draw_kernels(self.seed, step, self.layout.n_kernels, self.kept)
        for name in _BY_KERNEL:
            np.take(getattr(machine, name), self.kept, axis=0, out=getattr(self.machine, name), mode="clip")
        self.machine.predictors *= self._factor
        if machine.metric is not None and self.machine.metric is not None:
            self.machine.metric[:] = machine.metric
        return self.machine

    def spread(self, gradients: Array, out: Array) -> None:
        """Copy the derivatives by the parameters of the part to those by the parameters of the whole machine."""
        part, whole = self.machine.layout.views(gradients), self.layout.views(out)
        out[:] = 0.0
        part["predictors"] *= self._factor
        for name in _BY_KERNEL:
            whole[name][self.kept] = part[name]
        if "metric" in part:
            whole["metric"][:] = part["metric"]


@numba.njit(cache=True, nogil=True)
def draw_kernels(seed: int, step: int, n_kernels: int, kept: Array) -> None:
    """Fill `kept` with different numbers below `n_kernels` in ascending order, drawn by SplitMix64."""
    state = np.uint64(seed) * np.uint64(0xD1342543DE82EF95) + np.uint64(step) * np.uint64(0x9E3779B97F4A7C15)
    state ^= state >> np.uint64(29)
    state *= np.uint64(0xBF58476D1CE4E5B9)
    count = 0
    for m in range(n_kernels):
        state += np.uint64(0x9E3779B97F4A7C15)
        z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        if float(z >> np.uint64(11)) * 2.0**-53 * (n_kernels - m) < len(kept) - count:
            kept[count] = m
            count += 1
