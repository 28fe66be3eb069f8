"""Mean ranks on a line, with the critical difference as a bar (Demsar 2006)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mllkm_scale.report.style import BLUE, GREY, styled
from mllkm_scale.reproduce.significance import Ranks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_ranks"]


@styled
def draw_ranks(methods: Sequence[str], ranks: Ranks) -> Figure:
    """Methods from best to worst; the shade holds those that Nemenyi's test does not tell apart from the best."""
    from matplotlib.figure import Figure

    order = ranks.mean.argsort(kind="stable")
    means, names = ranks.mean[order], [methods[i] for i in order]
    figure = Figure(figsize=(5.5, 0.22 * len(names) + 0.9))
    axes = figure.subplots()
    for place, (mean, name) in enumerate(zip(means, names, strict=True)):
        ours = name.startswith("MLLKM")
        axes.plot([0.5, mean], [place, place], color="#dddddd", lw=0.6, zorder=1)
        axes.plot(mean, place, "o", color=BLUE if ours else GREY, ms=4.5, zorder=3)
    best, reach = means[0], min(means[0] + ranks.critical_difference, len(names) + 0.5)
    axes.axvspan(best, reach, color=BLUE, alpha=0.08, lw=0)
    axes.plot([best, reach], [-0.75, -0.75], color=BLUE, lw=2.5, solid_capstyle="butt")
    text = f"critical difference {ranks.critical_difference:.2f}: not told apart from the best"
    axes.text(best, -0.95, text, fontsize=7, color=BLUE, va="bottom")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -1.6)
    axes.set_xlim(0.5, len(names) + 0.5)
    axes.set_xlabel(f"mean rank over the data sets (Friedman's test: p = {ranks.friedman_p:.3f})")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return figure
