"""Prediction of single rows with low latency.

`Model.predict` is made for many rows, in blocks of a fixed height and by matrix products. A server is made once from a
model, checks and evaluates a row in one compiled call, and can be used from any number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.checks import require_finite
from mllkm_scale.data.tables.frames import rows_dataset
from mllkm_scale.data.tables.single_row import encoded_row
from mllkm_scale.errors import DataError
from mllkm_scale.model.inference.blocks import Rows

if TYPE_CHECKING:
    from mllkm_scale.model.model import Model

__all__ = ["Server"]


WELL, TOO_LARGE = -1, -2  # results of the loops that are not the position of a value that is not finite


class Server:
    """Predicts single rows, or a few at a time; made by `Model.server`.

    Scores are those of `Model.decision_function` up to rounding: they differ by less than 1e-9 of the sum over the
    kernels of `|z - c_m| |w_m| + |l_m|`, or by 1e-7 of it for maps with a square root (exponential, linear), whose
    distances are more accurate here. Labels are the same except where scores differ by less than that. A row has the
    same bits alone and among other rows. Component-wise models are evaluated by their tables, if they have any.

    Threads may share a server: a call writes only to its own memory. It can be pickled, and is then made again from its
    model.

    Attributes
    ----------
    classes : list
        Labels in ascending order, as Python values.
    n_features, n_kernels : int

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mllkm_scale import MLLKMClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MLLKMClassifier().fit(X, y).model_
    >>> server = model.server()
    >>> server.label(X[0]), server.label([6.3, 3.3, 6.0, 2.5])
    (0, 2)
    >>> bool(abs(server.scores(X[0]) - model.decision_function(X[:1])).max() < 1e-10)
    True
    """

    def __init__(self, model: Model) -> None:
        from mllkm_scale.model.serving.layout import laid_out  # compiled loops: numba is imported only here

        self._model = model
        self.classes: list[Any] = model.classes.tolist()
        self.n_features = model.n_features_in
        self.n_kernels = model.n_kernels
        self._n_machines, self._features = model.n_machines, model.features
        self._machine, self._encoding, self._reduction = model.machine, model.encoding, model.reduction
        self._decide = laid_out(self._machine)
        # Do the work of the first call now.
        self._decide(np.zeros((1, self._machine.n_features_in)), np.empty((1, self._n_machines)))

    def scores(self, x: ArrayLike | Mapping[str, Any]) -> Any:
        """f of one row: a float for two classes, positive for the second, and otherwise an array (K,).

        Parameters
        ----------
        x : array-like of shape (n_features,), or mapping
            Real numbers; an array of float64 is used without a copy. A mapping has a value for each feature name. A
            model that was trained on a table takes the values of its columns, with None for missing ones.

        Raises
        ------
        DataError
            If x has a wrong number of features, lacks a feature, or has NaN or infinity; the message names the column.
        """
        F = self._evaluate_row(x)
        return F.item(0) if self._n_machines == 1 else F[0]

    def label(self, x: ArrayLike | Mapping[str, Any]) -> Any:
        """The label of one row, as a Python value; x as in `scores`."""
        F = self._evaluate_row(x)
        return self.classes[int(F.item(0) > 0.0) if self._n_machines == 1 else F.argmax()]

    def probabilities(self, x: ArrayLike | Mapping[str, Any]) -> Array:
        """The probability of each class for one row, (c,), if the model has a calibration; x as in `scores`."""
        calibration = self._model.require_calibration()
        F = self._evaluate_row(x)
        probabilities: Array = calibration.probabilities(F[:, 0] if self._n_machines == 1 else F)[0]
        return probabilities

    def decision_function(self, X: ArrayLike) -> Array:
        """f of a few rows, as in `Model.decision_function`, which is faster for many rows."""
        X = self._features.of_table(X)
        if self._encoding is not None:
            _, data = self._model.numeric(rows_dataset(X, self._encoding.columns))
            return self._model.flat(self._evaluate(data.part(0, data.n_rows), "X"))
        if self._reduction is not None:
            return self._model.flat(self._evaluate(self._reduction.apply(X), "X"))
        rows = Rows.of(X)
        self._model.require_features(rows.X.shape[1], "X")
        return self._model.flat(self._evaluate(np.ascontiguousarray(rows.X, np.float64), "X"))

    def predict(self, X: ArrayLike) -> Array:
        """The labels of a few rows, shape (n,)."""
        labels: Array = self._model.classes[self._model.codes(self.decision_function(X))]
        return labels

    def __reduce__(self) -> tuple[Any, ...]:
        return Server, (self._model,)

    def __repr__(self) -> str:
        return f"Server({self.n_features} features, {self.n_kernels} kernels, {len(self.classes)} classes)"

    def _evaluate_row(self, x: ArrayLike | Mapping[str, Any]) -> Array:
        values = self._features.of_row(x) if isinstance(x, Mapping) else x
        if self._encoding is not None:
            return self._evaluate(encoded_row(self._encoding, values), "x")
        if self._reduction is not None:
            row_of_many = values if hasattr(values, "toarray") else np.atleast_2d(np.asarray(values, dtype=np.float64))
            return self._evaluate(self._reduction.apply(row_of_many), "x")
        row = np.asarray(values)
        if row.shape != (self.n_features,) or row.dtype.kind not in "fiub":
            self._refuse(row)
        return self._evaluate(np.ascontiguousarray(row, np.float64).reshape(1, -1), "x")

    def _evaluate(self, X: Array, name: str) -> Array:
        F = np.empty((len(X), self._n_machines))
        outcome = self._decide(X, F)
        if outcome != WELL:
            require_finite(X, 0, name, "predict")
            raise DataError(
                f"{name} has values too large to compute with at row {TOO_LARGE - outcome} (0-based):"
                " give them in the units of the training data"
            )
        return F

    def _refuse(self, row: Array) -> None:
        """Raise an error that says why this is not a valid row."""
        if row.ndim != 1:
            raise DataError(f"x has shape {row.shape}: give one row of {self.n_features} numbers, or use predict")
        if row.dtype.kind not in "fiub":
            raise DataError(f"x has type {row.dtype}: features must be real numbers; encode text as numbers")
        self._model.require_features(len(row), "x")
