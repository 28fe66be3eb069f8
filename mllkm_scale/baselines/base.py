"""Shared parts of the baselines: labels as signs, scores as labels, and checks of rows and parameters.

Each check names the parameter, its value, and the remedy.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.errors import DataError, ParameterError

__all__ = ["Baseline", "LinearBaseline", "check_choice", "check_count", "check_positive", "seed_of", "warn_of_gap"]


def check_positive(**values: object) -> None:
    """Check that every value is a finite number above zero.

    >>> check_positive(C=-1.0)
    Traceback (most recent call last):
    mllkm_scale.errors.ParameterError: C=-1.0: give a positive number
    """
    for name, value in values.items():
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or not (math.isfinite(value) and value > 0):  # type: ignore[arg-type, operator]
            raise ParameterError(f"{name}={value!r}: give a positive number")


def check_count(**values: object) -> None:
    """Check that every value is a whole number from 1."""
    for name, value in values.items():
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
            raise ParameterError(f"{name}={value!r}: give a whole number from 1")


def check_choice(choices: Sequence[str], **values: object) -> None:
    """Check that every value is one of the choices."""
    for name, value in values.items():
        if value not in choices:
            raise ParameterError(f"{name}={value!r} is not known: choose one of {', '.join(choices)}")


def seed_of(random_state: int | None) -> int:
    """The seed itself, or a random one for None."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if not isinstance(random_state, int | np.integer) or isinstance(random_state, bool) or random_state < 0:
        raise ParameterError(f"random_state={random_state!r}: give a whole number from 0, or None for a random one")
    return int(random_state)


def warn_of_gap(method: str, gap: float, tol: float, max_iter: int) -> None:
    """Issue a ConvergenceWarning at the caller of fit, if the epochs of a method did not suffice for its gap."""
    if gap > tol:
        warnings.warn(
            f"{method} ends after {max_iter} epochs at a relative gap of {gap:.1e}, above tol={tol}: "
            "scale the features, or raise max_iter or tol",
            ConvergenceWarning,
            stacklevel=4,
        )


class Baseline(ClassifierMixin, BaseEstimator):
    """A classifier that learns from signs and predicts scores; more than two classes are one-vs-rest."""

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
        with one_blas_thread():  # products are small, and the bits do not depend on the number of threads
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


class LinearBaseline(Baseline):
    """f_k(x) = <x, coef_k> + intercept_k; the bias is the weight of a constant feature."""

    fit_intercept: bool

    def _features(self, X: Array) -> Array:
        """The rows, with a constant feature if there is a bias."""
        return np.column_stack([X, np.ones(len(X))]) if self.fit_intercept else X

    def _set_weights(self, weights: Array) -> None:
        """Take the weights of the features (K, p)."""
        self.coef_ = weights[:, :-1] if self.fit_intercept else weights
        self.intercept_ = weights[:, -1] if self.fit_intercept else np.zeros(len(weights))

    def _scores(self, X: Array) -> Array:
        return X @ self.coef_.T + self.intercept_
