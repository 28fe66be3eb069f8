"""What a training calls once its model is there: to measure it, and to report on it."""

from __future__ import annotations

from typing import Any, Protocol

from mllkm_scale.base.events import Listener
from mllkm_scale.data import Dataset
from mllkm_scale.model.evaluation import Evaluation
from mllkm_scale.model.model import Model
from mllkm_scale.run.folder import RunFolder

__all__ = ["Finalizer"]


class Finalizer(Protocol):
    """The last steps of a training; the one that writes a report is in `mllkm_scale.report.finalize`."""

    def data_record(self, dataset: Dataset) -> dict[str, Any]:
        """What run.json says of the data."""

    def measure(
        self, model: Model, folder: RunFolder | None, listener: Listener, n_jobs: int | None = None
    ) -> Evaluation | None:
        """Evaluate the model on the test rows, if there are any."""

    def draw(self, model: Model, folder: RunFolder | None, listener: Listener) -> None:
        """Write the report, if it is wanted."""
