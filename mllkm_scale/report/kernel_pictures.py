"""Pictures of the kernels of a model: which gammas were chosen, and how the weight is shared out."""

from __future__ import annotations

import numpy as np

from mllkm_scale.model.describe import Description
from mllkm_scale.model.model import Model
from mllkm_scale.report.picture import Picture, canvas, embedded, log_axis, thinned
from mllkm_scale.report.style import BLUE, GREY, ORANGE, styled

__all__ = ["kernel_pictures"]

FEW_GAMMAS = 5
MOST_GAMMAS = 24  # that have room for their numbers
RANGES = 20  # in which more of them are shown


def kernel_pictures(model: Model, facts: Description) -> list[Picture]:
    """Chosen gammas, and weights from the largest on."""
    return [_gammas(facts) if len(facts.gammas) <= MOST_GAMMAS else _gamma_ranges(facts), _weights(model)]


@styled
def _gammas(facts: Description) -> Picture:
    figure, axes = canvas()
    shown = sorted(facts.gammas, key=lambda part: part.gamma)
    places = np.arange(len(shown))
    axes.bar(places, [100 * part.share for part in shown], 0.7, color=BLUE)
    for place, part in zip(places, shown, strict=True):
        axes.annotate(
            f"{part.count:,}", (float(place), 100 * part.share), (0, 2), textcoords="offset points", ha="center",
            fontsize=6.5, color=GREY,
        )  # fmt: skip
    axes.set_xticks(places, [f"{part.gamma:.3g}" for part in shown], rotation=45 if len(shown) > 8 else 0)
    axes.set(xlabel="gamma", ylabel="share of the weight, %")
    axes.margins(y=0.12)
    spare = max(0.0, FEW_GAMMAS - len(shown)) / 2  # few bars are no wider than several
    axes.set_xlim(-0.6 - spare, len(shown) - 0.4 + spare)
    axes.grid(False, axis="x")
    caption = (
        "The scales that were chosen, by their share of the weight, with the number of kernels above; a small gamma is"
        " a wide kernel."
    )
    heaviest = max(facts.gammas, key=lambda part: part.share)
    alt = f"Share of the weight of each gamma, the most ({100 * heaviest.share:.0f} %) at {heaviest.gamma:.3g}"
    return embedded(figure, alt, caption)


@styled
def _gamma_ranges(facts: Description) -> Picture:
    """Very many gammas, as those of learned kernels are, by ranges of equal width on a logarithmic scale."""
    gammas, shares = np.array([[part.gamma, part.share] for part in facts.gammas]).T
    edges = np.geomspace(gammas[0] * (1 - 1e-9), gammas[-1] * (1 + 1e-9), RANGES + 1)
    heights, _ = np.histogram(gammas, edges, weights=100 * shares)
    figure, axes = canvas()
    axes.bar(edges[:-1], heights, np.diff(edges), align="edge", color=BLUE, edgecolor="white", linewidth=0.6)
    axes.set(xlabel="gamma", ylabel="share of the weight, %")
    log_axis(axes, "x")
    axes.grid(False, axis="x")
    caption = f"The {len(gammas):,} scales by their share of the weight; a small gamma is a wide kernel."
    alt = f"Share of the weight of {len(gammas):,} gammas from {gammas[0]:.3g} to {gammas[-1]:.3g}"
    return embedded(figure, alt, caption)


@styled
def _weights(model: Model) -> Picture:
    from matplotlib.ticker import MaxNLocator

    figure, axes = canvas()
    weights = np.sort(np.atleast_2d(model.weights).sum(axis=0))[::-1]
    total = weights.sum() or 1.0
    gathered = 100 * np.cumsum(weights) / total
    at = thinned(len(weights))
    ranks = np.array(at) + 1
    axes.fill_between(ranks, gathered[at], color=BLUE, alpha=0.12, lw=0)
    axes.plot(ranks, gathered[at], color=BLUE, marker="o" if len(at) < 40 else None, ms=2.5)
    half = int(np.searchsorted(gathered, 50.0)) + 1
    axes.axhline(50, color=ORANGE, lw=0.7, ls="--")
    axes.set(xlabel="kernels, the heaviest first", ylabel="share of the weight, %", ylim=(0, 103))
    axes.set_xlim(0, max(2, len(weights)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    caption = f"The weight of the heaviest kernels together: {half:,} of {len(weights):,} hold half of it."
    return embedded(figure, caption, caption)
