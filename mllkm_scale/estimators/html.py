"""HTML of a fitted estimator for notebooks: a summary below scikit-learn's diagram."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

from mllkm_scale.base.units import format_bytes
from mllkm_scale.errors import MLLKMError
from mllkm_scale.model.describe import direct_cost
from mllkm_scale.model.describe_text import class_names
from mllkm_scale.printable import printable

if TYPE_CHECKING:
    from mllkm_scale.estimators.deciding import DecidesByModel

__all__ = ["fitted_facts", "fitted_html"]

# Colours are those of the notebook, light or dark.
_STYLE = (
    "<style>.mllkm-facts{border-collapse:collapse;margin:0.6em 0;font-size:0.9em;color:inherit}"
    ".mllkm-facts caption{text-align:left;font-weight:bold;padding:0.3em 0}"
    ".mllkm-facts th,.mllkm-facts td{text-align:left;vertical-align:top;padding:0.2em 1.2em 0.2em 0;"
    "border-top:1px solid rgba(128,128,128,0.4);background:none;font-weight:normal;overflow-wrap:anywhere}"
    ".mllkm-facts th{white-space:nowrap;opacity:0.75}</style>"
)


def fitted_facts(estimator: DecidesByModel) -> dict[str, str]:
    """The summary by name; it does not compile tables for component-wise models."""
    try:
        model = estimator.model_
    except MLLKMError as error:  # a stream before the end of its warm-up
        return {"no model yet": str(error)}
    record = model.certificate
    multiply_adds, bumps = direct_cost(model)
    directly = " where no tables are used" if model.family.componentwise else ""
    return {
        "kernels": f"{model.n_kernels:,} of {record.n_open:,} candidates",
        **_quality(estimator),
        "classes": class_names(model.classes.tolist()),
        "trained on": f"{record.n_train:,} samples of {model.n_features_in:,} features",
        **_effort(estimator),
        "cost of a row": f"{multiply_adds:,} multiply-adds, {bumps:,} bumps{directly}",
    }


def _quality(estimator: DecidesByModel) -> dict[str, str]:
    record = estimator.model_.certificate
    if math.isnan(record.gap):
        error = estimator.prequential_error_
        shown = "none yet: too few samples since the warm-up" if math.isnan(error) else f"{100 * error:.2f} %"
        return {"proved": "nothing: learned from a stream", "prequential error": shown}
    asked = f"asked for {100 * record.tol:.3g} %"
    return {
        "duality gap": f"{100 * record.gap:.3g} % over all candidates ({asked}), {record.status}",
        "optimum": f"between {record.dual:.6g} and {record.primal:.6g}",
    }


def _effort(estimator: DecidesByModel) -> dict[str, str]:
    if not hasattr(estimator, "plan_"):
        return {}
    budget = format_bytes(estimator.plan_.budget_bytes)
    return {
        "rounds": f"{estimator.n_iter_:,}",
        "peak memory": f"{format_bytes(estimator.peak_bytes_)} of {budget}",
    }


def fitted_html(title: str, facts: Mapping[str, str]) -> str:
    """The facts as a table, every text escaped.

    >>> fitted_html("a < b", {"classes": "<i>"}).count("&lt;")
    2
    """
    rows = "".join(
        f'<tr><th scope="row">{escape(printable(name))}</th><td>{escape(printable(text))}</td></tr>'
        for name, text in facts.items()
    )
    return f'{_STYLE}<table class="mllkm-facts"><caption>{escape(title)}</caption><tbody>{rows}</tbody></table>'
