"""Moments of the columns of a data set, gathered in one pass: groups of chunks on a fixed grid, merged in a fixed tree.

A worker merges the groups of its range as far as the tree does, so that few matrices are sent (`TreeSum`). Chunks are
merged by the update of Chan, Golub and LeVeque, in float64:

    n = n_a + n_b,   delta = mean_b - mean_a
    mean = mean_a + delta n_b / n
    M    = M_a + M_b + delta delta' n_a n_b / n

with M = sum (x - mean)(x - mean)', or only its diagonal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.executor import Executor, ThreadExecutor
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.errors import DataError

__all__ = ["ROWS_A_FEATURE", "Moments", "MomentsWork", "TreeSum", "gather_moments"]

ROWS_A_FEATURE = 16
"""Rows of a group per feature, so that the matrix M is small compared with the rows."""


class Moments:
    """Count, mean, range and squared deviations of columns; with `cross`, the whole matrix M."""

    def __init__(self, n_features: int, *, cross: bool = False) -> None:
        self.cross = cross
        self.count = 0
        self.mean = np.zeros(n_features)
        self.low = np.full(n_features, np.inf)
        self.high = np.full(n_features, -np.inf)
        self.deviations = np.zeros((n_features, n_features) if cross else n_features)

    def update(self, chunk: NDArray[Any]) -> None:
        """Merge the rows of a chunk."""
        n, d = chunk.shape
        # An overflow gives a column that is not finite, which `require_finite` reports.
        with np.errstate(over="ignore", invalid="ignore"):
            mean = chunk.mean(axis=0, dtype=np.float64)
            delta, count = mean - self.mean, self.count + n
            rows = np.empty((n + 1, d))
            np.subtract(chunk, mean, out=rows[:n])
            rows[n] = delta * np.sqrt(self.count * n / count)  # its square is the contribution of the means
            self.deviations += rows.T @ rows if self.cross else np.einsum("ij,ij->j", rows, rows)
            self.mean += delta * (n / count)
        self.count = count
        np.minimum(self.low, chunk.min(axis=0), out=self.low)
        np.maximum(self.high, chunk.max(axis=0), out=self.high)

    def merge(self, other: Moments) -> None:
        """Merge the moments of other rows."""
        with np.errstate(over="ignore", invalid="ignore"):
            delta = other.mean - self.mean
            count = self.count + other.count
            weight = self.count * other.count / count
            self.deviations += other.deviations
            self.deviations += np.outer(delta, delta * weight) if self.cross else delta * delta * weight
            self.mean += delta * (other.count / count)
        self.count = count
        np.minimum(self.low, other.low, out=self.low)
        np.maximum(self.high, other.high, out=self.high)

    @property
    def constant(self) -> NDArray[np.bool_]:
        """Mask of constant columns."""
        equal: NDArray[np.bool_] = self.low == self.high
        return equal

    def require_finite(self, name: str) -> None:
        """Refuse columns whose moments are not finite; the message has the number."""
        with np.errstate(over="ignore", invalid="ignore"):
            spread = self.high - self.low
        squares = np.diagonal(self.deviations) if self.cross else self.deviations
        broken = np.flatnonzero(~(np.isfinite(spread) & np.isfinite(squares) & np.isfinite(self.mean)))
        if len(broken):
            raise DataError(
                f"{name}: column {broken[0]} (0-based) has NaN, infinity or values too large to be squared:"
                " remove or rescale it"
            )


Node = tuple[int, int, Moments]
"""The moments of groups first .. first + size - 1, with the size a power of two of which `first` is a multiple."""


class TreeSum:
    """Merges nodes that arrive in the order of their groups: two neighbours of equal size, as soon as both are there.

    The merges depend only on the number of groups, and not on the process that made them.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, node: Node) -> None:
        first, size, moments = node
        while self.nodes and self.nodes[-1][1] == size and first % (2 * size) == size:
            first, _, before = self.nodes.pop()
            before.merge(moments)
            moments, size = before, 2 * size
        self.nodes.append((first, size, moments))

    def total(self, moments: Moments) -> Moments:
        """All nodes, merged into these empty moments, the smallest ones first."""
        for _, _, part in reversed(self.nodes):
            part.merge(moments)
            moments = part
        return moments


@dataclass(frozen=True)
class MomentsWork:
    """Computes moments of groups of chunks, one in memory at a time; neighbours are merged."""

    dataset: Dataset
    transform: Callable[[NDArray[Any]], NDArray[Any]] | None
    cross: bool
    group: int  # chunks
    width: int  # features after the transform

    @property
    def unit_work(self) -> float:
        rows = self.group * self.dataset.chunk_rows
        return 10.0 * rows * self.width * (1 + self.cross * self.width / 10)

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.dataset.paths

    def __call__(self, units: range) -> list[Node]:
        merged = TreeSum()
        for unit in units:
            merged.add((unit, 1, self._moments(unit)))
        return merged.nodes

    def _moments(self, unit: int) -> Moments:
        moments = Moments(self.width, cross=self.cross)
        for i in range(unit * self.group, min((unit + 1) * self.group, self.dataset.n_chunks)):
            chunk = self.dataset.chunk(i)
            moments.update(chunk if self.transform is None else self.transform(chunk))
        return moments

    def describe(self, units: range) -> str:
        return f"chunks {units[0] * self.group} to {units[-1] * self.group} of {self.dataset.name}"


def gather_moments(
    dataset: Dataset,
    transform: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
    *,
    cross: bool = False,
    executor: Executor | None = None,
    width: int | None = None,
) -> Moments:
    """Moments of all rows after a transform; a DataError names a column whose moments are not finite.

    `width` is the number of features after the transform, if it is not that of the data set.
    """
    width = dataset.n_features if width is None else width
    group = max(1, ROWS_A_FEATURE * width // dataset.chunk_rows)
    merged = TreeSum()
    for nodes in (executor or ThreadExecutor()).start(
        MomentsWork(dataset, transform, cross, group, width), -(-dataset.n_chunks // group)
    ):
        for node in nodes:
            merged.add(node)
    moments = merged.total(Moments(width, cross=cross))
    moments.require_finite(dataset.name)
    return moments
