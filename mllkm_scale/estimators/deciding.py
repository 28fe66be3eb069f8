"""Base class of the scikit-learn estimators: prediction with the fitted model, and its display."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import estimator_html_repr
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.events import Round
from mllkm_scale.config import configured
from mllkm_scale.data import Dataset
from mllkm_scale.data.collections import Collection, is_collection
from mllkm_scale.data.parts import TableOptions
from mllkm_scale.data.tables.frames import is_frame, needs_encoding, table_dataset, values_table
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.estimators.html import fitted_facts, fitted_html
from mllkm_scale.model.explanation import Explanation
from mllkm_scale.model.model import Model

__all__ = [
    "SKLEARN_ALONE_BYTES",
    "SKLEARN_BYTES",
    "DecidesByModel",
    "OfModel",
    "require_labels",
    "require_names",
]


SKLEARN_BYTES = 160_000_000
"""Memory of scikit-learn, and of pandas, which it loads if it is installed: up to 110 MB, because more pages are mapped
just after an installation. A training run without them needs less."""

SKLEARN_ALONE_BYTES = 70_000_000
"""Memory of scikit-learn if pandas is already counted."""


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
    feature_importances_ = OfModel(lambda model: model.feature_importances)

    def decision_function(self, X: ArrayLike | Dataset) -> Array:
        """f(x): (n,) for two classes, positive for `classes_[1]`; (n, K) for more.

        A Dataset is read chunk by chunk. For a collection of dask or xarray, the result is a collection, too, and not
        yet computed: for a DataFrame it is a Series or DataFrame with the same index.
        """
        check_is_fitted(self)
        if is_collection(X):
            return self._of_collection(X).decision_function(X)
        if isinstance(X, Dataset):
            return np.concatenate([f for _, f in self.model_.decision_chunks(X, n_jobs=self._threads())])
        return self.model_.decision_function(self._rows(X), n_jobs=self._threads())

    def predict(self, X: ArrayLike | Dataset) -> Array:
        """Label of each row; for a Dataset or a collection as in `decision_function`."""
        check_is_fitted(self)
        if is_collection(X):
            return self._of_collection(X).predict(X)
        if isinstance(X, Dataset):
            return np.concatenate([labels for _, labels in self.model_.predict_chunks(X, n_jobs=self._threads())])
        return self.model_.predict(self._rows(X), n_jobs=self._threads())

    def predict_proba(self, X: ArrayLike | Dataset) -> Array:
        """Probability of each class, (n, c), in the order of `classes_`; see `Model.predict_proba`."""
        check_is_fitted(self)
        if is_collection(X):
            return self._of_collection(X).predict_proba(X)
        return self.model_.require_calibration().probabilities(self.decision_function(X))

    def predict_log_proba(self, X: ArrayLike | Dataset) -> Array:
        """Logarithm of the probability of each class, (n, c)."""
        check_is_fitted(self)
        if is_collection(X):
            return self._of_collection(X).predict_log_proba(X)
        return self.model_.require_calibration().log_probabilities(self.decision_function(X))

    def explain(self, x: ArrayLike | Mapping[str, Any]) -> Explanation:
        """What each kernel and each feature adds to the scores of one row; see `Model.explain`."""
        check_is_fitted(self)
        return self.model_.explain(x)

    def report(
        self,
        out: str | os.PathLike[str],
        X: ArrayLike | Dataset | None = None,
        y: ArrayLike | None = None,
        *,
        image_shape: str | Sequence[int] | None = None,
        all_shapes: bool = False,
    ) -> Path:
        """Write the report of the fitted machine: one HTML file that includes its pictures.

        Parameters
        ----------
        out : path
            The file.
        X, y : test rows and their labels, or a Dataset, optional
            Rows for the evaluation: confusion matrix, curves, calibration, and explanations of a few rows.
        image_shape : text or sequence of int, optional
            "28x28" or (28, 28) if a row is an image.
        all_shapes : bool
            Draw the shape functions of all features of a component-wise machine.

        Examples
        --------
        >>> import tempfile
        >>> from sklearn.datasets import load_iris
        >>> from mllkm_scale import MLLKMClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> machine = MLLKMClassifier(n_jobs=1).fit(X[::2], y[::2])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = machine.report(f"{folder}/page.html", X[1::2], y[1::2]).read_text()
        >>> "Results on the test rows" in page
        True
        """
        from mllkm_scale.report.page import write_model_report

        check_is_fitted(self)
        plan = getattr(self, "plan_", None)
        peak_bytes = getattr(self, "peak_bytes_", None)
        return write_model_report(
            self.model_,
            out,
            test=self._test_data(X, y),
            rounds=[Round(**vars) for vars in getattr(self, "history_", [])],
            record={"result": {"status": self.model_.certificate.status, "peak_bytes": peak_bytes}},
            plan=None if plan is None else plan.as_dict(),
            image_shape=image_shape,
            all_shapes=all_shapes,
            n_jobs=self._threads(),
        )

    def _test_data(self, X: ArrayLike | Dataset | None, y: ArrayLike | None) -> Dataset | None:
        if X is None or isinstance(X, Dataset):
            return X
        if y is None:
            raise ParameterError("y=None: give a label for each row of X, or leave X out")
        if self.model_.encoding is not None:
            table = X if is_frame(X) else values_table(np.asarray(X, dtype=object))
            return table_dataset(table, y, **self._table_options())
        return Dataset.from_arrays(self._rows(X), np.asarray(y))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _html_repr(self) -> str:
        """HTML for a notebook: scikit-learn's diagram and, once fitted, a summary."""
        diagram: str = estimator_html_repr(self)
        if not self.__sklearn_is_fitted__():
            return diagram
        return diagram + fitted_html(f"{type(self).__name__}, fitted", self._facts())

    # scikit-learn 1.6 asks for these two, and not for `_html_repr`.

    def _repr_html_inner(self) -> str:
        return self._html_repr()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        return bundle | ({"text/html": self._html_repr()} if "text/html" in bundle else {})

    def _facts(self) -> dict[str, str]:
        """The summary of the fitted machine."""
        return fitted_facts(self)

    def _training_data(self, X: ArrayLike | Dataset, y: ArrayLike | None) -> Dataset:
        """The data given to `fit`, checked as in scikit-learn; a Dataset checks itself."""
        if isinstance(X, Dataset):
            self.n_features_in_ = X.n_features
            return X
        self._refuse_collection(X)
        require_names(X)
        require_labels(y)
        if self._is_table(X):
            return self._table_data(X, y)
        try:
            rows, labels = validate_data(self, X, y, dtype=[np.float64, np.float32], order="C", accept_sparse="csr")
        except ValueError as error:
            raise _with_remedy(error, X) from error
        check_classification_targets(labels)
        return Dataset.from_arrays(rows, labels, feature_names=getattr(self, "feature_names_in_", None))

    def _training_collection(self, X: Any, y: Any) -> Collection:
        """The collection of dask or xarray given to `fit`; its width and names are stored, and nothing is computed."""
        if y is None:
            raise ParameterError("y=None: requires y to be passed, but the target y is None: give a label for each row")
        collection = Collection.of(X, y).with_options(TableOptions(**self._table_options()))
        validate_data(self, collection.sample(), skip_check_array=True)
        return collection

    def _refuse_collection(self, X: Any) -> None:
        """Refuse a collection where rows must be in memory: it may be larger than memory."""
        if is_collection(X):
            raise DataError(
                "X is a collection of dask or xarray, which only fit of MLLKMClassifier takes: compute it, or store it"
                " and give Dataset.open(...)"
            )

    def _of_collection(self, X: Any) -> Model:
        """The model, after checking that names and number of columns are those of `fit`, as scikit-learn requires."""
        validate_data(self, Collection.of(X).sample(), reset=False, skip_check_array=True)
        return self.model_

    def _threads(self) -> int | None:
        return configured("n-jobs") if self.n_jobs is None else self.n_jobs

    def _is_table(self, X: Any) -> bool:
        """Whether X has more than numbers, or columns that are named as categories."""
        return bool(self._table_options()) or (is_frame(X) and needs_encoding(X))

    def _table_options(self) -> dict[str, Any]:
        """The columns that the estimator names as categories or numbers, if any."""
        return {}

    def _table_data(self, X: Any, y: ArrayLike | None) -> Dataset:
        """A table and its labels. Names are checked here, as in scikit-learn; values are checked when they are read."""
        table = X if is_frame(X) else values_table(np.asarray(X, dtype=object))
        validate_data(self, X if is_frame(X) else np.asarray(X, dtype=object), skip_check_array=True)
        if y is None:
            raise ParameterError("y=None: requires y to be passed, but the target y is None: give a label for each row")
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        dataset = table_dataset(table, labels, **self._table_options())
        if len(labels) != dataset.n_rows:
            raise DataError(f"y has {len(labels)} labels, but X has {dataset.n_rows} rows: give one label per row")
        return dataset

    def _rows(self, X: Any) -> Any:
        if self.model_.encoding is not None:
            validate_data(self, X, reset=False, skip_check_array=True)
            return X
        return validate_data(self, X, reset=False, dtype=[np.float64, np.float32], order="C", accept_sparse="csr")


def require_names(X: Any) -> None:
    """Refuse a DataFrame with two columns of the same name."""
    names = [str(name) for name in X.columns] if hasattr(X, "iloc") and is_frame(X) else []
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"X has two columns of the name {twice!r}: rename one, or leave one out")


def require_labels(y: Any) -> None:
    """Refuse missing labels among objects; the message names the row."""
    labels = np.asarray(y)
    for row, label in enumerate(labels.tolist() if labels.ndim == 1 and labels.dtype.kind == "O" else ()):
        try:
            missing = label is None or bool(label != label)
        except TypeError:  # pandas.NA is neither true nor false
            missing = True
        if missing:
            raise DataError(f"y has a missing label at row {row} (0-based): label it, or leave out its row")


def _with_remedy(error: ValueError, X: Any) -> ValueError:
    """The error of scikit-learn's check, or one that suggests a DataFrame if that would work."""
    table = "or give a DataFrame, whose text becomes categories and whose missing values are filled and marked"
    if "could not convert string" in str(error):
        return DataError(f"X has text ({error}): name its columns with categories=[...], {table}")
    if "Input X contains NaN" not in str(error) or hasattr(X, "toarray"):
        return error
    row, column = np.argwhere(np.isnan(np.asarray(X, dtype=np.float64)))[0]
    return DataError(f"X has NaN at row {row}, column {column} (0-based): remove or replace it, {table}")
