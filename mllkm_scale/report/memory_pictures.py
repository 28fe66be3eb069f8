"""Pictures of the memory: where the plan put it, what was measured over time, and the budget above both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mllkm_scale.base.events import Round, Streamed
from mllkm_scale.base.units import format_bytes
from mllkm_scale.report.picture import CLASS_COLOURS, Picture, canvas, embedded, thinned, time_axis
from mllkm_scale.report.run_files import Record, Run
from mllkm_scale.report.style import BLUE, ORANGE, styled

__all__ = ["memory_pictures", "plan_rows"]

MB = 1e6


def plan_rows(plan: Record) -> list[tuple[str, int, str]]:
    """What, bytes and note of each row of plan.json."""
    rows: Any = plan.get("rows")
    if not isinstance(rows, list):
        return []
    return [(str(row.get("what", "")), int(row.get("bytes", 0)), str(row.get("note", ""))) for row in rows]


def memory_pictures(run: Run) -> list[Picture]:
    """The plan against the measured peak, and the memory over time; each where its file is there."""
    rows, budget_bytes = plan_rows(run.plan), run.budget_bytes
    pictures = [] if not rows or budget_bytes is None else [_plan(rows, budget_bytes, run.peak_bytes)]
    events: Sequence[Round] | Sequence[Streamed] = run.rounds or run.reports
    return pictures + ([_over_time(events)] if events else [])


@styled
def _plan(rows: Sequence[tuple[str, int, str]], budget_bytes: int, peak_bytes: int | None) -> Picture:
    figure, axes = canvas()
    left = 0.0
    for (what, size_bytes, _), colour in zip(rows, CLASS_COLOURS, strict=False):
        reserve = what == "reserve"
        axes.barh(1, size_bytes / MB, left=left, color="#e4e4e4" if reserve else colour, label=what, height=0.6)
        left += size_bytes / MB
    if peak_bytes is not None:
        axes.barh(0, peak_bytes / MB, color=BLUE, height=0.6)
        axes.text(peak_bytes / MB, 0, f" {format_bytes(peak_bytes)}", va="center", fontsize=7)
    axes.axvline(budget_bytes / MB, color=ORANGE, ls="--", lw=0.9)
    axes.text(budget_bytes / MB, 1.42, "budget ", color=ORANGE, fontsize=7, ha="right")
    axes.set_yticks(
        [0, 1] if peak_bytes is not None else [1], ["measured", "plan"] if peak_bytes is not None else ["plan"]
    )
    axes.set(xlabel="MB", ylim=(-0.6, 1.7), xlim=(0, 1.06 * max(left, budget_bytes / MB, (peak_bytes or 0) / MB)))
    axes.grid(False, axis="y")
    figure.legend(loc="outside lower center", ncols=2, fontsize=6.5)
    measured = "" if peak_bytes is None else f"; {format_bytes(peak_bytes)} at most were measured"
    caption = f"Where the plan puts the {format_bytes(budget_bytes)} of the budget{measured}."
    return embedded(figure, caption, caption)


@styled
def _over_time(events: Sequence[Round] | Sequence[Streamed]) -> Picture:
    figure, axes = canvas()
    kept = [events[i] for i in thinned(len(events))]
    unit = time_axis(axes, kept[-1].elapsed_s)
    times = [event.elapsed_s / unit for event in kept]
    axes.plot(times, [event.rss_bytes / MB for event in kept], "o-", ms=2.5, color=BLUE, label="resident")
    axes.plot(times, [event.budget_bytes / MB for event in kept], "--", color=ORANGE, lw=0.9, label="budget")
    axes.set(ylabel="MB", ylim=(0, None))
    axes.legend()
    caption = "Resident memory of the process when each round, or report, was written; the peak may lie in between."
    most = max(event.rss_bytes for event in kept)
    return embedded(figure, f"Memory over time, {format_bytes(most)} at most", caption)
