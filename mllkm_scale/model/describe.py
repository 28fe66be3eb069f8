"""What a model is, in numbers: for a person as text, for a program as JSON."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mllkm_scale.errors import ModelFileError
from mllkm_scale.model.files import model_arrays, model_checksum
from mllkm_scale.model.model import Model
from mllkm_scale.model.record import ModelRecord
from mllkm_scale.units import format_bytes

__all__ = ["Description", "GammaShare", "HeavyKernel", "TableFacts", "describe"]

LISTED = 10


@dataclass(frozen=True)
class GammaShare:
    """Kernels of one gamma: how many, their weight, and its share of all weight."""

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
    """The tables of a component-wise model: any f is off by at most `deviation`.

    A row costs `lookups` of a cell, and `multiply_adds`.
    """

    cells: int
    bytes: int
    deviation: float
    lookups: int
    multiply_adds: int


@dataclass(frozen=True)
class Description:
    """A model in numbers.

    `file_bytes` is None if no file was named; `memory_bytes` are the arrays, and `block_bytes` what a thread
    that predicts takes beside them. A predicted row costs `multiply_adds`, and `bumps` values of the map h: by the
    direct form, where there are `tables`; where there are none `no_tables` says why.
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

    @property
    def family(self) -> str:
        """The family in words, such as ``gaussian, component-wise, local bias 1``."""
        kind = "component-wise" if self.componentwise else "global"
        return f"{self.map}, {kind}, " + (f"local bias {self.local_bias:g}" if self.local_bias else "no local bias")

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON holds it."""
        return asdict(self) | {"classes": list(self.classes), "family": self.family}

    def as_text(self) -> str:
        """All of it as lines for a person."""
        return "\n".join(_lines(self))


def describe(model: Model, *, path: str | os.PathLike[str] | None = None, heaviest: int = 10) -> Description:
    """Describe a model.

    Parameters
    ----------
    model : Model
    path : path, optional
        Its file, whose size is to be told.
    heaviest : int
        How many of the kernels with the largest weights to list.

    Examples
    --------
    >>> from mllkm_scale import MLLKMClassifier
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], ["near", "near", "far", "far"]
    >>> facts = describe(MLLKMClassifier(map="squared").fit(X, y).model_)
    >>> facts.family.split(",")[0], facts.preprocessing, facts.classes
    ('squared', 'standard scaling', ('far', 'near'))
    """
    s, d = model.anchors.shape
    K, d_in = model.n_machines, model.n_features_in
    componentwise, projection = model.family.componentwise, model.preprocessor.projection
    # Distances, or squared offsets and features; then the coefficients of every machine.
    products = s * d * (2 if componentwise else 1) + K * s * (d + 1)
    prepared = d_in + (0 if projection is None else d_in * d)
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
        multiply_adds=products + prepared,
        bumps=s * d if componentwise else s,
        tables=_table_facts(model, prepared),
        no_tables=model.form.reason,
    )


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
    scaling, projection = model.preprocessor.scaling.kind, model.preprocessor.projection
    text = "no scaling" if scaling == "none" else f"{scaling} scaling"
    if projection is None:
        return text
    kept = f"{len(projection.variances)} principal components of {model.n_features_in} features"
    return f"{text}, {kept}, whitened" if projection.whiten else f"{text}, {kept}"


def _file_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read ({error.strerror}): check the path") from error


def _cost_lines(facts: Description) -> dict[str, str]:
    direct = f"{facts.multiply_adds:,} multiply-adds, {facts.bumps:,} bumps"
    tables = facts.tables
    if tables is None:
        return {"cost of a row": direct} | ({"no tables": facts.no_tables} if facts.componentwise else {})
    return {
        "cost of a row": f"{tables.multiply_adds:,} multiply-adds, {tables.lookups:,} lookups by tables",
        "directly": direct,
        "tables": f"{tables.cells:,} cells, {format_bytes(tables.bytes)}, off by at most {tables.deviation:.1e}",
    }


def _proved(record: ModelRecord) -> dict[str, str]:
    if math.isnan(record.gap):
        return {"certificate": f"none: learned from a stream ({record.status})"}
    return {
        "certificate": f"{record.dual:.6g} <= optimum <= {record.primal:.6g} over {record.n_open} kernels",
        "gap": f"{record.gap:.3%} (asked for {record.tol:.3%}), {record.status}",
    }


def _lines(facts: Description) -> list[str]:
    record = facts.certificate
    shown = ", ".join(str(label) for label in facts.classes[:LISTED])
    more = f", ... ({len(facts.classes)})" if len(facts.classes) > LISTED else ""
    weights = "shared by the classes" if facts.shared_weights else "one set a class"
    fields = {
        "family": facts.family,
        "kernels": f"{facts.n_kernels} of {record.n_open} candidates, weights {weights}",
        "features": f"{facts.n_features_in} in, {facts.n_features_out} as the kernels see them",
        "classes": shown + more,
        "preprocessing": facts.preprocessing,
        **_proved(record),
        "training": f"{record.n_train} samples, seed {record.seed}, mllkm-scale {record.package_version}",
        "file": "not saved" if facts.file_bytes is None else format_bytes(facts.file_bytes),
        "memory": f"{format_bytes(facts.memory_bytes)}, and {format_bytes(facts.block_bytes)} to predict",
        **_cost_lines(facts),
        "sha256": facts.checksum,
    }
    lines = [f"{name:<14} {value}" for name, value in fields.items()]
    lines += ["", f"{'gamma':>12} {'kernels':>8} {'weight':>10} {'share':>7}"]
    lines += [f"{g.gamma:>12.5g} {g.count:>8} {g.weight:>10.4g} {g.share:>7.1%}" for g in facts.gammas]
    lines += ["", f"{'heaviest':>12} {'gamma':>8} {'weight':>10} {'share':>7} {'norm':>10}"]
    lines += [
        f"{k.position:>12} {k.gamma:>8.4g} {k.weight:>10.4g} {k.share:>7.1%} {k.norm:>10.4g}" for k in facts.heaviest
    ]
    return lines
