"""The pass that gathers the moments of a data set: groups of chunks on a fixed grid, merged in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from mllkm_scale.base.executor import Executor, ThreadExecutor
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.preparation.moments import Moments

__all__ = ["MomentsWork", "gather_moments"]

_ROWS_A_FEATURE = 16  # rows of a group for each feature, so that the matrix M is small beside the rows it sums up


@dataclass(frozen=True)
class MomentsWork:
    """Moments of groups of chunks, of which one after the other is in memory."""

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

    def __call__(self, units: range) -> list[Moments]:
        return [self._moments(unit) for unit in units]

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
    group = max(1, _ROWS_A_FEATURE * width // dataset.chunk_rows)
    moments = Moments(width, cross=cross)
    for parts in (executor or ThreadExecutor()).start(
        MomentsWork(dataset, transform, cross, group, width), -(-dataset.n_chunks // group)
    ):
        for part in parts:
            moments.merge(part)
    moments.require_finite(dataset.name)
    return moments
