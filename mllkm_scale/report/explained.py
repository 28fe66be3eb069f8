"""The part of the report on features and rows: importances, and explanations of a few test rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mllkm_scale.data.dataset import Dataset
from mllkm_scale.model.evaluation import Evaluation
from mllkm_scale.model.explanation import explained
from mllkm_scale.model.model import Model

__all__ = ["Bar", "ExplainedRow", "explained_rows", "importance_bars", "shown_row"]

MOST_BARS = 15
MOST_FEATURES = 6  # of an explained row


@dataclass(frozen=True)
class Bar:
    """A bar from `left` percent of the page width, with `width` percent of it; with its name and its value."""

    name: str
    left: float
    width: float
    told: str
    value: str = ""
    below: bool = False


@dataclass(frozen=True)
class ExplainedRow:
    """An explained test row: label, prediction, and contributions to the score."""

    title: str
    meaning: str
    wrong: bool
    bars: list[Bar]


def explained_rows(model: Model, test: Dataset, evaluation: Evaluation) -> list[dict[str, Any]]:
    """The explained rows of an evaluation, for evaluation.json; `test` has features, not columns of a table."""
    rows = list(evaluation.telling)
    if not rows:
        return []
    labels = test.labels()[rows]
    found = []
    for row, truth, one in zip(
        rows, labels.tolist(), explained(model, test.rows(rows).astype(np.float64)), strict=True
    ):
        strongest, k = one.strongest(MOST_FEATURES), one.machine
        found.append(
            {
                "row": row,
                "truth": str(truth),
                "right": one.label == truth,
                "title": one.title,
                "meaning": one.meaning,
                "features": [{"feature": name, "value": value, "added": added} for name, value, added in strongest],
                "rest": float(one.contributions[k].sum() - sum(added for _, _, added in strongest)),
                "constant": float(one.constants[k]),
                "score": float(one.scores[k]),
            }
        )
    return found


def importance_bars(model: Model, names: tuple[str, ...] | None) -> tuple[list[Bar], str]:
    """The most important features, or columns of a table, and a remark on the others."""
    names = model.feature_names or (names if names is not None and len(names) == model.n_features_in else None)
    if model.reduction is not None:
        return [], "There are no importances of columns that are combined by a reduction."
    importances = model.feature_importances
    order = np.argsort(-importances, kind="stable")[:MOST_BARS]
    order = order[importances[order] > 0]
    longest = max(float(importances.max()), np.finfo(float).tiny)
    bars = [
        Bar(_name(names, int(j)), 0.0, 100 * float(importances[j]) / longest, f"{100 * importances[j]:.1f} %")
        for j in order
    ]
    left_out, rest = len(importances) - len(order), 100 * float(1.0 - importances[order].sum())
    return bars, f"{left_out:,} more have {max(rest, 0.0):.1f} %." if left_out else ""


def _name(names: tuple[str, ...] | None, feature: int) -> str:
    return f"feature {feature}" if names is None or not names[feature].strip() else names[feature]


def shown_row(one: Mapping[str, Any]) -> ExplainedRow:
    """The entry of evaluation.json for a row."""
    parts = [(part["feature"], part["value"], part["added"]) for part in one["features"]]
    parts += [("other features", "", one["rest"]), ("constant", "", one["constant"]), ("score", "", one["score"])]
    parts = [part for part in parts if part[2] or part[0] == "score"]
    low, high = (bound(0.0, *(added for *_, added in parts)) for bound in (min, max))
    unit = 100.0 / ((high - low) or 1.0)
    bars = [
        Bar(name, unit * (min(added, 0.0) - low), unit * abs(added), f"{added:+.3g}", value, added < 0)
        for name, value, added in parts
    ]
    right = bool(one["right"])
    told = "" if right else f", but it is {one['truth']}"
    return ExplainedRow(f"row {one['row']:,}: {one['title']}{told}", one["meaning"], not right, bars)
