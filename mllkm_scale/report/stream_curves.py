"""Pictures of a stream over its samples: the prequential error, what is kept, and how fast it went."""

from __future__ import annotations

from collections.abc import Sequence

from mllkm_scale.base.events import Streamed
from mllkm_scale.report.picture import Picture, canvas, embedded, thinned
from mllkm_scale.report.style import BLUE, GREY, ORANGE, styled

__all__ = ["stream_pictures"]


def stream_pictures(reports: Sequence[Streamed]) -> list[Picture]:
    """Error, kernels, samples kept, and samples a second, over the samples that have come."""
    kept = [reports[i] for i in thinned(len(reports))]
    return [_error(kept), _kernels(kept), _samples(kept), _rate(kept)]


@styled
def _error(reports: Sequence[Streamed]) -> Picture:
    figure, axes = canvas()
    numbers = [report.number for report in reports]
    axes.plot(numbers, [100 * report.recent_error for report in reports], color=GREY, lw=0.8, label="of the latest")
    axes.plot(numbers, [100 * report.error for report in reports], color=BLUE, label="of all so far")
    axes.set(xlabel="samples", ylabel="prequential error, %", ylim=(0, None))
    axes.legend()
    caption = "The share of samples that were predicted wrongly before they were learned."
    return embedded(
        figure, f"Prequential error over samples, {100 * reports[-1].error:.2f} % of all in the end", caption
    )


@styled
def _kernels(reports: Sequence[Streamed]) -> Picture:
    figure, axes = canvas()
    numbers = [report.number for report in reports]
    axes.plot(numbers, [report.inserted for report in reports], "--", color=GREY, lw=0.9, label="inserted, in all")
    axes.plot(numbers, [report.dropped for report in reports], "--", color=ORANGE, lw=0.9, label="dropped, in all")
    axes.plot(numbers, [report.n_kernels for report in reports], color=BLUE, label="active")
    axes.set(xlabel="samples", ylabel="kernels", ylim=(0, None))
    axes.legend()
    caption = "Kernels that came in, went out, and are there."
    return embedded(figure, f"Kernels over samples, {reports[-1].n_kernels} active in the end", caption)


@styled
def _samples(reports: Sequence[Streamed]) -> Picture:
    figure, axes = canvas()
    numbers = [report.number for report in reports]
    axes.plot(numbers, [report.n_kept for report in reports], color=GREY, label="kept")
    axes.plot(numbers, [report.n_support for report in reports], color=BLUE, label="of these, support vectors")
    axes.set(xlabel="samples", ylabel="samples kept", ylim=(0, None))
    axes.legend()
    caption = f"Samples that are still remembered; {reports[-1].forgotten:,} were forgotten."
    return embedded(figure, f"Samples kept over samples, {reports[-1].n_kept} in the end", caption)


@styled
def _rate(reports: Sequence[Streamed]) -> Picture:
    figure, axes = canvas()
    axes.plot([report.number for report in reports], [report.samples_per_s for report in reports], color=BLUE)
    axes.set(xlabel="samples", ylabel="samples a second", ylim=(0, None))
    caption = "Samples a second since the stream began, waiting for them included."
    return embedded(figure, f"Samples a second, {reports[-1].samples_per_s:.3g} in the end", caption)
