"""Curves over the course of a run: rounds of a training run, samples of a stream, and the memory of both.

For a training run, the curves show bounds and gap, kernels and samples, and the use of time. For a stream, they show
the prequential error, the kept samples and kernels, and the speed. Planned and measured memory are shown beside the
budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mllkm_scale.base.events import Round
from mllkm_scale.report.picture import Picture, canvas, count_axis, embedded, log_axis, thinned, time_axis
from mllkm_scale.report.style import BLUE, GREY, ORANGE, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

from typing import Any

from mllkm_scale.base.events import Streamed
from mllkm_scale.base.units import format_bytes
from mllkm_scale.report.picture import CLASS_COLOURS
from mllkm_scale.report.run_files import Record, Run

__all__ = ["memory_pictures", "plan_rows", "stream_pictures", "training_pictures"]

MB = 1e6
GREEN = "#4d9221"
MOST_BARS = 60  # that can be distinguished


def stream_pictures(reports: Sequence[Streamed]) -> list[Picture]:
    """Error, kernels, kept samples, and samples per second, over the samples that have arrived."""
    kept = [reports[i] for i in thinned(len(reports))]
    return [_stream_error(kept), _stream_kernels(kept), _stream_samples(kept), _stream_rate(kept)]


@styled
def _stream_error(reports: Sequence[Streamed]) -> Picture:
    figure, axes = canvas()
    numbers = [report.number for report in reports]
    axes.plot(numbers, [100 * report.recent_error for report in reports], color=GREY, lw=0.8, label="of the latest")
    axes.plot(numbers, [100 * report.error for report in reports], color=BLUE, label="of all samples so far")
    axes.set(xlabel="samples", ylabel="prequential error, %", ylim=(0, None))
    axes.legend()
    caption = "The share of samples that were misclassified before they were learned."
    return embedded(
        figure, f"Prequential error over samples, {100 * reports[-1].error:.2f} % of all in the end", caption
    )


@styled
def _stream_kernels(reports: Sequence[Streamed]) -> Picture:
    figure, axes = canvas()
    numbers = [report.number for report in reports]
    axes.plot(numbers, [report.inserted for report in reports], "--", color=GREY, lw=0.9, label="inserted, in all")
    axes.plot(numbers, [report.dropped for report in reports], "--", color=ORANGE, lw=0.9, label="dropped, in all")
    axes.plot(numbers, [report.n_kernels for report in reports], color=BLUE, label="active")
    axes.set(xlabel="samples", ylabel="kernels", ylim=(0, None))
    axes.legend()
    caption = "Kernels that were inserted, that were dropped, and that are active."
    return embedded(figure, f"Kernels over samples, {reports[-1].n_kernels} active in the end", caption)


@styled
def _stream_samples(reports: Sequence[Streamed]) -> Picture:
    figure, axes = canvas()
    numbers = [report.number for report in reports]
    axes.plot(numbers, [report.n_kept for report in reports], color=GREY, label="kept")
    axes.plot(numbers, [report.n_support for report in reports], color=BLUE, label="of these, support vectors")
    axes.set(xlabel="samples", ylabel="samples kept", ylim=(0, None))
    axes.legend()
    caption = f"Samples that are kept;  {reports[-1].forgotten:,} were forgotten."
    return embedded(figure, f"Samples kept over samples, {reports[-1].n_kept} in the end", caption)


@styled
def _stream_rate(reports: Sequence[Streamed]) -> Picture:
    figure, axes = canvas()
    axes.plot([report.number for report in reports], [report.samples_per_s for report in reports], color=BLUE)
    axes.set(xlabel="samples", ylabel="samples per second", ylim=(0, None))
    caption = "Samples per second since the stream began, including the time of waiting for samples."
    return embedded(figure, f"Samples per second, {reports[-1].samples_per_s:.3g} in the end", caption)


def plan_rows(plan: Record) -> list[tuple[str, int, str]]:
    """Name, bytes and note of each row of plan.json."""
    rows: Any = plan.get("rows")
    if not isinstance(rows, list):
        return []
    return [(str(row.get("what", "")), int(row.get("bytes", 0)), str(row.get("note", ""))) for row in rows]


def memory_pictures(run: Run) -> list[Picture]:
    """The plan and the measured peak, and the memory over time, if their files exist."""
    rows, budget_bytes = plan_rows(run.plan), run.budget_bytes
    pictures = [] if not rows or budget_bytes is None else [_plan(rows, budget_bytes, run.peak_bytes)]
    events: Sequence[Round] | Sequence[Streamed] = run.rounds or run.reports
    return pictures + ([_over_time(events)] if events else [])


@styled
def _plan(rows: Sequence[tuple[str, int, str]], budget_bytes: int, peak_bytes: int | None) -> Picture:
    figure, axes = canvas(fitted=True)
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
    measured = "" if peak_bytes is None else f"; the measured peak is {format_bytes(peak_bytes)}"
    caption = f"The planned use of the budget of {format_bytes(budget_bytes)}{measured}."
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


def training_pictures(rounds: Sequence[Round], tol: float | None, in_turn: bool) -> list[Picture]:
    """Gap, bounds, kernels, samples, seconds and throughput; `in_turn`: the machines of the classes are trained one
    after the other."""
    kept = [rounds[i] for i in thinned(len(rounds))]
    note = "  Each class has its own machine; they were trained one after the other." if in_turn else ""
    held = [event for event in rounds if event.held_error is not None]
    return [
        _gap(kept, tol, note),
        *([_held_error(held)] if held else []),
        _bounds(kept, note),
        _kernels(kept),
        _samples(kept),
        _seconds(kept),
        _rate(kept),
    ]


@styled
def _held_error(rounds: Sequence[Round]) -> Picture:
    figure, axes = canvas()
    errors = [100 * float(event.held_error or 0.0) for event in rounds]
    axes.plot([event.number for event in rounds], errors, "o-", ms=2.5, color=BLUE)
    axes.set(ylabel="error on test rows, %", ylim=(0, 1.1 * max(errors) or 1.0))
    _whole_rounds(axes)
    caption = "The share of test rows, at most 2,000 of them, that the machines of some of the rounds misclassify."
    return embedded(figure, f"Error on test rows over rounds, {errors[-1]:.3g} % in the last measured", caption)


@styled
def _gap(rounds: Sequence[Round], tol: float | None, note: str) -> Picture:
    figure, axes = canvas()
    unit = time_axis(axes, rounds[-1].elapsed_s)
    times = [event.elapsed_s / unit for event in rounds]
    axes.plot(times, [_positive(event.gap) for event in rounds], "o-", ms=2.5, color=BLUE, label="proved")
    likely = any(event.likely_gap is not None for event in rounds)
    if likely:
        seen = [_positive(event.current_gap) for event in rounds]
        axes.plot(times, seen, ":", color=GREY, label="likely, from the scanned kernels only")
    if tol is not None:
        axes.axhline(tol, color=ORANGE, lw=0.9, ls="--", label=f"asked for: {tol:.3g}")
    log_axis(axes, "y")
    axes.set_ylabel("relative duality gap")
    axes.legend()
    last = rounds[-1]
    caption = (
        "The duality gap (P - D) / P over all candidate kernels: how far the machine can be from the optimum." + note
    )
    return embedded(figure, f"Gap over time, {last.gap:.3g} after round {last.number}", caption)


@styled
def _bounds(rounds: Sequence[Round], note: str) -> Picture:
    figure, axes = canvas()
    unit = time_axis(axes, rounds[-1].elapsed_s)
    times = np.array([event.elapsed_s / unit for event in rounds])
    primal, dual = np.array([event.primal for event in rounds]), np.array([event.dual for event in rounds])
    axes.plot(times, primal, "o-", ms=2.5, color=BLUE, label="P, upper bound")
    axes.plot(times, dual, "o-", ms=2.5, color=ORANGE, label="D, lower bound")
    axes.fill_between(times, dual, primal, color=GREY, alpha=0.12, lw=0)
    axes.set_ylabel("objective")
    if np.isfinite(primal).all() and primal.max() > 20 * primal[-1] > 0:
        axes.set_ylim(min(0.0, dual.min()), 6 * primal[-1])  # the first bounds are far from the optimum
    axes.legend()
    alt = f"Objective over time, from {dual[-1]:.6g} to {primal[-1]:.6g} at the end"
    return embedded(figure, alt, "The optimum lies between the two bounds, in the grey area." + note)


@styled
def _kernels(rounds: Sequence[Round]) -> Picture:
    figure, axes = canvas()
    curves = {
        "candidates (open set)": ([event.n_open for event in rounds], GREY, "--"),
        "violating the optimality": ([event.n_violating_kernels for event in rounds], ORANGE, "o-"),
        "active": ([event.n_active for event in rounds], BLUE, "o-"),
    }
    _count_curves(axes, rounds, curves)
    axes.set_ylabel("kernels")
    caption = (
        f"Of {rounds[-1].n_open:,} candidates, those with a positive weight (active) and those that, in a scan, violate"
        " the optimality conditions."
    )
    return embedded(figure, f"Kernels over rounds, {rounds[-1].n_active} active in the end", caption)


@styled
def _samples(rounds: Sequence[Round]) -> Picture:
    figure, axes = canvas()
    curves = {
        "in the working sets, over all outputs": ([event.n_working for event in rounds], GREY, "o-"),
        "violating the optimality": ([event.n_violating_samples for event in rounds], ORANGE, "o-"),
        "support vectors": ([event.n_support for event in rounds], BLUE, "o-"),
    }
    _count_curves(axes, rounds, curves)
    axes.set_ylabel("samples")
    caption = "The samples of the inner problem, and those with a nonzero dual."
    return embedded(figure, f"Samples over rounds, {rounds[-1].n_support} support vectors in the end", caption)


def _count_curves(axes: Axes, rounds: Sequence[Round], curves: dict[str, tuple[list[int], str, str]]) -> None:
    numbers = [event.number for event in rounds]
    for label, (counts, colour, form) in curves.items():
        axes.plot(numbers, counts, form, ms=2.5, color=colour, label=label)
    count_axis(axes, max(max(counts) for counts, _, _ in curves.values()))
    _whole_rounds(axes)
    axes.legend()


@styled
def _seconds(rounds: Sequence[Round]) -> Picture:
    figure, axes = canvas()
    parts = {
        "solve the restricted problem": ([event.solve_s for event in rounds], BLUE),
        "margins of all samples": ([event.margins_s for event in rounds], GREEN),
        "scan of the kernels": ([event.scan_s for event in rounds], ORANGE),
    }
    numbers, times = [event.number for event in rounds], np.array([seconds for seconds, _ in parts.values()])
    if len(rounds) <= MOST_BARS:
        for (label, (seconds, colour)), above in zip(parts.items(), np.cumsum(times, axis=0), strict=True):
            axes.bar(numbers, seconds, 0.8, above - seconds, color=colour, label=label)
    else:
        axes.stackplot(numbers, times, colors=[colour for _, colour in parts.values()], labels=list(parts))
    _whole_rounds(axes)
    axes.set_ylabel("seconds")
    axes.legend()
    shares = 100 * times.sum(axis=1) / max(1e-12, float(times.sum()))
    told = ", ".join(f"{label} {share:.0f} %" for label, share in zip(parts, shares, strict=True))
    return embedded(figure, f"Seconds of each round by part: {told}", f"The time of each round by part: {told}.")


@styled
def _rate(rounds: Sequence[Round]) -> Picture:
    figure, axes = canvas()
    numbers, rates = [event.number for event in rounds], [event.kernels_per_s for event in rounds]
    axes.plot(numbers, [_positive(rate) for rate in rates], "o-", ms=2.5, color=BLUE)
    log_axis(axes, "y")
    axes.set_ylabel("kernels scanned per second")
    _whole_rounds(axes)
    caption = "Candidate kernels per second of scanning; scans are faster with fewer support vectors."
    return embedded(figure, f"Scan throughput over rounds, {rates[-1]:.3g} kernels per second in the last", caption)


def _whole_rounds(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _positive(value: float) -> float:
    """A value for a logarithmic axis, or nan, which leaves a gap in the curve."""
    return value if value > 0 and np.isfinite(value) else float("nan")
