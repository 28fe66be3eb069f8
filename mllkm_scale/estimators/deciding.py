"""What every scikit-learn estimator of the package does with its model: decide on rows, and show itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from mllkm_scale.base.arrays import Array
from mllkm_scale.config import configured
from mllkm_scale.data import Dataset
from mllkm_scale.data.tables.frames import is_frame, needs_encoding, table_dataset, values_table
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.estimators.html import fitted_facts, fitted_html
from mllkm_scale.model.model import Model

__all__ = ["SKLEARN_BYTES", "DecidesByModel", "OfModel"]


SKLEARN_BYTES = 160_000_000
"""scikit-learn, and pandas, which it loads where that is installed: 110 MB, or as much as this where they were just
installed, for more of their pages are mapped then. A training without them needs less."""


class OfModel:
    """An attribute that the model of an estimator holds."""

    def __init__(self, read: Callable[[Model], Any]) -> None:
        self._read = read

    def __get__(self, estimator: DecidesByModel | None, owner: type | None = None) -> Any:
        return self if estimator is None else self._read(estimator.model_)


class DecidesByModel(ClassifierMixin, BaseEstimator):
    """An estimator that has a `model_` once it is fitted; `n_jobs` are its threads."""

    model_: Model
    n_jobs: int | None

    gap_ = OfModel(lambda model: model.certificate.gap)
    C_ = OfModel(lambda model: model.certificate.params["C"])

    def decision_function(self, X: ArrayLike | Dataset) -> Array:
        """f(x): (n,) for two classes, positive for `classes_[1]`; (n, K) for more. A Dataset is read chunk by chunk."""
        check_is_fitted(self)
        if isinstance(X, Dataset):
            return np.concatenate([f for _, f in self.model_.decision_chunks(X, n_jobs=self._threads())])
        return self.model_.decision_function(self._rows(X), n_jobs=self._threads())

    def predict(self, X: ArrayLike | Dataset) -> Array:
        """Label of each row. A Dataset is read chunk by chunk."""
        check_is_fitted(self)
        if isinstance(X, Dataset):
            return np.concatenate([labels for _, labels in self.model_.predict_chunks(X, n_jobs=self._threads())])
        return self.model_.predict(self._rows(X), n_jobs=self._threads())

    def predict_proba(self, X: ArrayLike | Dataset) -> Array:
        """Probability of each class, (n, c), in the order of `classes_`; see `Model.predict_proba`."""
        check_is_fitted(self)
        return self.model_.require_calibration().probabilities(self.decision_function(X))

    def predict_log_proba(self, X: ArrayLike | Dataset) -> Array:
        """Logarithm of the probability of each class, (n, c)."""
        check_is_fitted(self)
        return self.model_.require_calibration().log_probabilities(self.decision_function(X))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _html_repr(self) -> str:
        """The page of a notebook: scikit-learn's diagram, and once fitted what was learned."""
        diagram: str = super()._html_repr()
        if not self.__sklearn_is_fitted__():
            return diagram
        return diagram + fitted_html(f"{type(self).__name__}, fitted", self._facts())

    def _facts(self) -> dict[str, str]:
        """What the page says of the fitted machine."""
        return fitted_facts(self)

    def _training_data(
        self, X: ArrayLike | Dataset, y: ArrayLike | None, sample_weight: ArrayLike | None = None
    ) -> Dataset:
        """What `fit` was given, checked as scikit-learn does; a Dataset checks itself, and weights are when read."""
        dataset = self._labelled_data(X, y)
        return dataset if sample_weight is None else dataset.with_weights(np.asarray(sample_weight))

    def _labelled_data(self, X: ArrayLike | Dataset, y: ArrayLike | None) -> Dataset:
        if isinstance(X, Dataset):
            self.n_features_in_ = X.n_features
            return X
        if self._is_table(X):
            return self._table_data(X, y)
        rows, labels = validate_data(self, X, y, dtype=[np.float64, np.float32], order="C")
        check_classification_targets(labels)
        return Dataset.from_arrays(rows, labels, feature_names=getattr(self, "feature_names_in_", None))

    def _threads(self) -> int | None:
        return configured("n-jobs") if self.n_jobs is None else self.n_jobs

    def _is_table(self, X: Any) -> bool:
        """Whether X has more than numbers, or columns that are named as categories."""
        return bool(self._table_options()) or (is_frame(X) and needs_encoding(X))

    def _table_options(self) -> dict[str, Any]:
        """Which columns the estimator names as categories or numbers; only those that are given."""
        return {}

    def _table_data(self, X: Any, y: ArrayLike | None) -> Dataset:
        """A table and its labels, whose names are checked as scikit-learn does; its values are when they are read."""
        table = X if is_frame(X) else values_table(np.asarray(X, dtype=object))
        validate_data(self, X if is_frame(X) else np.asarray(X, dtype=object), skip_check_array=True)
        if y is None:
            raise ParameterError("y=None: requires y to be passed, but the target y is None: give a label for each row")
        labels = column_or_1d(y, warn=True)
        dataset = table_dataset(table, labels, **self._table_options())
        if len(labels) != dataset.n_rows:
            raise DataError(f"y has {len(labels)} labels, but X has {dataset.n_rows} rows: give one label per row")
        check_classification_targets(labels)
        return dataset

    def _rows(self, X: Any) -> Any:
        if self.model_.encoding is not None:
            validate_data(self, X, reset=False, skip_check_array=True)
            return X
        return np.asarray(validate_data(self, X, reset=False, dtype=[np.float64, np.float32], order="C"))
