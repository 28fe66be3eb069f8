"""`MLLKMClassifierCV`: the size of the machine is chosen by cross-validation, as in scikit-learn.

A path is trained on the training part of each fold, and its errors are measured on the rest. A path on all samples
gives the models. The model with the lowest mean error over the folds is chosen, among the models that keep the limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import MetaEstimatorMixin
from sklearn.model_selection import check_cv

from mllkm_scale.base.arrays import Array
from mllkm_scale.cluster import current_client
from mllkm_scale.data import Dataset
from mllkm_scale.data.labels import require_classes
from mllkm_scale.data.subset import subset
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.estimators.classifier import MLLKMClassifier
from mllkm_scale.estimators.deciding import SKLEARN_BYTES, DecidesByModel, OfModel
from mllkm_scale.model.calibration import Calibration, fit_calibration
from mllkm_scale.model.model import Model
from mllkm_scale.path.limits import parse_limits
from mllkm_scale.path.points import best_point, knee_point
from mllkm_scale.path.training import PathResult, train_path

__all__ = ["MLLKMClassifierCV"]

CHOICES = ("best", "knee")


class MLLKMClassifierCV(MetaEstimatorMixin, DecidesByModel):
    """A Multiple Locally Linear Kernel Machine whose size is chosen by cross-validation.

    Parameters
    ----------
    estimator : MLLKMClassifier, optional
        All machines have its parameters; None for the default ones.
    Cs : sequence of float, optional
        Values of C to choose from. If neither this nor `kernel_counts` is given: seven around the automatic one.
    kernel_counts : sequence of int, optional
        Values of `max_kernels` to choose from, at the C of the estimator.
    cv : int, splitter or iterable
        Folds, as in scikit-learn; an int is the number of folds of a StratifiedKFold.
    choose : {"best", "knee"}
        The model with the lowest error, or the one beyond which accuracy becomes expensive.
    below : str or sequence of str, optional
        Limits that the model must keep: "20us" per row (in a batch, on one thread of this machine), or "100kB" for the
        file.

    Attributes
    ----------
    model_ : Model
        The machine that was chosen, trained on all samples.
    point_ : PathPoint
        Its cost and its mean error.
    path_ : tuple of PathPoint
        All machines: their costs, and their mean errors over the folds.
    errors_ : array (machines, folds)
        Validation errors.
    C_, max_kernels_ : float, int or None
        The parameters that were chosen, or given.
    classes_, n_features_in_, gap_, n_kernels_
        As in `MLLKMClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> machine = MLLKMClassifierCV(MLLKMClassifier(n_jobs=1), kernel_counts=[1, 3, 9], cv=3, below="20kB").fit(X, y)
    >>> machine.point_.model_bytes <= 20_000, machine.score(X, y) > 0.9
    (True, True)
    """

    def __init__(
        self,
        estimator: MLLKMClassifier | None = None,
        Cs: Sequence[float] | None = None,
        kernel_counts: Sequence[int] | None = None,
        cv: Any = 5,
        choose: str = "best",
        below: str | Sequence[str] | None = None,
    ) -> None:
        self.estimator = estimator
        self.Cs = Cs
        self.kernel_counts = kernel_counts
        self.cv = cv
        self.choose = choose
        self.below = below

    def fit(self, X: ArrayLike | Dataset, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Train the paths of the folds and of all samples, on the workers of an active dask client, and choose a model.

        Parameters
        ----------
        X : array (n, d) or Dataset
        y : array (n,), optional
            Labels; left out for a Dataset.
        sample_weight : array (n,), optional
            Weight of each row, in the loss and in the errors of the folds.
        """
        if self.choose not in CHOICES:
            raise ParameterError(f"choose={self.choose!r} is not known: choose one of {', '.join(CHOICES)}")
        limits = parse_limits(self.below)
        dataset = self._training_data(X, y)
        if sample_weight is not None:
            dataset = dataset.with_weights(np.asarray(sample_weight))
            require_classes(np.unique(dataset.labels()[np.asarray(dataset.weights()) > 0]), "weighted rows of y")
        codes = dataset.label_codes()[1]
        folds = list(check_cv(self.cv, codes, classifier=True).split(np.zeros((len(codes), 1)), codes))
        paths = [self._fold_path(dataset, codes, *fold) for fold in folds]
        self.errors_ = np.array([[point.error for point in path.points] for path in paths]).T
        whole = self._path(dataset, None)
        self.path_ = tuple(
            replace(point, error=float(error))
            for point, error in zip(whole.points, self.errors_.mean(axis=1), strict=True)
        )
        within = [point for point in self.path_ if limits.hold(point.row_us, point.model_bytes)]
        self.point_ = knee_point(within) if self.choose == "knee" and within else best_point(self.path_, limits)
        at = self.path_.index(self.point_)
        held = [(path.models[at], rows) for path, (_, rows) in zip(paths, folds, strict=True)]
        self.model_ = replace(whole.models[at], calibration=_calibration(held, dataset, codes))
        self.classes_ = self.model_.classes
        return self

    def _fold_path(self, dataset: Dataset, codes: Array, kept: Array, held_out: Array) -> PathResult:
        if len(np.unique(codes[kept])) < len(np.unique(codes)):
            raise DataError(
                f"{dataset.label_name} has a class that a fold does not train on: give fewer folds (cv={self.cv!r}), or"
                " more rows of that class"
            )
        return self._path(subset(dataset, kept), subset(dataset, held_out))

    def _path(self, dataset: Dataset, validation: Dataset | None) -> PathResult:
        machine = self.estimator or MLLKMClassifier()
        return train_path(
            dataset,
            validation,
            Cs=self.Cs,
            kernel_counts=self.kernel_counts,
            client=current_client(),
            preset=machine.preset,
            held_bytes=SKLEARN_BYTES,
            calibrate=False,
            **machine.training_parameters(),
        )

    max_kernels_ = OfModel(lambda model: model.certificate.params["max_kernels"])
    n_kernels_ = OfModel(lambda model: model.n_kernels)

    def _facts(self) -> dict[str, str]:
        point = self.point_
        chosen = f"{point.name} of {len(self.path_)}, validation error {100 * point.error:.3g} %, {point.cost}"
        return {"chosen": chosen} | super()._facts()

    def _table_options(self) -> dict[str, Any]:
        return {} if self.estimator is None else self.estimator._table_options()

    @property
    def n_jobs(self) -> int | None:  # type: ignore[override]
        return None if self.estimator is None else self.estimator.n_jobs


def _calibration(held: Sequence[tuple[Model, Array]], dataset: Dataset, codes: Array) -> Calibration | None:
    """Calibration by the scores of the rows of each fold, from the model that was trained on the other folds."""
    rows = [np.unique(numbers) for _, numbers in held]  # in the order in which `subset` has them
    scores = [
        np.concatenate([f for _, f in model.decision_chunks(subset(dataset, numbers))])
        for (model, _), numbers in zip(held, rows, strict=True)
    ]
    at, weights = np.concatenate(rows), dataset.weights()
    return fit_calibration(
        np.concatenate(scores), codes[at], "rows of the folds", None if weights is None else weights[at]
    )
