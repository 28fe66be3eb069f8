"""The description of a model, as text and as JSON."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mllkm_scale.errors import ModelFileError
from mllkm_scale.model.calibration import Calibration
from mllkm_scale.model.describe_text import lines
from mllkm_scale.model.files import model_arrays, model_checksum
from mllkm_scale.model.model import Model
from mllkm_scale.model.record import ModelRecord

__all__ = ["Description", "GammaShare", "HeavyKernel", "TableFacts", "describe", "direct_cost"]


@dataclass(frozen=True)
class GammaShare:
    """The kernels of one gamma: their number, their weight, and its share of the total."""

    gamma: float
    count: int
    weight: float
    share: float


@dataclass(frozen=True)
class HeavyKernel:
    """A kernel by its position in the model; `norm` is that of its coefficients over all classes."""

    position: int
    weight: float
    share: float
    gamma: float
    norm: float


@dataclass(frozen=True)
class TableFacts:
    """The tables of a component-wise model: the error of any f is at most `deviation`.

    A row costs `lookups` of cells, and `multiply_adds`.
    """

    cells: int
    bytes: int
    deviation: float
    lookups: int
    multiply_adds: int


@dataclass(frozen=True)
class Description:
    """A model in numbers.

    `file_bytes` is None if no file was named. `memory_bytes` is the size of the arrays, and `block_bytes` the
    additional memory of a thread that predicts. A predicted row costs `multiply_adds`, and `bumps` values of the map h;
    if there are `tables`, these are the costs of the direct form, and otherwise `no_tables` says why there are none.
    `feature_names` is None if the model knows its features only by their order, and `calibration` is None if it gives
    no probabilities.
    """

    map: str
    componentwise: bool
    local_bias: float
    n_kernels: int
    n_features_in: int
    n_features_out: int
    classes: tuple[Any, ...]
    shared_weights: bool
    preprocessing: str
    certificate: ModelRecord
    gammas: tuple[GammaShare, ...]
    heaviest: tuple[HeavyKernel, ...]
    checksum: str
    file_bytes: int | None
    memory_bytes: int
    block_bytes: int
    multiply_adds: int
    bumps: int
    tables: TableFacts | None
    no_tables: str
    feature_names: tuple[str, ...] | None = None
    calibration: Calibration | None = None

    @property
    def family(self) -> str:
        """The family in words, such as ``gaussian, component-wise, local bias 1``."""
        kind = "component-wise" if self.componentwise else "global"
        return f"{self.map}, {kind}, " + (f"local bias {self.local_bias:g}" if self.local_bias else "no local bias")

    def as_dict(self) -> dict[str, Any]:
        """The description as plain data, for JSON."""
        return asdict(self) | {"classes": list(self.classes), "family": self.family}

    def as_text(self) -> str:
        """The description as text."""
        return "\n".join(lines(self))


def describe(model: Model, *, path: str | os.PathLike[str] | None = None, heaviest: int = 10) -> Description:
    """Describe a model.

    Parameters
    ----------
    model : Model
    path : path, optional
        Its file, whose size is part of the description.
    heaviest : int
        Number of kernels with the largest weights to list.

    Examples
    --------
    >>> from mllkm_scale import MLLKMClassifier
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], ["near", "near", "far", "far"]
    >>> facts = describe(MLLKMClassifier(map="squared").fit(X, y).model_)
    >>> facts.family.split(",")[0], facts.preprocessing, facts.classes
    ('squared', 'standard scaling', ('far', 'near'))
    """
    s, d = model.anchors.shape
    d_in = model.n_features_in
    componentwise = model.family.componentwise
    multiply_adds, bumps = direct_cost(model)
    return Description(
        map=model.family.map,
        componentwise=componentwise,
        local_bias=model.family.local_bias,
        n_kernels=s,
        n_features_in=d_in,
        n_features_out=d,
        classes=tuple(model.classes.tolist()),
        shared_weights=model.weights.ndim == 1,
        preprocessing=_preprocessing(model),
        certificate=model.certificate,
        gammas=_gamma_shares(model),
        heaviest=_heaviest(model, heaviest),
        checksum=model_checksum(model),
        file_bytes=None if path is None else _file_bytes(Path(path)),
        memory_bytes=sum(values.nbytes for values in model_arrays(model).values()),
        block_bytes=model.blocks.block_bytes,
        multiply_adds=multiply_adds,
        bumps=bumps,
        tables=_table_facts(model, _preparing_cost(model)),
        no_tables=model.form.reason,
        feature_names=model.feature_names,
        calibration=model.calibration,
    )


def direct_cost(model: Model) -> tuple[int, int]:
    """Multiply-adds, and values of the map h, per row if every kernel is evaluated."""
    s, d = model.anchors.shape
    componentwise = model.family.componentwise
    # Distances, or squared offsets and features; then the coefficients of every machine.
    products = s * d * (2 if componentwise else 1) + model.n_machines * s * (d + 1)
    return products + _preparing_cost(model), s * d if componentwise else s


def _preparing_cost(model: Model) -> int:
    """Multiply-adds to prepare a row; a lookup of a quantile column counts as one."""
    prepared, p = model.preprocessor, model.preprocessor.n_columns
    return p + prepared.n_lookups + (0 if prepared.projection is None else p * model.anchors.shape[1])


def _table_facts(model: Model, prepared: int) -> TableFacts | None:
    tables = model.form.tables
    if tables is None:
        return None
    products = tables.n_features * (1 + tables.n_machines * tables.degree)
    return TableFacts(tables.cells, tables.bytes, tables.deviation, tables.n_features, products + prepared)


def _total_weights(model: Model) -> np.ndarray[Any, np.dtype[np.float64]]:
    totals: np.ndarray[Any, np.dtype[np.float64]] = np.atleast_2d(model.weights).sum(axis=0)
    return totals


def _gamma_shares(model: Model) -> tuple[GammaShare, ...]:
    weights = _total_weights(model)
    gammas, places, counts = np.unique(model.gammas, return_inverse=True, return_counts=True)
    sums = np.bincount(places, weights, minlength=len(gammas))
    total = weights.sum() or 1.0
    return tuple(
        GammaShare(float(gamma), int(count), float(weight), float(weight / total))
        for gamma, count, weight in zip(gammas, counts, sums, strict=True)
    )


def _heaviest(model: Model, number: int) -> tuple[HeavyKernel, ...]:
    weights = _total_weights(model)
    total = weights.sum() or 1.0
    norms = np.sqrt(np.einsum("ksd,ksd->s", model.coef, model.coef))
    order = np.argsort(-weights, kind="stable")[: max(0, number)]
    return tuple(
        HeavyKernel(int(m), float(weights[m]), float(weights[m] / total), float(model.gammas[m]), float(norms[m]))
        for m in order
    )


def _preprocessing(model: Model) -> str:
    prepared, encoding = model.preprocessor, model.encoding
    scaling, projection = prepared.scaling.kind, prepared.projection
    text = "no scaling" if scaling == "none" else f"{scaling} scaling"
    if encoding is not None:
        text = f"{encoding.n_columns} columns of a table as {encoding.n_features} features, {text}"
    if model.reduction is not None:
        text = f"{model.reduction.describe()}, {text}"
    columns = model.preprocessor.scaling.columns
    if columns is not None:
        quantile = model.preprocessor.n_lookups
        told = f"{len(columns)} columns of {len(np.unique(columns))} of {prepared.n_features_in} features"
        text += f" ({told}, {quantile} of them quantiles)" if quantile else f" ({told})"
    if projection is None:
        return text
    if not projection.orthonormal:
        return f"{text}, mapped to {len(projection.variances)} features"
    kept = f"{len(projection.variances)} principal components of {prepared.n_features_in} features"
    return f"{text}, {kept}, whitened" if projection.whiten else f"{text}, {kept}"


def _file_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read ({error.strerror}): check the path") from error
