"""The last steps of a run: the model is evaluated on the test rows, and the report is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mllkm_scale.base.events import Listener, Notice, Phase
from mllkm_scale.config import configured
from mllkm_scale.data import Dataset
from mllkm_scale.data.checks import require_finite
from mllkm_scale.data.image_shape import ImageShape, read_image_shape, require_image_shape
from mllkm_scale.data.weights import weights_in_numbers
from mllkm_scale.errors import DataError
from mllkm_scale.model.names import Features, unique_names
from mllkm_scale.run.folder import EVALUATION, RunFolder

if TYPE_CHECKING:
    from mllkm_scale.data.first_step import FirstStep
    from mllkm_scale.model.evaluation import Evaluation
    from mllkm_scale.model.model import Model

__all__ = ["ReportFinalizer", "require_test_rows"]

ROUND_ROWS, ROUND_CELLS = 2000, 1_000_000  # of the test data, for the errors of rounds


@dataclass(frozen=True)
class ReportFinalizer:
    """Settings of the last steps: test rows, whether to write a report, and the shape of images."""

    test: Dataset | None = None
    image_shape: ImageShape | None = None
    report: bool = False

    @classmethod
    def checked(
        cls, dataset: Dataset, test: Dataset | None, image_shape: str | Sequence[int] | None, report: bool | None
    ) -> Self:
        """Check the settings before training, so that nothing fails at the end; with report=None, as configured."""
        shape = None if image_shape is None else require_image_shape(image_shape, dataset.n_features)
        if test is not None:
            require_test_rows(dataset, test)
            for start, chunk in test.chunks():
                require_finite(chunk, start, test.name, "train")
        return cls(test, shape, configured("report") if report is None else report)

    @classmethod
    def of_stream(cls, test: Dataset | None, image_shape: str | Sequence[int] | None, report: bool | None) -> Self:
        """The settings for a stream before its first sample; call `require_width` when it has arrived."""
        shape = None if image_shape is None else read_image_shape(image_shape)
        return cls(test, shape, configured("report") if report is None else report)

    def require_width(self, n_features: int) -> None:
        """Refuse a shape of images, or test rows, that do not fit this number of features."""
        if self.image_shape is not None:
            require_image_shape(self.image_shape, n_features)
        if self.test is not None and self.test.n_features != n_features:
            raise DataError(
                f"{self.test.name} would be evaluated after the stream, but has {self.test.n_features} features instead"
                f" of {n_features}: correct it, or leave it out"
            )

    def data_record(self, dataset: Dataset) -> dict[str, Any]:
        """The entry of run.json about the data; the names of features and the shape of images are for the report."""
        return {
            "name": dataset.name,
            "rows": dataset.n_rows,
            "features": dataset.n_features,
            "feature_names": dataset.feature_names,
            "image_shape": self.image_shape,
            **({"weights": weights_in_numbers(dataset.weights())} if dataset.has_weights else {}),
        }

    def round_error(self, number: int, machine: Callable[[], Model]) -> float | None:
        """Error on some of the test rows after rounds 1, 2, 4, 8 and so on, for the report; otherwise None."""
        if not self.report or self._some_test_rows is None or number & (number - 1):
            return None
        from mllkm_scale.model.evaluation import evaluate

        return evaluate(machine(), self._some_test_rows, n_jobs=1).error

    @cached_property
    def _some_test_rows(self) -> Dataset | None:
        if self.test is None:
            return None
        count = max(1, min(ROUND_ROWS, ROUND_CELLS // self.test.n_features, self.test.n_rows))
        rows = np.sort(np.random.default_rng(0).choice(self.test.n_rows, count, replace=False))
        return Dataset.from_arrays(self.test.rows(rows), self.test.labels()[rows], name=self.test.name)

    def measure(
        self,
        model: Model,
        folder: RunFolder | None,
        listener: Listener,
        n_jobs: int | None = None,
        step: FirstStep | None = None,
    ) -> Evaluation | None:
        """Evaluate the model on the test rows, if there are any, and write evaluation.json, if there is a folder."""
        if self.test is None:
            if folder is not None:
                folder.evaluation.unlink(missing_ok=True)  # of a model that a resumed training run has replaced
            return None
        from mllkm_scale.model.evaluation import evaluate
        from mllkm_scale.report.explained import explained_rows

        listener(Phase("evaluate", f"{self.test.name}, {self.test.n_rows:,} rows"))
        evaluation = evaluate(model, self.test, n_jobs=n_jobs)
        if folder is not None:
            whole = model if step is None else model.behind(step)
            explained = explained_rows(whole, self.test, evaluation)
            folder.write_json(EVALUATION, {"data": self.test.name} | evaluation.as_dict() | {"explained": explained})
        return evaluation

    def draw(self, model: Model, folder: RunFolder | None, listener: Listener) -> None:
        """Write report.html, if requested; a failure is reported, and does not affect the result."""
        if folder is None:
            return
        folder.report.unlink(missing_ok=True)  # of a model that a resumed training run has replaced
        if not self.report:
            return
        listener(Phase("report", str(folder.report)))
        try:
            from mllkm_scale.report.page import write_report

            write_report(folder.path, model=model)
        except Exception as error:  # a failed picture must not discard hours of training
            why = " ".join(f"{type(error).__name__}: {error}".split())
            listener(Notice(f"the report could not be written ({why}): try again with mllkm report {folder.path}"))


def require_test_rows(dataset: Dataset, test: Dataset) -> None:
    """Refuse test rows on which a model trained on `dataset` cannot be evaluated."""
    problem = None
    try:
        matched = Features(dataset.n_features, unique_names(dataset.feature_names)).match(test.feature_names, test.name)
    except DataError as error:
        raise DataError(f"{test.name} would be evaluated after the training: {error}") from None
    if matched is None and test.n_features != dataset.n_features:
        problem = f"{test.n_features} features instead of {dataset.n_features}"
    elif unknown := set(test.label_codes()[0].tolist()) - set(dataset.label_codes()[0].tolist()):
        problem = f"the label {min(unknown)!r}, which {dataset.label_name} does not have"
    if problem is not None:
        remedy = "give it another name" if test.name.endswith(":X_test") else "leave it out"
        raise DataError(
            f"{test.name} would be evaluated after the training, but has {problem}: correct it, or {remedy}"
        )
