"""The report of a run, made from its folder only: one HTML file that includes its pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mllkm_scale.base.lazy import lazy_names

__all__ = ["write_comparison", "write_model_report", "write_report"]

if TYPE_CHECKING:
    from mllkm_scale.report.comparison import write_comparison
    from mllkm_scale.report.page import write_model_report, write_report

_HOMES = {
    "write_comparison": "mllkm_scale.report.comparison",
    "write_model_report": "mllkm_scale.report.page",
    "write_report": "mllkm_scale.report.page",
}

__getattr__ = lazy_names(__name__, _HOMES)
