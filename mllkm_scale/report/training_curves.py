"""Pictures of a training over its rounds: bounds and gap, kernels and samples, where the time went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mllkm_scale.base.events import Round
from mllkm_scale.report.picture import Picture, canvas, count_axis, embedded, log_axis, thinned, time_axis
from mllkm_scale.report.style import BLUE, GREY, ORANGE, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["training_pictures"]

GREEN = "#4d9221"
MOST_BARS = 60  # that can be told apart


def training_pictures(rounds: Sequence[Round], tol: float | None, in_turn: bool) -> list[Picture]:
    """Gap, bounds, kernels, samples, seconds and throughput; `in_turn`: the classes' machines follow one another."""
    kept = [rounds[i] for i in thinned(len(rounds))]
    note = " Each class has a machine of its own, and these were trained in turn." if in_turn else ""
    return [_gap(kept, tol, note), _bounds(kept, note), _kernels(kept), _samples(kept), _seconds(kept), _rate(kept)]


@styled
def _gap(rounds: Sequence[Round], tol: float | None, note: str) -> Picture:
    figure, axes = canvas()
    unit = time_axis(axes, rounds[-1].elapsed_s)
    times = [event.elapsed_s / unit for event in rounds]
    axes.plot(times, [_positive(event.gap) for event in rounds], "o-", ms=2.5, color=BLUE, label="proved")
    likely = any(event.likely_gap is not None for event in rounds)
    if likely:
        seen = [_positive(event.seen_gap) for event in rounds]
        axes.plot(times, seen, ":", color=GREY, label="likely, as far as kernels were scanned")
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
        axes.set_ylim(min(0.0, dual.min()), 6 * primal[-1])  # the first bounds are far off
    axes.legend()
    alt = f"Objective over time, from {dual[-1]:.6g} to {primal[-1]:.6g} at the end"
    return embedded(figure, alt, "The optimum lies between the two bounds, in the grey." + note)


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
        f"Of {rounds[-1].n_open:,} candidates, those with a weight (active) and those that a scan found to violate"
        " the conditions of the optimum."
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
    caption = "The samples that the inner problem is solved on, and those that have a dual of their own."
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
    return embedded(figure, f"Seconds of each round by part: {told}", f"Where the time of each round went: {told}.")


@styled
def _rate(rounds: Sequence[Round]) -> Picture:
    figure, axes = canvas()
    numbers, rates = [event.number for event in rounds], [event.kernels_per_s for event in rounds]
    axes.plot(numbers, [_positive(rate) for rate in rates], "o-", ms=2.5, color=BLUE)
    log_axis(axes, "y")
    axes.set_ylabel("kernels scanned a second")
    _whole_rounds(axes)
    caption = "How many candidate kernels a second of scanning prices; fewer support vectors make it faster."
    return embedded(figure, f"Scan throughput over rounds, {rates[-1]:.3g} kernels a second in the last", caption)


def _whole_rounds(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _positive(value: float) -> float:
    """A value for a logarithmic axis; what it cannot show leaves a gap in the curve."""
    return value if value > 0 and np.isfinite(value) else float("nan")
