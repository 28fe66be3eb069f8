"""What the baselines share: checks of their input, labels as signs, scores as labels."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.errors import DataError

__all__ = ["Baseline"]


class Baseline(ClassifierMixin, BaseEstimator):
    """A classifier that learns from signs and answers with scores; more than two classes are one against the rest."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on rows (n, d) and their labels (n,)."""
        rows, labels = validate_data(self, X, y, dtype=np.float64, order="C")
        check_classification_targets(labels)
        self.classes_ = np.unique(labels)
        if len(self.classes_) < 2:
            raise DataError(
                f"the labels have only one class, {self.classes_[0]!r}: give samples of two classes or more"
            )
        positive = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        with one_blas_thread():  # their products are small, and the bits are those of any machine's number of threads
            self._learn(rows, np.where(labels[:, None] == positive, 1.0, -1.0))
        return self

    @abstractmethod
    def _learn(self, X: Array, signs: Array) -> None:
        """Train on rows (n, d) and signs (n, K), -1 and +1; K is 1 for two classes."""

    @abstractmethod
    def _scores(self, X: Array) -> Array:
        """f_k(x) of rows (n, d), shape (n, K)."""

    def decision_function(self, X: ArrayLike) -> Array:
        """f(x): (n,) for two classes, positive for `classes_[1]`; (n, K) for more."""
        check_is_fitted(self)
        rows = np.asarray(validate_data(self, X, reset=False, dtype=np.float64, order="C"))
        scores = self._scores(rows)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: ArrayLike) -> Array:
        """Label of each row."""
        scores = self.decision_function(X)
        chosen = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[chosen])
