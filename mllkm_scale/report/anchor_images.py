"""The heaviest anchors of a model as images, where a row of features is one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.image_shape import ImageShape
from mllkm_scale.model.model import Model
from mllkm_scale.report.picture import Picture, embedded
from mllkm_scale.report.prepared_space import codes_at, heaviest, plain
from mllkm_scale.report.style import styled

__all__ = ["anchor_images"]

MOST = 60
COLUMNS = 10
FEWEST = 4  # columns of a sheet, so that few images are no larger than many
INCHES = 0.74  # width of an image
LABEL_SHARE, GAP_SHARE = 0.26, 0.06  # of its width: room above it, and beside
SHORT = 12  # letters of a class above an image


@styled
def anchor_images(model: Model, shape: ImageShape) -> Picture:
    """A sheet of the heaviest anchors in the units of the data, each with its class and its share of the weight."""
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
    projected = f" as far as the {held} hold them," if held else ""
    unit = " without their norms," if model.preprocessor.scaling.kind == "unit-norm" else ""
    caption = (
        f"{whole} anchors as images,{projected}{unit} each with the class that the model gives it and its share of the"
        " weight. The same image may be the anchor of several kernels, of different gammas."
    )
    return embedded(
        figure, f"{len(chosen)} anchors as images of {'x'.join(map(str, shape))}", caption, dpi=150, wide=True
    )


def _sheet(images: NDArray[np.float64], label: int, gap: int) -> tuple[NDArray[np.float64], list[tuple[int, int]]]:
    """Images in rows on white, with room above each for its label; and where the first pixel of each is."""
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
    """Anchors in the units of the data, and then from 0 to 1: one range for all, but for a few outliers."""
    rows = model.preprocessor.invert(anchors)
    low, high = np.percentile(rows, [0.5, 99.5])
    scaled = np.clip((rows - low) / (high - low or 1.0), 0.0, 1.0)
    images: NDArray[np.float64] = scaled.reshape(-1, *shape)
    return images
