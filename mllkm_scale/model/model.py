"""The trained machine, evaluated explicitly: no training sample but the anchors is needed.

    f_k(x) = sum_m h_m(z) (<z - c_m, coef_km> + local_coef_km),    z = preprocessor(x)

component-wise with one h per component. Two classes have one f, whose sign decides; more have one f a class,
of which the largest decides. Component-wise models are evaluated by tables where these pay (`additive`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.preprocessing import Preprocessor
from mllkm_scale.data.sources import plain_text
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import check_map
from mllkm_scale.kernels.predictors import GlobalPredictors
from mllkm_scale.model.additive_form import Form, additive_form
from mllkm_scale.model.additive_shapes import shape_values
from mllkm_scale.model.blocks import BlockPlan, Rows, plan_blocks
from mllkm_scale.model.labels import SinglePrecision, label_codes, single_precision
from mllkm_scale.model.record import ModelRecord

if TYPE_CHECKING:
    from mllkm_scale.model.additive import AdditiveModel

__all__ = ["DirectModel", "Model"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Model:
    """A trained machine with s kernels over d features, for K = 1 machine (two classes) or one a class.

    Attributes
    ----------
    family : Family
    classes : array (c,)
        Labels in ascending order: integers, floats, booleans or text.
    anchors : array (s, d)
    gammas, kernel_scale : arrays (s,)
        `kernel_scale` is the normalisation; the coefficients contain it already.
    weights : array (s,) or (K, s)
        beta, shared by the classes or one row a class.
    coef : array (K, s, d)
    local_coef : array (K, s)
    preprocessor : Preprocessor
    certificate : ModelRecord

    Examples
    --------
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

    family: Family
    classes: Array
    anchors: Array
    gammas: Array
    kernel_scale: Array
    weights: Array
    coef: Array
    local_coef: Array
    preprocessor: Preprocessor
    certificate: ModelRecord

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", _class_labels(self.classes))
        # C order throughout: a product has other bits if a factor lies in memory otherwise.
        for name in ("anchors", "gammas", "kernel_scale", "weights", "coef", "local_coef"):
            values = np.asarray(getattr(self, name))
            if values.dtype.kind not in "fiu":
                raise ParameterError(f"{name} has type {values.dtype}: give real numbers")
            object.__setattr__(self, name, np.ascontiguousarray(values, dtype=np.float64))
        self._require_agreement()

    @property
    def n_kernels(self) -> int:
        """s, the number of kernels."""
        return len(self.gammas)

    @property
    def n_machines(self) -> int:
        """K: 1 for two classes, otherwise one a class."""
        return 1 if len(self.classes) == 2 else len(self.classes)

    @property
    def n_features_in(self) -> int:
        """Features of a row as it is given."""
        return self.preprocessor.n_features_in

    @property
    def form(self) -> Form:
        """By which tables rows are evaluated, or why by none; tables are made when this is first asked for."""
        return additive_form(self)

    @property
    def blocks(self) -> BlockPlan:
        """In which blocks rows are evaluated."""
        d, tables = self.anchors.shape[1], self.form.tables
        if tables is not None:
            return tables.blocks(self.n_features_in)
        return plan_blocks(self.n_kernels, self.n_features_in, d, self.family.componentwise)

    def direct(self) -> DirectModel:
        """The same machine, always evaluated kernel by kernel and never by tables.

        Examples
        --------
        >>> from mllkm_scale import MLLKMClassifier
        >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], ["near", "near", "far", "far"]
        >>> model = MLLKMClassifier(componentwise=True).fit(X, y).model_
        >>> model.direct().predict([[1.0, 0.0]]).tolist(), model.direct().form.reason
        (['near'], 'the direct form was asked for')
        """
        return DirectModel(**{spec.name: getattr(self, spec.name) for spec in fields(self)})

    def shape_function(self, feature: int, grid: ArrayLike) -> Array:
        """f_kl of a component-wise machine on a grid: (n,) for two classes and (n, K) otherwise.

        The machine is f_k(z) = sum_l f_kl(z_l), z the prepared row, so that these are curves to be drawn. They are
        evaluated by their formula, not by tables.

        Parameters
        ----------
        feature : int
            l, from 0, of the features as the kernels see them: after scaling and projection.
        grid : array-like of shape (n,)
            Values of that feature, after scaling and projection too; ``anchors[:, feature]`` shows their range.

        Raises
        ------
        ParameterError
            If the kernels are global, or there is no such feature.

        Examples
        --------
        >>> from mllkm_scale import MLLKMClassifier
        >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], ["near", "near", "far", "far"]
        >>> model = MLLKMClassifier(componentwise=True).fit(X, y).model_
        >>> Z = model.preprocessor.transform(np.array(X))
        >>> parts = [model.shape_function(l, Z[:, l]) for l in range(2)]
        >>> bool(np.allclose(sum(parts), model.decision_function(X)))
        True
        """
        return self._flat(shape_values(self, feature, grid))

    def decision_function(self, X: ArrayLike, *, n_jobs: int | None = None) -> Array:
        """f of every row: (n,) for two classes, positive for the second, and (n, K) otherwise.

        On one machine with one set of libraries, the bits of a row's value depend neither on the rows it is
        asked for with nor on `n_jobs`: rows are evaluated in blocks of a fixed height, the last one filled
        up with zeros, and with one BLAS thread. That the place in a block does not matter is how the products
        of BLAS behave at such heights, and is tested; no standard promises it. Between processors or
        libraries the last bits differ; by tables, the values may differ as far as the tables may be off.

        Component-wise models with many kernels are evaluated by tables that are off by at most 1e-6 (`form` has
        them and their bound) and are made in the first call; `direct` gives a model that is evaluated exactly.

        Parameters
        ----------
        X : array-like of shape (n, n_features_in)
        n_jobs : int, optional
            Threads; -1 for one a core.

        Raises
        ------
        DataError
            If X has another number of columns, or NaN or infinity, of which row and column are named.
        """
        return self.decide(Rows(_as_matrix(X)), n_jobs)

    def predict(self, X: ArrayLike, *, n_jobs: int | None = None) -> Array:
        """The label of every row, shape (n,), as `decision_function` decides.

        Global gaussian kernels are evaluated in single precision with a bound on the error, and again in double
        where the bound leaves a doubt.
        """
        labels: Array = self.classes[label_codes(self, Rows(_as_matrix(X)), n_jobs)]
        return labels

    def decision_chunks(self, dataset: Dataset, *, n_jobs: int | None = None) -> Iterator[tuple[int, Array]]:
        """First row and decision function of each chunk of a data set; only one chunk is in memory."""
        self.require_features(dataset.n_features, dataset.name)
        for start, chunk in dataset.chunks():
            yield start, self.decide(Rows(chunk, start, dataset.name), n_jobs)

    def predict_chunks(self, dataset: Dataset, *, n_jobs: int | None = None) -> Iterator[tuple[int, Array]]:
        """First row and labels of each chunk of a data set; only one chunk is in memory."""
        self.require_features(dataset.n_features, dataset.name)
        for start, chunk in dataset.chunks():
            yield start, self.classes[label_codes(self, Rows(chunk, start, dataset.name), n_jobs)]

    def codes(self, scores: Array) -> NDArray[np.int64]:
        """Position among the classes that each row of a decision function decides for."""
        chosen = scores > 0 if scores.ndim == 1 else np.argmax(scores, axis=1)
        return chosen.astype(np.int64)

    def require_features(self, n_features: int, name: str) -> None:
        """Refuse data of another width than the model was trained with."""
        if n_features != self.n_features_in:
            raise DataError(
                f"{name} has {n_features} features per row, but the model was trained with"
                f" {self.n_features_in}: give the same features in the same order"
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model file; see `save_model`."""
        from mllkm_scale.model.files import save_model

        save_model(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Model:
        """Read a model file; see `load_model`."""
        from mllkm_scale.model.files import load_model

        return load_model(path)

    def _flat(self, scores: Array) -> Array:
        return scores[:, 0] if self.n_machines == 1 else scores

    def decide(self, rows: Rows, n_jobs: int | None = None) -> Array:
        """The decision function of rows that are checked as they are evaluated."""
        self.require_features(rows.X.shape[1], rows.name)
        tables = self.form.tables
        F = np.empty((len(rows), self.n_machines))

        def evaluate(at: slice, block: Array) -> None:
            F[at] = self._decide(block, tables)[: at.stop - at.start]

        rows.in_blocks(self.blocks.rows, n_jobs, evaluate)
        broken = np.flatnonzero(~np.isfinite(F).all(axis=1))
        if len(broken):
            raise DataError(
                f"{rows.name} has values too large to compute with at row {rows.number(broken[0])} (0-based):"
                " give them in the units of the training data"
            )
        return self._flat(F)

    def _decide(self, block: Array, tables: AdditiveModel | None) -> Array:
        # Overflow ends as a value that is not finite, whose row is named.
        with np.errstate(over="ignore", invalid="ignore"):
            Z = self.preprocessor.transform(block, np.float64)
            if tables is not None:
                return tables.decide(Z)
            if not self.family.componentwise:
                return sum((part.decide(Z) for part in self._predictors), np.zeros((len(block), self.n_machines)))
            F = np.zeros((len(block), self.n_machines))
            for group in self._groups:
                kernels = self.family.kernels(self.anchors[group], self.gammas[group])
                F += kernels.decide(Z, self.coef[:, group], self.local_coef[:, group])
        return F

    @property
    def _groups(self) -> list[slice]:
        """Kernels that are evaluated at a time."""
        return [slice(i, i + self.blocks.kernels) for i in range(0, self.n_kernels, self.blocks.kernels)]

    @cached_property
    def _predictors(self) -> list[GlobalPredictors]:
        """The groups of global kernels, laid out for evaluation."""
        map, coef, local_coef = self.family.map, self.coef, self.local_coef
        return [
            GlobalPredictors.of(map, self.anchors[g], self.gammas[g], coef[:, g], local_coef[:, g])
            for g in self._groups
        ]

    @cached_property
    def single_precision(self) -> SinglePrecision | None:
        """The machine in single precision with a bound on its error, for the kernels that have one."""
        return single_precision(self)

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: what was made of them is made again where it is needed."""
        return {spec.name: getattr(self, spec.name) for spec in fields(self)}

    def _require_agreement(self) -> None:
        family = self.family
        check_map(family.map)
        if not 0 <= family.local_bias < np.inf:
            raise ParameterError(f"local_bias is {family.local_bias}: give a number that is not negative")
        s, d = self.gammas.size, self.preprocessor.n_features_out
        K = self.n_machines
        needed = {
            "anchors": (s, d),
            "gammas": (s,),
            "kernel_scale": (s,),
            "weights": (K, s) if self.weights.ndim == 2 else (s,),
            "coef": (K, s, d),
            "local_coef": (K, s),
        }
        for name, shape in needed.items():
            values = getattr(self, name)
            if values.shape != shape or not values.size:
                raise ParameterError(
                    f"{name} has shape {values.shape}, but {len(self.classes)} classes, {s} kernels and {d}"
                    f" features need {shape}: give arrays that agree"
                )
            if not np.isfinite(values).all():
                raise ParameterError(f"{name} holds NaN or infinity: give finite numbers")
            if name in ("gammas", "kernel_scale", "weights") and values.min() < 0:
                raise ParameterError(f"{name} holds {values.min()}: give numbers that are not negative")


class DirectModel(Model):
    """A model that is always evaluated kernel by kernel; saved, it is the file of the model, and loads as one."""

    @property
    def form(self) -> Form:
        return Form(None, "the direct form was asked for")

    def direct(self) -> DirectModel:
        return self

    @staticmethod
    def load(path: str | os.PathLike[str]) -> DirectModel:
        """Read a model file for the direct form; workers that are sent this model do."""
        return Model.load(path).direct()


def _class_labels(classes: ArrayLike) -> Array:
    labels = np.ascontiguousarray(plain_text(np.asarray(classes), "classes"))
    if labels.ndim != 1 or labels.dtype.kind not in "biufU" or len(labels) < 2:
        raise ParameterError(
            f"classes have shape {labels.shape} and type {labels.dtype}: give at least two numbers or texts"
        )
    if not (labels[:-1] < labels[1:]).all():
        raise ParameterError("classes are not in ascending order, each once: sort them, as encode_labels does")
    return labels


def _as_matrix(X: ArrayLike) -> Array:
    if hasattr(X, "toarray"):
        raise DataError("X is sparse, which is not supported: give a dense array, such as X.toarray()")
    values = np.asarray(X)
    if values.ndim != 2:
        raise DataError(f"X has shape {values.shape}: it must have two axes, one row per sample")
    if values.dtype.kind not in "fiub":
        raise DataError(f"X has type {values.dtype}: features must be real numbers; encode text as numbers")
    return values
