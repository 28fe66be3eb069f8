"""The trained machine, evaluated explicitly: it needs the anchors, and no other training samples.

    f_k(x) = sum_m h_m(z) (<z - c_m, coef_km> + local_coef_km),    z = preprocessor(x)

For component-wise kernels there is one h per component. With two classes there is one f, whose sign is the prediction;
with more classes there is one f per class, and the largest f is the prediction. Component-wise models are evaluated by
tables if these are faster (`additive`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.collections import is_collection
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.first_step import FirstStep
from mllkm_scale.data.sparse.reduction import Reduction
from mllkm_scale.data.tables.columns import CATEGORY
from mllkm_scale.errors import DataError
from mllkm_scale.kernels.predictors import GlobalPredictors
from mllkm_scale.model.inference.blocks import BlockPlan, Rows, plan_blocks
from mllkm_scale.model.inference.decision import decide, global_predictors
from mllkm_scale.model.inference.labels import SinglePrecision, label_codes, single_precision
from mllkm_scale.model.names import match_dataset, unique_names
from mllkm_scale.model.parts import ModelParts
from mllkm_scale.model.profile import importances
from mllkm_scale.model.tables.form import Form, additive_form
from mllkm_scale.model.tables.shapes import shape_values

if TYPE_CHECKING:
    from mllkm_scale.model.explanation import Explanation
    from mllkm_scale.model.serving.server import Server

__all__ = ["DirectModel", "Model"]


class Model(ModelParts):
    """A trained machine with s kernels over d features, for K = 1 machine (two classes) or one per class.

    Attributes
    ----------
    family : Family
    classes : array (c,)
        Labels in ascending order: integers, floats, booleans or text.
    anchors : array (s, d)
    gammas, kernel_scale : arrays (s,)
        `kernel_scale` is the normalisation; the coefficients contain it already.
    weights : array (s,) or (K, s)
        beta, shared by the classes, or one row per class.
    coef : array (K, s, d)
    local_coef : array (K, s)
    preprocessor : Preprocessor
    certificate : ModelRecord
    feature_names : tuple of str, optional
        The names of the features, or of the columns of the table that the model was trained on. Rows with names, such
        as data frames and data sets, are matched by name: their columns may have any order, and other columns are
        ignored. Rows without names are matched by position.
    calibration : Calibration, optional
        How scores become probabilities.
    encoding : Encoding, optional
        Turns the rows of a table into features; None if rows are numbers.
    profile : Profile, optional
        The distribution of the training rows, and how much each feature changes the scores there.
    reduction : Reduction, optional
        Turns rows with many columns, sparse or dense, into few features.

    Examples
    --------
    >>> from mllkm_scale.data import Preprocessor
    >>> from mllkm_scale.kernels.grid import Family
    >>> from mllkm_scale.model import ModelRecord
    >>> data = Dataset.from_arrays([[0.0], [1.0]], ["no", "yes"])
    >>> model = Model(
    ...     family=Family("linear"), classes=["no", "yes"], anchors=[[0.5]], gammas=[0.5], kernel_scale=[1.0],
    ...     weights=[1.0], coef=[[[2.0]]], local_coef=[[0.0]], preprocessor=Preprocessor.fit(data, "none"),
    ...     certificate=ModelRecord(1.0, 1.0, 0.0, 0.01, "converged", 2, 2, 0),
    ... )
    >>> model.decision_function([[0.5], [1.5], [-0.5]]).tolist()
    [0.0, 1.0, -1.0]
    >>> model.predict([[1.5], [-0.5]]).tolist()
    ['yes', 'no']
    """

    @property
    def form(self) -> Form:
        """The tables for evaluation, or the reason why there are none; made at the first access."""
        return additive_form(self)

    @property
    def blocks(self) -> BlockPlan:
        """The blocks in which rows are evaluated."""
        d, tables = self.anchors.shape[1], self.form.tables
        if tables is not None:
            return tables.blocks(self.preprocessor.width)
        return plan_blocks(self.n_kernels, self.preprocessor.width, d, self.family.componentwise)

    @property
    def row_work(self) -> float:
        """Approximate cost of a row in multiply-adds; a bump counts as twenty, and so does a lookup in a table."""
        (s, d), K, tables = self.anchors.shape, self.n_machines, self.form.tables
        prepared = self.preprocessor.n_columns * (1 if self.preprocessor.projection is None else d)
        prepared += 20 * self.preprocessor.n_lookups
        if tables is not None:
            return float(d * (20 + K * tables.degree) + prepared)
        return float(s * (20 * (d if self.family.componentwise else 1) + (1 + K) * d) + prepared)

    def direct(self) -> DirectModel:
        """The same machine, evaluated kernel by kernel and never by tables.

        Examples
        --------
        >>> from mllkm_scale import MLLKMClassifier
        >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], ["near", "near", "far", "far"]
        >>> model = MLLKMClassifier(componentwise=True).fit(X, y).model_
        >>> model.direct().predict([[1.0, 0.0]]).tolist(), model.direct().form.reason
        (['near'], 'the direct form was asked for')
        """
        return DirectModel(**{spec.name: getattr(self, spec.name) for spec in fields(self)})

    def server(self) -> Server:
        """This machine in a layout for single rows with low latency; see `Server`.

        This compiles its loops, or reads them from numba's cache, and makes the tables.

        Examples
        --------
        >>> from mllkm_scale import MLLKMClassifier
        >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], ["near", "near", "far", "far"]
        >>> server = MLLKMClassifier().fit(X, y).model_.server()
        >>> server.label([1.0, 0.0]), server.scores([1.0, 0.0]) > 0
        ('near', True)
        """
        from mllkm_scale.model.serving.server import Server

        return Server(self)

    @cached_property
    def feature_importances(self) -> Array:
        """How much each feature, or column of a table, changes the scores: (n_features_in,), summing to one.

        The importance of a feature is the mean absolute gradient of the scores along the feature over training rows,
        times the spread of the feature; `mllkm_scale.model.profile` has the formula. Columns made from one feature are
        changed together, and the importances of features made from one column of a table are added up. All are zero if
        no feature changes the scores. A model without a profile (from a stream, or from version 0.1.0) uses its anchors
        instead of the rows.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from mllkm_scale import MLLKMClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> found = MLLKMClassifier(n_jobs=1).fit(X, y).model_.feature_importances
        >>> round(float(found.sum()), 9), bool(found[2:].sum() > found[:2].sum())
        (1.0, True)
        """
        if self.reduction is not None:
            raise AttributeError("columns that a reduction mixes have no importances of their own: see `explain`")
        machine = self.machine
        found = importances(machine, machine.anchors) if machine.profile is None else machine.profile.importances
        if self.encoding is None:
            return found
        columns = np.repeat(np.arange(self.encoding.n_columns), self.encoding.widths)
        return np.bincount(columns, found, minlength=self.encoding.n_columns)

    def explain(self, x: ArrayLike | Mapping[str, Any]) -> Explanation:
        """What each kernel and each feature adds to the scores of one row; see `Explanation`.

        Parameters
        ----------
        x : array-like of shape (n_features_in,), mapping, pandas Series, or table of one row
            The row, as in `Server.scores`.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from mllkm_scale import MLLKMClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = MLLKMClassifier(n_jobs=1).fit(X, y).model_
        >>> found = model.explain(X[0])
        >>> bool(np.allclose(found.kernels.sum(axis=1), model.decision_function(X[:1])[0]))
        True
        """
        from mllkm_scale.model.explanation import explain_row

        return explain_row(self, x)

    def shape_function(self, feature: int, grid: ArrayLike) -> Array:
        """f_kl of a component-wise machine on a grid: (n,) for two classes and (n, K) otherwise.

        The machine is f_k(z) = sum_l f_kl(z_l) with the prepared row z, so these functions can be drawn as curves. They
        are evaluated by their formula, not by tables.

        Parameters
        ----------
        feature : int
            l, from 0: the number of the feature after scaling and projection.
        grid : array-like of shape (n,)
            Values of that feature after scaling and projection; ``anchors[:, feature]`` shows their range.

        Raises
        ------
        ParameterError
            If the kernels are global, or there is no such feature.

        Examples
        --------
        >>> import numpy as np
        >>> from mllkm_scale import MLLKMClassifier
        >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], ["near", "near", "far", "far"]
        >>> model = MLLKMClassifier(componentwise=True).fit(X, y).model_
        >>> Z = model.preprocessor.transform(np.array(X))
        >>> parts = [model.shape_function(l, Z[:, l]) for l in range(2)]
        >>> bool(np.allclose(sum(parts), model.decision_function(X)))
        True
        """
        return self.flat(shape_values(self, feature, grid))

    @cached_property
    def machine(self) -> Model:
        """The model without encoding or reduction, for rows of features; the model itself if it has neither."""
        if self.step is None:
            return self
        return self._with(encoding=None, reduction=None, feature_names=unique_names(self.step.feature_names))

    def behind(self, step: FirstStep) -> Model:
        """This machine with an encoding, for rows of a table, or with a reduction, for many columns."""
        if isinstance(step, Reduction):
            return self._with(reduction=step, feature_names=None)
        names = step.columns.names
        return self._with(encoding=step, feature_names=unique_names(names) if all(names) else None)

    def _with(self, **parts: Any) -> Model:
        return type(self)(**{spec.name: getattr(self, spec.name) for spec in fields(self)} | parts)

    def numeric(self, dataset: Dataset, *, by_position: bool = False) -> tuple[Model, Dataset]:
        """The machine without encoding, and the rows of a data set in the form that it needs; nothing is read yet.

        Columns are matched by name if both have names, unless `by_position` is set.

        Raises
        ------
        DataError
            If the data set has another number of columns, lacks a feature that the model knows by name, or has
            categories where the model was trained with numbers.
        """
        if not by_position:
            dataset, _ = match_dataset(self.features, dataset)
        if self.step is not None:
            return self.machine, self.step.dataset(dataset)
        self.require_features(dataset.n_features, dataset.name)
        if dataset.columns is not None:
            for j, column in enumerate(dataset.columns.columns):
                if column.kind == CATEGORY:
                    raise DataError(
                        f"{dataset.name}: column {j} {column.name!r} (0-based) is a category, but the model was trained"
                        " with numbers alone: give the columns that it was trained with"
                    )
        return self, dataset

    def _table(self, X: Any) -> Dataset:
        """Rows of a table in memory, or sparse rows, as a data set."""
        from mllkm_scale.data.tables.frames import rows_dataset

        if self.encoding is not None:
            return rows_dataset(X, self.encoding.columns)
        return Dataset.from_arrays(X)

    def decision_function(self, X: ArrayLike, *, n_jobs: int | None = None) -> Array:
        """f of every row: (n,) for two classes, positive for the second, and (n, K) otherwise.

        On one computer with one set of libraries, the bits of the value of a row depend neither on the other rows nor
        on `n_jobs`: rows are evaluated with one BLAS thread in blocks of a fixed height, and the last block is filled
        with zeros. The position in a block does not matter, because products of BLAS have this property at these
        heights; tests check it, but no standard guarantees it. Between processors or libraries, the last bits may
        differ. Values from tables may differ by the error of the tables.

        Component-wise models with many kernels are evaluated by tables with an error of at most 1e-6. The first call
        makes them, and `form` holds them and their bound. `direct` returns a model that is evaluated exactly.

        Parameters
        ----------
        X : array-like of shape (n, n_features_in), or data frame
            The columns of a data frame are matched by name, if the model knows names. A model that was trained on a
            table takes a table of pandas, polars or Arrow, or rows of values. For a collection of dask or xarray, the
            result is a lazy collection, and `n_jobs` has no effect.
        n_jobs : int, optional
            Threads; -1 for one per core.

        Raises
        ------
        DataError
            If X has another number of columns, lacks features that the model knows by name, or has NaN or infinity; the
            message names row and column.
        """
        if is_collection(X):
            return self._lazily("decision_function", X)
        rows = self.features.of_table(X)
        if self.step is None and not hasattr(rows, "toarray"):
            return decide(self, Rows.of(rows), n_jobs)
        return np.concatenate([f for _, f in self.decision_chunks(self._table(rows), n_jobs=n_jobs)])

    def predict(self, X: ArrayLike, *, n_jobs: int | None = None) -> Array:
        """The label of every row, shape (n,), by the sign or the largest value of `decision_function`.

        Global gaussian kernels are evaluated in single precision with a bound on the error, and again in double
        precision if the bound leaves the label open.
        """
        if is_collection(X):
            return self._lazily("predict", X)
        rows = self.features.of_table(X)
        if self.step is None and not hasattr(rows, "toarray"):
            labels: Array = self.classes[label_codes(self, Rows.of(rows), n_jobs)]
            return labels
        return np.concatenate([labels for _, labels in self.predict_chunks(self._table(rows), n_jobs=n_jobs)])

    def predict_proba(self, X: ArrayLike, *, n_jobs: int | None = None) -> Array:
        """The probability of each class, (n, c): `calibration` applied to `decision_function`.

        Labels follow from the decision function. With the method "temperature", the label is always the class of the
        largest probability. With "isotonic" (two classes), it may differ for rows near the boundary.

        Raises
        ------
        ParameterError
            If the model has no calibration.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from mllkm_scale import MLLKMClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> p = MLLKMClassifier(n_jobs=1).fit(X, y).model_.predict_proba(X)
        >>> p.shape, p.argmax(axis=1)[[0, 60, 120]].tolist()
        ((150, 3), [0, 1, 2])
        """
        if is_collection(X):
            return self._lazily("predict_proba", X)
        calibration = self.require_calibration()
        return calibration.probabilities(self.decision_function(X, n_jobs=n_jobs))

    def predict_log_proba(self, X: ArrayLike, *, n_jobs: int | None = None) -> Array:
        """The logarithm of `predict_proba`, also exact for tiny probabilities."""
        if is_collection(X):
            return self._lazily("predict_log_proba", X)
        calibration = self.require_calibration()
        return calibration.log_probabilities(self.decision_function(X, n_jobs=n_jobs))

    def _lazily(self, method: str, X: Any) -> Any:
        from mllkm_scale.model.inference.lazy import lazily

        return lazily(self, method, X)

    def decision_chunks(self, dataset: Dataset, *, n_jobs: int | None = None) -> Iterator[tuple[int, Array]]:
        """First row and decision function of each chunk of a data set; only one chunk is in memory."""
        machine, rows = self.numeric(dataset)
        for start, chunk in rows.chunks():
            yield start, decide(machine, Rows(chunk, start, rows.name), n_jobs)

    def predict_chunks(self, dataset: Dataset, *, n_jobs: int | None = None) -> Iterator[tuple[int, Array]]:
        """First row and labels of each chunk of a data set; only one chunk is in memory."""
        machine, rows = self.numeric(dataset)
        for start, chunk in rows.chunks():
            yield start, self.classes[label_codes(machine, Rows(chunk, start, rows.name), n_jobs)]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model file; see `save_model`."""
        from mllkm_scale.model.files import save_model

        save_model(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Model:
        """Read a model file; see `load_model`."""
        from mllkm_scale.model.files import load_model

        return load_model(path)

    @cached_property
    def predictors(self) -> list[GlobalPredictors]:
        """Global kernels, in the layout for evaluation."""
        return global_predictors(self)

    @cached_property
    def single_precision(self) -> SinglePrecision | None:
        """The machine in single precision with a bound on its error, for the kernels that have one."""
        return single_precision(self)


class DirectModel(Model):
    """A model that is always evaluated kernel by kernel; its file is that of the model, and loads as one."""

    @property
    def form(self) -> Form:
        return Form(None, "the direct form was asked for")

    def direct(self) -> DirectModel:
        return self

    @staticmethod
    def load(path: str | os.PathLike[str]) -> DirectModel:
        """Read a model file for the direct form, as workers do that receive this model."""
        return Model.load(path).direct()
