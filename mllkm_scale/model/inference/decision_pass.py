"""The labels or the decision function of a whole data set as a pass over its chunks, by an executor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.executor import Executor, Shared
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.model.inference.blocks import Rows
from mllkm_scale.model.inference.decision import decide
from mllkm_scale.model.inference.labels import label_codes
from mllkm_scale.model.model import Model

__all__ = ["PredictionWork", "decision_pass"]


@dataclass(frozen=True)
class PredictionWork:
    """Computes the first row, and labels (as positions among the classes) or the decision function of the rows of
    chunks."""

    model: Shared[Model]
    dataset: Dataset
    scores: bool
    unit_work: float

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.dataset.paths + self.model.paths

    def __call__(self, units: range) -> tuple[int, Array]:
        model, data = self.model.get(), self.dataset
        evaluate = decide if self.scores else label_codes
        parts = [evaluate(model, Rows(data.chunk(unit), data.bounds(unit)[0], data.name)) for unit in units]
        return data.bounds(units[0])[0], np.concatenate(parts)

    def describe(self, units: range) -> str:
        return f"chunks {units[0]} to {units[-1]} of {self.dataset.name}"


def decision_pass(model: Model, dataset: Dataset, executor: Executor, *, scores: bool) -> Iterator[tuple[int, Array]]:
    """First row, and labels or decision function, of ranges of rows in order; any executor gives the same bits.

    The rows must be numbers: `Model.numeric` makes them from a table.
    """
    assert model.step is None
    model.require_features(dataset.n_features, dataset.name)
    shared = executor.share("model", model)
    work = PredictionWork(shared, dataset, scores, dataset.chunk_rows * model.row_work)
    under_way = executor.start(work, dataset.n_chunks)
    try:
        yield from under_way
    finally:
        under_way.close()
        shared.drop()
