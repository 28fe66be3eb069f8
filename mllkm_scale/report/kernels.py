"""Pictures of the kernels of a model: the gammas, the distribution of the weights, and the anchors with the largest
weights.

Anchors are drawn as images if a row is an image.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.image_shape import ImageShape
from mllkm_scale.model.describe import Description
from mllkm_scale.model.model import Model
from mllkm_scale.report.picture import Picture, canvas, embedded, log_axis, thinned
from mllkm_scale.report.prepared_space import codes_at, heaviest, plain
from mllkm_scale.report.style import BLUE, GREY, ORANGE, styled

__all__ = ["anchor_images", "kernel_pictures"]

MOST = 60
COLUMNS = 10
FEWEST = 4  # columns of a sheet, so that few images are not larger than many
INCHES = 0.74  # width of an image
LABEL_SHARE, GAP_SHARE = 0.26, 0.06  # of its width: space above and beside it
SHORT = 12  # characters of a class above an image
FEW_GAMMAS = 5
MOST_GAMMAS = 24  # that have space for their numbers
RANGES = 20  # number of ranges that show more gammas


@styled
def anchor_images(model: Model, shape: ImageShape) -> Picture:
    """The anchors with the largest weights as images in the units of the data, each with its class and its share of the
    weight."""
    from matplotlib.figure import Figure

    chosen, shares = heaviest(model, MOST)
    images = _images(model, model.anchors[chosen], shape)
    labels = model.classes[codes_at(model, model.anchors[chosen])].tolist()
    sheet, places = _sheet(images, math.ceil(LABEL_SHARE * shape[1]), math.ceil(GAP_SHARE * shape[1]))
    width = INCHES * max(FEWEST, sheet.shape[1] / shape[1])
    figure = Figure(figsize=(width, width * sheet.shape[0] / sheet.shape[1]))
    figure.set_layout_engine("none")
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.axis("off")
    axes.imshow(sheet, cmap="gray_r", vmin=0.0, vmax=1.0, interpolation="nearest", aspect="auto")
    for (top, left), label, share in zip(places, labels, shares, strict=True):
        text = f"{plain(label, SHORT)}  {100 * share:.1f} %"
        axes.text(left + shape[1] / 2 - 0.5, top - 0.05 * shape[1] - 0.5, text, ha="center", va="bottom", fontsize=6.5)
    whole = "All" if len(chosen) == model.n_kernels else f"The {len(chosen)} heaviest of {model.n_kernels:,}"
    projection = model.preprocessor.projection
    held = "" if projection is None else "principal components" if projection.orthonormal else "learned directions"
    projected = f" reconstructed from the {held}," if held else ""
    unit = " without their norms," if model.preprocessor.scaling.kind == "unit-norm" else ""
    caption = (
        f"{whole} anchors as images,{projected}{unit} each with its predicted class and its share of the"
        " weight. The same image may be the anchor of several kernels, of different gammas."
    )
    return embedded(
        figure, f"{len(chosen)} anchors as images of {'x'.join(map(str, shape))}", caption, dpi=150, wide=True
    )


def _sheet(images: NDArray[np.float64], label: int, gap: int) -> tuple[NDArray[np.float64], list[tuple[int, int]]]:
    """Images in rows on white, with space for a label above each; and the position of the first pixel of each."""
    height, width = images.shape[1] + label, images.shape[2] + gap
    columns = min(COLUMNS, max(FEWEST, len(images)))
    rows = -(-len(images) // columns)
    white = 0.0 if images.ndim == 3 else 1.0  # the map of greys is reversed: pixels are ink
    sheet = np.full((rows * height + gap, columns * width + gap, *images.shape[3:]), white)
    places = []
    for number, image in enumerate(images):
        row, column = divmod(number, columns)
        top, left = row * height + label, column * width + gap
        sheet[top : top + images.shape[1], left : left + images.shape[2]] = image
        places.append((top, left))
    return sheet, places


def _images(model: Model, anchors: NDArray[Any], shape: ImageShape) -> NDArray[np.float64]:
    """Anchors in the units of the data, scaled to 0 .. 1 by one range for all, except a few outliers."""
    rows = model.preprocessor.invert(anchors)
    low, high = np.percentile(rows, [0.5, 99.5])
    scaled = np.clip((rows - low) / (high - low or 1.0), 0.0, 1.0)
    images: NDArray[np.float64] = scaled.reshape(-1, *shape)
    return images


def kernel_pictures(model: Model, facts: Description) -> list[Picture]:
    """The chosen gammas, and the cumulative weights in decreasing order."""
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
    spare = max(0.0, FEW_GAMMAS - len(shown)) / 2  # few bars are not wider than several
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
    """Many gammas, such as those of learned kernels, in ranges of equal width on a logarithmic scale."""
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
    axes.set(xlabel="kernels, by decreasing weight", ylabel="share of the weight, %", ylim=(0, 103))
    axes.set_xlim(0, max(2, len(weights)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    caption = f"The cumulative weight of the kernels: {half:,} of {len(weights):,} kernels have half of the weight."
    return embedded(figure, caption, caption)
