"""The description of a model as text: for the command line, and for fitted estimators in notebooks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mllkm_scale.base.units import format_bytes
from mllkm_scale.printable import printable

if TYPE_CHECKING:
    from mllkm_scale.model.describe import Description, GammaShare
    from mllkm_scale.model.parts import ModelParts
    from mllkm_scale.model.record import ModelRecord

__all__ = [
    "LISTED",
    "calibration_in_words",
    "class_names",
    "facts_in_words",
    "gamma_ranges",
    "lines",
    "one_line",
]

LISTED = 10
LABEL = 60  # characters of a label that are shown

_MOST_GAMMAS, _GAMMA_RANGES = 12, 8  # that are shown singly; and ranges of more of them


def facts_in_words(description: Description) -> dict[str, str]:
    """The main facts, by name."""
    record, names = description.certificate, description.feature_names
    weights = "shared by the classes" if description.shared_weights else "one set per class"
    file, memory = description.file_bytes, format_bytes(description.memory_bytes)
    return {
        "family": description.family,
        "kernels": f"{description.n_kernels} of {record.n_open} candidates, weights {weights}",
        **learned_facts(record),
        "features": f"{description.n_features_in} in, {description.n_features_out} as the kernels see them",
        "names": "none: features are known by their order" if names is None else class_names(names),
        "classes": class_names(description.classes),
        "probabilities": calibration_in_words(description),
        "preprocessing": description.preprocessing,
        **_proved_facts(record),
        "training": f"{record.n_train} samples, seed {record.seed}, mllkm-scale {record.package_version}",
        "file": "not saved" if file is None else format_bytes(file),
        "memory": f"{memory}, and {format_bytes(description.block_bytes)} to predict",
        **_cost_facts(description),
        "sha256": description.checksum,
    }


def calibration_in_words(description: Description) -> str:
    """The calibration, and the rows on which it was fitted."""
    fitted = description.calibration
    if fitted is None:
        return "none: the model has no calibration"
    how = (
        f"temperature, scores times {fitted.slope:.4g}"
        if fitted.method == "temperature"
        else (f"isotonic, {len(fitted.knots)} knots")
    )
    return f"{how}; by {fitted.n_rows:,} {fitted.source}, log loss {fitted.log_loss:.4g}"


def learned_facts(record: ModelRecord) -> dict[str, str]:
    """Facts about learned kernels; none if no kernels were learned."""
    anchors = record.params.get("anchors")
    if not isinstance(anchors, str) or not anchors.startswith("learned"):
        return {}
    finish = "left as learned" if record.status == "learned" else "weighed by MKL"
    return {"anchors": f"{anchors}, metric {record.params.get('metric') or 'none'}, {finish}"}


def one_line(model: ModelParts) -> str:
    """The `repr` of a model."""
    family, record = model.family, model.certificate
    kind = f"{family.map}, {'component-wise' if family.componentwise else 'global'}"
    size = f"{model.n_kernels:,} of {record.n_open:,} kernels, {model.n_features_in:,} features"
    gap = "nothing proved" if math.isnan(record.gap) else f"gap {100 * record.gap:.3g} %"
    return f"{type(model).__name__}({kind}, {size}, {len(model.classes):,} classes, {gap}, {printable(record.status)})"


def class_names(classes: Sequence[Any]) -> str:
    """The classes, or the first ones of many."""
    shown = ", ".join(printable(label, longest=LABEL) for label in classes[:LISTED])
    return shown + (f", ... ({len(classes)})" if len(classes) > LISTED else "")


def _cost_facts(description: Description) -> dict[str, str]:
    """The cost of predicting a row."""
    direct = f"{description.multiply_adds:,} multiply-adds, {description.bumps:,} bumps"
    tables = description.tables
    if tables is None:
        return {"cost of a row": direct} | ({"no tables": description.no_tables} if description.componentwise else {})
    return {
        "cost of a row": f"{tables.multiply_adds:,} multiply-adds, {tables.lookups:,} lookups by tables",
        "directly": direct,
        "tables": f"{tables.cells:,} cells, {format_bytes(tables.bytes)}, off by at most {tables.deviation:.1e}",
    }


def _proved_facts(record: ModelRecord) -> dict[str, str]:
    """The certificate of the model."""
    if math.isnan(record.gap):
        return {"certificate": f"none: learned from a stream ({record.status})"}
    return {
        "certificate": f"{record.dual:.6g} <= optimum <= {record.primal:.6g} over {record.n_open} kernels",
        "gap": f"{record.gap:.3%} (asked for {record.tol:.3%}), {record.status}",
    }


def lines(description: Description) -> list[str]:
    """The description as plain text."""
    text = [f"{name:<14} {printable(value)}" for name, value in facts_in_words(description).items()]
    text += ["", f"{'gamma':>20} {'kernels':>8} {'weight':>10} {'share':>7}"]
    text += [
        f"{gamma:>20} {sum(g.count for g in own):>8} {sum(g.weight for g in own):>10.4g}"
        f" {sum(g.share for g in own):>7.1%}"
        for gamma, own in gamma_ranges(description.gammas)
    ]
    text += ["", f"{'heaviest':>12} {'gamma':>8} {'weight':>10} {'share':>7} {'norm':>10}"]
    text += [
        f"{k.position:>12} {k.gamma:>8.4g} {k.weight:>10.4g} {k.share:>7.1%} {k.norm:>10.4g}"
        for k in description.heaviest
    ]
    return text


def gamma_ranges(gammas: Sequence[GammaShare]) -> list[tuple[str, Sequence[GammaShare]]]:
    """A few gammas, each alone; many of them, as learned kernels have, in ranges with about as many kernels each."""
    if len(gammas) <= _MOST_GAMMAS:
        return [(f"{share.gamma:.5g}", [share]) for share in gammas]
    before = np.cumsum([0, *(share.count for share in gammas[:-1])])
    numbers = before * _GAMMA_RANGES // (before[-1] + gammas[-1].count)
    ranges = [
        [share for share, at in zip(gammas, numbers, strict=True) if at == number] for number in np.unique(numbers)
    ]
    return [(f"{own[0].gamma:.4g} to {own[-1].gamma:.4g}", own) for own in ranges]
