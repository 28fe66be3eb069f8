"""The points of a path: cost and error of each model, the front, and the knee. The costs are the measured time per row,
and the bytes of the model file, or of the constants on a device. The front consists of the points for which no other
point is both as cheap and as good. Its cost is the time per row, or the bytes for a path along bytes on a device. The
knee of the front is the point beyond which accuracy becomes expensive: with the logarithms of the costs and the errors
both scaled to 0 .. 1, it is the point farthest below the line from the cheapest point to the best one.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.units import format_bytes
from mllkm_scale.data import Dataset
from mllkm_scale.errors import ParameterError
from mllkm_scale.model.describe import describe
from mllkm_scale.model.model import Model
from mllkm_scale.path.limits import Limits

__all__ = ["PathPoint", "best_point", "costs_of", "front", "knee_point"]

BATCH_ROWS = 1024
LEAST_REPEATS, LEAST_S = 5, 0.02


@dataclass(frozen=True)
class PathPoint:
    """A model of a path.

    Attributes
    ----------
    parameter, value : str and float
        "C", "max_kernels" or "max_bytes", and its value.
    error : float
        Share of the validation rows with a wrong label; along "max_bytes", of the machine in integers.
    row_us : float
        Microseconds per row in a batch, on one thread of the training machine.
    model_bytes : int
        Size of the model file; along "max_bytes", of the constants in integers.
    multiply_adds : int
        Multiply-adds per row, computed from the sizes; with tables if the model has them.
    n_kernels, gap, status, elapsed_s : int, float, str, float
        As in the result of a training run; the seconds are those of this point only.
    """

    parameter: str
    value: float
    n_kernels: int
    error: float
    row_us: float
    model_bytes: int
    multiply_adds: int
    gap: float
    status: str
    elapsed_s: float

    @property
    def name(self) -> str:
        """The name of the point, which is also the name of its folder: ``C=0.5``, ``max_kernels=100``."""
        return f"{self.parameter}={self.value:g}"

    @property
    def front_cost(self) -> float:
        """The cost for the front and the knee: the time per row, or the bytes along "max_bytes"."""
        return self.model_bytes if self.parameter == "max_bytes" else self.row_us

    @property
    def cost(self) -> str:
        """The cost, for a message."""
        return f"{self.row_us:.3g} us a row, {format_bytes(self.model_bytes)}"


def front(points: Sequence[PathPoint]) -> list[PathPoint]:
    """The points that no other point matches or beats in both cost and error, cheapest first.

    >>> def point(us, error):
    ...     return PathPoint("C", us, 1, error, us, 1000, 1, 0.01, "converged", 1.0)
    >>> [p.row_us for p in front([point(1, 0.3), point(2, 0.3), point(4, 0.1), point(3, 0.2)])]
    [1, 3, 4]
    """
    kept: list[PathPoint] = []
    for point in sorted(points, key=lambda p: (p.front_cost, p.error, p.model_bytes, p.row_us)):
        if not kept or point.error < kept[-1].error:
            kept.append(point)
    return kept


def knee_point(points: Sequence[PathPoint]) -> PathPoint:
    """The knee of the front; the best point if the front has none.

    >>> def point(us, error):
    ...     return PathPoint("C", us, 1, error, us, 1000, 1, 0.01, "converged", 1.0)
    >>> knee_point([point(1, 0.5), point(2, 0.12), point(4, 0.11), point(8, 0.1)]).row_us
    2
    """
    edge = front(points)
    if not edge:
        raise ParameterError("a path without points has no knee: train at least one")
    cost, error = np.log([p.front_cost for p in edge]), np.array([p.error for p in edge])
    if len(edge) < 3:
        return edge[-1]
    x, y = (cost - cost[0]) / (cost[-1] - cost[0]), (error - error[-1]) / (error[0] - error[-1])
    below = 1.0 - x - y
    return edge[int(np.argmax(below))] if below.max() > 1e-9 else edge[-1]


def best_point(points: Sequence[PathPoint], limits: Limits | None = None) -> PathPoint:
    """The point with the lowest error within the limits; the cheapest one of equal errors.

    Raises
    ------
    ParameterError
        If no point is within the limits; the message names the cheapest one.
    """
    limits = limits or Limits()
    within = [point for point in points if limits.hold(point.row_us, point.model_bytes)]
    if within:
        return min(within, key=lambda p: (p.error, p.row_us, p.model_bytes))
    if not points:
        raise ParameterError("a path without points has no best one: train at least one")
    cheapest = min(points, key=lambda p: (p.model_bytes, p.row_us))
    raise ParameterError(
        f"no model of the path is below {limits}: the smallest, {cheapest.name}, needs {cheapest.cost}; allow more, or"
        " train a path with smaller models (kernel_counts, or smaller Cs)"
    )


def _measure_row_us(model: Model, rows: NDArray[Any]) -> float:
    """Microseconds per row in a batch on one thread: the shortest of several measurements.

    Parameters
    ----------
    model : Model
    rows : array (n, n_features_in)
        Input rows for the model, repeated to fill a batch.
    """
    batch = np.resize(rows, (BATCH_ROWS, rows.shape[1]))
    model.predict(batch)  # makes tables and the like, which is done once
    taken: list[float] = []
    while len(taken) < LEAST_REPEATS or sum(taken) < LEAST_S:
        started = time.perf_counter()
        model.predict(batch)
        taken.append(time.perf_counter() - started)
    return 1e6 * min(taken) / BATCH_ROWS


def costs_of(model: Model, dataset: Dataset) -> dict[str, Any]:
    """The costs of a `PathPoint`, measured on rows of a data set."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.mllkm")
        model.save(path)
        facts, size = describe(model), path.stat().st_size
    return {
        "row_us": _measure_row_us(model.machine, dataset.part(0, min(BATCH_ROWS, dataset.n_rows))),
        "model_bytes": size,
        "multiply_adds": facts.multiply_adds if facts.tables is None else facts.tables.multiply_adds,
    }
