"""What a model costs: the time of a row, measured, and the bytes of its file, as that is what people choose by."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data import Dataset
from mllkm_scale.model.describe import describe
from mllkm_scale.model.model import Model

__all__ = ["costs_of", "measure_row_us"]

BATCH_ROWS = 1024
LEAST_REPEATS, LEAST_S = 5, 0.02


def measure_row_us(model: Model, rows: NDArray[Any]) -> float:
    """Microseconds that a row takes in a batch on one thread: the shortest of several measurements.

    Parameters
    ----------
    model : Model
    rows : array (n, n_features_in)
        Rows as they are given to the model; repeated until they make a batch.
    """
    batch = np.resize(rows, (BATCH_ROWS, rows.shape[1]))
    model.predict(batch)  # what is made once, such as tables, is made here
    taken: list[float] = []
    while len(taken) < LEAST_REPEATS or sum(taken) < LEAST_S:
        started = time.perf_counter()
        model.predict(batch)
        taken.append(time.perf_counter() - started)
    return 1e6 * min(taken) / BATCH_ROWS


def costs_of(model: Model, dataset: Dataset) -> dict[str, Any]:
    """The costs of a `PathPoint`, by rows of a data set."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.mllkm")
        model.save(path)
        facts, size = describe(model), path.stat().st_size
    return {
        "row_us": measure_row_us(model.machine, dataset.part(0, min(BATCH_ROWS, dataset.n_rows))),
        "model_bytes": size,
        "multiply_adds": facts.multiply_adds if facts.tables is None else facts.tables.multiply_adds,
    }
