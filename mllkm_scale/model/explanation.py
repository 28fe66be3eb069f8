"""Explanation of the scores of a row: the exact contributions of kernels and features.

    global:          f_k(z) = sum_m sum_l h_m (z_l - c_ml) w_kml  +  sum_m h_m l_km
    component-wise:  f_k(z) = sum_m sum_l h_ml ((z_l - c_ml) w_kml + l_km / d)

Both are sums over a table of kernels and features. Its sums over the features are the contributions of the kernels, and
its sums over the kernels are the contributions of the features. The second term of global kernels belongs to no
feature. It is the constant: the score of the anchors near the row. A feature contributes if the row differs from these
anchors in it.

Contributions of columns that are made of one feature (standard and quantile), and of features that are made of one
column of a table, are added up. A projection z = M (u - mean) is reversed for global kernels: (z_l - c_ml) w_kml summed
over l is (u - v_m) M' w_km, where v_m is the point nearest to the mean that is projected to the anchor; the remainder
belongs to the constant. Bumps of single components cannot be divided among the features of the components, so a
component-wise machine with a projection is explained by components. With scaling to unit norm, the value of a feature
is that after the division.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.checks import require_finite
from mllkm_scale.data.tables.frames import rows_dataset
from mllkm_scale.data.tables.single_row import encoded_row
from mllkm_scale.errors import DataError
from mllkm_scale.kernels.maps import bumps
from mllkm_scale.model.inference.blocks import Rows
from mllkm_scale.printable import printable

if TYPE_CHECKING:
    from mllkm_scale.model.model import Model

__all__ = ["Explanation", "explain_row", "explained"]

MOST = 10  # features and kernels that are shown
NAME, VALUE = 32, 20  # letters of names and values


@dataclass(frozen=True, eq=False)
class Explanation:
    """The parts of the scores of one row; K is 1 for two classes, and otherwise the number of classes.

    Attributes
    ----------
    label : object
        The predicted class.
    classes : list
    scores : array (K,)
        `contributions.sum(axis=1) + constants`, and `kernels.sum(axis=1)`, are these up to rounding.
    probabilities : array (c,) or None
        None if the model has no calibration.
    features : tuple of str
        Names of the features, or of the columns of a table; names of components for a component-wise machine behind a
        projection.
    values : tuple of str
        The values of the row, as text.
    contributions : array (K, features)
        The contribution of each feature to each score.
    constants : array (K,)
        The part that belongs to no feature.
    kernels : array (K, s)
        The contribution of each kernel to each score.
    closeness : array (s,)
        The bump of each kernel at the row: 1 at its anchor, and less farther away; the mean over components for
        component-wise kernels.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mllkm_scale import MLLKMClassifier
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> found = MLLKMClassifier(n_jobs=1).fit(X, y).explain(X.iloc[0])
    >>> found.label, len(found.features)
    (0, 4)
    >>> bool(np.allclose(found.contributions.sum(axis=1) + found.constants, found.scores))
    True
    """

    label: Any
    classes: list[Any]
    scores: Array
    probabilities: Array | None
    features: tuple[str, ...]
    values: tuple[str, ...]
    contributions: Array
    constants: Array
    kernels: Array
    closeness: Array

    @property
    def machine(self) -> int:
        """The number of the score of the label among the K scores; 0 if there is only one."""
        return 0 if len(self.scores) == 1 else self.classes.index(self.label)

    def strongest(self, most: int = MOST) -> list[tuple[str, str, float]]:
        """Name, value and contribution of the features with the largest contributions to the score of the label, by
        absolute value."""
        added = self.contributions[self.machine]
        order = np.argsort(-np.abs(added), kind="stable")[:most]
        return [(self.features[j], self.values[j], float(added[j])) for j in order if added[j]]

    def heaviest(self, most: int = MOST) -> list[tuple[int, float, float]]:
        """Number, closeness and contribution of the kernels with the largest contributions to the score of the label,
        by absolute value."""
        added = self.kernels[self.machine]
        order = np.argsort(-np.abs(added), kind="stable")[:most]
        return [(int(m), float(self.closeness[m]), float(added[m])) for m in order if added[m]]

    def as_dict(self) -> dict[str, Any]:
        """The explanation as plain data, for JSON."""
        return {
            "label": self.label,
            "classes": self.classes,
            "scores": self.scores.tolist(),
            "probabilities": None if self.probabilities is None else self.probabilities.tolist(),
            "features": [
                {"name": name, "value": value, "contributions": added}
                for name, value, added in zip(self.features, self.values, self.contributions.T.tolist(), strict=True)
            ],
            "constants": self.constants.tolist(),
            "kernels": [
                {"kernel": m, "closeness": float(self.closeness[m]), "contributions": self.kernels[:, m].tolist()}
                for m in np.flatnonzero(self.kernels.any(axis=0)).tolist()
            ],
        }

    @property
    def title(self) -> str:
        """The label with its score and probability, on one line."""
        sure = "" if self.probabilities is None else f", probability {self._probability:.1%}"
        return f"{printable(self.label, longest=NAME)}, score {self.scores[self.machine]:+.4g}{sure}"

    @property
    def meaning(self) -> str:
        """The meaning of a contribution to the score."""
        if len(self.scores) == 1:
            against, speaks_for = (printable(label, longest=NAME) for label in self.classes)
            return f"above 0 speaks for {speaks_for}, below for {against}"
        return f"what is added to the score of {printable(self.label, longest=NAME)}; the largest of the scores wins"

    @property
    def _probability(self) -> float:
        assert self.probabilities is not None
        return float(self.probabilities[self.classes.index(self.label)])

    def __str__(self) -> str:
        k, shown = self.machine, self.strongest()
        names = [printable(name, longest=NAME) for name, _, _ in shown]
        width = max([len("constant"), *map(len, names)])
        lines = [self.title, f"({self.meaning})"]
        lines += [
            f"  {name:<{width}}  {printable(value, longest=VALUE):>{VALUE}}  {added:>+10.4g}"
            for name, (_, value, added) in zip(names, shown, strict=True)
        ]
        rest = float(self.contributions[k].sum()) - sum(added for _, _, added in shown)
        left_out = int(np.count_nonzero(self.contributions[k])) - len(shown)
        if left_out:
            lines.append(f"  {f'{left_out:,} more':<{width}}  {'':>{VALUE}}  {rest:>+10.4g}")
        lines.append(f"  {'constant':<{width}}  {'':>{VALUE}}  {self.constants[k]:>+10.4g}")
        kernels = ", ".join(f"{m} {added:+.4g}" for m, _, added in self.heaviest(5))
        counted = int(np.count_nonzero(self.kernels[k]))
        lines.append(f"  of {len(self.closeness):,} kernels {counted:,} count here, these most: {kernels or 'none'}")
        return "\n".join(lines)


def explain_row(model: Model, x: Any) -> Explanation:
    """Explain one row: values in order, a mapping or pandas Series by name, or a table of one row."""
    rows = _feature_rows(model, x)
    if len(rows) != 1:
        raise DataError(f"x has {len(rows)} rows: explain one at a time, such as X[:1]")
    return explained(model, rows)[0]


def explained(model: Model, X: Array) -> list[Explanation]:
    """The explanations of rows (n, p) of numbers, the features that `Model.numeric` makes."""
    require_finite(X, 0, "x", "predict")
    machine = model.machine
    Z = machine.preprocessor.transform(X, np.float64)
    U = machine.preprocessor.scaling.apply(X)
    return [_explain(model, *row) for row in zip(X, U, Z, strict=True)]


def _feature_rows(model: Model, x: Any) -> Array:
    named = hasattr(x, "to_dict") and hasattr(x, "index") and not hasattr(x, "columns")  # a Series
    if named and model.feature_names is not None and all(isinstance(name, str) for name in x.index):
        x = x.to_dict()
    if hasattr(x, "columns") or (not isinstance(x, Mapping) and np.ndim(x) == 2):
        table = model.features.of_table(x)
        if model.reduction is not None:
            return model.reduction.apply(table)
        if model.encoding is None:
            rows = Rows.of(table).X
            model.require_features(rows.shape[1], "x")
            return rows
        _, data = model.numeric(rows_dataset(table, model.encoding.columns))
        return data.part(0, data.n_rows)
    values = model.features.of_row(x) if isinstance(x, Mapping) else x
    if model.encoding is not None:
        return encoded_row(model.encoding, values)
    row = np.asarray(values)
    if row.ndim != 1:
        raise DataError(f"x has shape {row.shape}: give one row of {model.n_features_in} numbers")
    if model.reduction is not None:
        return model.reduction.apply(row[None, :])
    rows = Rows.of(row[None, :]).X
    model.require_features(rows.shape[1], "x")
    return rows


def _explain(model: Model, x: Array, u: Array, z: Array) -> Explanation:
    machine = model.machine
    kernels, contributions, constants, closeness = _added(machine, u, z)
    scores = kernels.sum(axis=1)
    label = model.classes[model.codes(machine.flat(scores[None, :]))[0]].item()
    calibration = model.calibration
    if machine.family.componentwise and machine.preprocessor.projection is not None:
        names, values = _components(machine, z)
    else:
        columns = machine.preprocessor.scaling.columns
        if columns is not None:
            contributions = _summed(contributions, columns, machine.n_features_in)
        names = machine.feature_names or tuple(f"feature {j}" for j in range(len(x)))
        values = tuple(f"{value:.6g}" for value in x)
        if model.reduction is not None:
            names = model.reduction.feature_names
        if model.encoding is not None:
            d = model.encoding.n_columns
            contributions = _summed(contributions, np.repeat(np.arange(d), model.encoding.widths), d)
            names, values = model.encoding.columns.names, model.encoding.shown(x)
    return Explanation(
        label,
        model.classes.tolist(),
        scores,
        None if calibration is None else calibration.probabilities(machine.flat(scores[None, :]))[0],
        names,
        values,
        contributions,
        constants,
        kernels,
        closeness,
    )


def _added(machine: Model, u: Array, z: Array) -> tuple[Array, Array, Array, Array]:
    """The contributions of kernels (K, s), columns (K, p) and constants (K,), and the closeness (s,) of the kernels."""
    offsets, projection = z - machine.anchors, machine.preprocessor.projection
    K, (s, d) = machine.n_machines, offsets.shape
    kernels = np.empty((K, s))
    if machine.family.componentwise:
        H = bumps(machine.family.map, offsets * offsets, machine.gammas[:, None])
        contributions = np.empty((K, d))
        for k in range(K):
            table = H * (offsets * machine.coef[k] + machine.local_coef[k][:, None] / d)
            kernels[k], contributions[k] = table.sum(axis=1), table.sum(axis=0)
        return kernels, contributions, np.zeros(K), H.mean(axis=1)
    h = bumps(machine.family.map, np.einsum("sd,sd->s", offsets, offsets), machine.gammas)
    apart, back = offsets, None
    if projection is not None:
        apart, back = u - projection.invert(machine.anchors), projection.matrix
    contributions, constants = np.empty((K, apart.shape[1])), np.empty(K)
    for k, (coef, local) in enumerate(zip(machine.coef, machine.local_coef, strict=True)):
        kernels[k] = h * (np.einsum("sd,sd->s", offsets, coef) + local)
        table = h[:, None] * apart * (coef if back is None else coef @ back)
        contributions[k] = table.sum(axis=0)
        beyond = 0.0 if back is None else np.einsum("sd,sd->s", offsets - apart @ back.T, coef)
        constants[k] = h @ (local + beyond)
    return kernels, contributions, constants, h


def _components(machine: Model, z: Array) -> tuple[tuple[str, ...], tuple[str, ...]]:
    projection = machine.preprocessor.projection
    kind = "principal component" if projection is not None and projection.orthonormal else "direction"
    return tuple(f"{kind} {l + 1}" for l in range(len(z))), tuple(f"{value:.6g}" for value in z)


def _summed(contributions: Array, groups: Array, n_groups: int) -> Array:
    """Columns (K, p) added up by group, (K, groups)."""
    return np.array([np.bincount(groups, row, minlength=n_groups) for row in contributions])
