"""Pictures of several runs: their gaps, or errors, over time in one; and error against the cost of a row."""

from __future__ import annotations

from collections.abc import Sequence

from mllkm_scale.model.describe import Description
from mllkm_scale.report.picture import Picture, canvas, embedded, log_axis, thinned, time_axis
from mllkm_scale.report.prepared_space import plain
from mllkm_scale.report.regions import class_colours
from mllkm_scale.report.run_files import Run
from mllkm_scale.report.style import styled

__all__ = ["comparison_pictures"]

MOST_LABELS = 12


def comparison_pictures(
    runs: Sequence[Run], names: Sequence[str], facts: Sequence[Description | None]
) -> list[Picture]:
    """Those that the runs have the numbers for."""
    pictures = []
    if any(run.rounds for run in runs):
        pictures.append(_gaps(runs, names))
    if any(run.reports for run in runs):
        pictures.append(_prequential(runs, names))
    if sum(run.evaluation is not None and known is not None for run, known in zip(runs, facts, strict=True)) > 1:
        pictures.append(_costs(runs, names, facts))
    return pictures


@styled
def _gaps(runs: Sequence[Run], names: Sequence[str]) -> Picture:
    figure, axes = canvas()
    unit = time_axis(axes, max(run.rounds[-1].elapsed_s for run in runs if run.rounds))
    for run, name, colour in zip(runs, names, class_colours(len(runs)), strict=True):
        if run.rounds:
            kept = [run.rounds[i] for i in thinned(len(run.rounds))]
            gaps = [event.gap if event.gap > 0 else float("nan") for event in kept]
            axes.plot(
                [event.elapsed_s / unit for event in kept], gaps, "o-", ms=2.5, color=colour, label=plain(name, 30)
            )
    log_axis(axes, "y")
    axes.set_ylabel("proved gap")
    if len(runs) <= MOST_LABELS:
        axes.legend()
    return embedded(figure, f"Gap over time of {len(runs)} runs", "The proved duality gap of each run over its time.")


@styled
def _prequential(runs: Sequence[Run], names: Sequence[str]) -> Picture:
    figure, axes = canvas()
    for run, name, colour in zip(runs, names, class_colours(len(runs)), strict=True):
        if run.reports:
            kept = [run.reports[i] for i in thinned(len(run.reports))]
            errors = [100 * report.error for report in kept]
            axes.plot([report.number for report in kept], errors, color=colour, label=plain(name, 30))
    axes.set(xlabel="samples", ylabel="prequential error, %", ylim=(0, None))
    if len(runs) <= MOST_LABELS:
        axes.legend()
    caption = "The share of samples that each stream predicted wrongly before it learned them."
    return embedded(figure, f"Prequential error of {len(runs)} runs", caption)


@styled
def _costs(runs: Sequence[Run], names: Sequence[str], facts: Sequence[Description | None]) -> Picture:
    figure, axes = canvas()
    for run, name, known, colour in zip(runs, names, facts, class_colours(len(runs)), strict=True):
        if run.evaluation is None or known is None:
            continue
        cost = known.multiply_adds if known.tables is None else known.tables.multiply_adds
        axes.plot([cost], [100 * run.evaluation.error], "o", color=colour, ms=6)
        if len(runs) <= MOST_LABELS:
            place = (cost, 100 * run.evaluation.error)
            axes.annotate(plain(name, 24), place, (5, 4), textcoords="offset points", fontsize=6.5)
    axes.set_xscale("log")
    axes.set(xlabel="multiply-adds of a predicted row", ylabel="test error, %")
    axes.margins(0.18)
    log_axis(axes, "x")
    axes.set_ylim(bottom=0)
    caption = "What a prediction costs, and how often it is wrong: to the left and below is better."
    return embedded(figure, f"Test error against cost of {len(runs)} runs", caption)
