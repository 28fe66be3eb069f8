"""What every scikit-learn estimator of the package does once it has a model: decide on arrays, and on data on disk."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from mllkm_scale.config import configured
from mllkm_scale.data import Dataset
from mllkm_scale.model.model import Model

__all__ = ["DecidesByModel"]

Array = NDArray[Any]


class DecidesByModel(ClassifierMixin, BaseEstimator):
    """An estimator with a `model_`, and perhaps `n_jobs`."""

    model_: Model
    n_jobs: int | None

    def decision_function(self, X: ArrayLike | Dataset) -> Array:
        """f(x): (n,) for two classes, positive for `classes_[1]`; (n, K) for more. A Dataset is read chunk by chunk."""
        check_is_fitted(self)
        if isinstance(X, Dataset):
            return np.concatenate([f for _, f in self.model_.decision_chunks(X, n_jobs=self._threads())])
        rows = self._rows(X)
        return self.model_.decision_function(rows, n_jobs=self._threads())

    def predict(self, X: ArrayLike | Dataset) -> Array:
        """Label of each row. A Dataset is read chunk by chunk."""
        check_is_fitted(self)
        if isinstance(X, Dataset):
            return np.concatenate([labels for _, labels in self.model_.predict_chunks(X, n_jobs=self._threads())])
        rows = self._rows(X)
        return self.model_.predict(rows, n_jobs=self._threads())

    def _threads(self) -> int | None:
        return configured("n-jobs") if self.n_jobs is None else self.n_jobs

    def _rows(self, X: ArrayLike) -> Array:
        return np.asarray(validate_data(self, X, reset=False, dtype=[np.float64, np.float32], order="C"))
