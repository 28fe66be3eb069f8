"""The heaviest anchors of a model as images, where a row of features is one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.model.model import Model
from mllkm_scale.pictures import styled
from mllkm_scale.report.image_shape import ImageShape
from mllkm_scale.report.picture import Picture, embedded
from mllkm_scale.report.prepared_space import codes_at, heaviest, plain

__all__ = ["anchor_images"]

MOST = 60
COLUMNS = 10
SHORT = 12  # letters of a class above an image


@styled
def anchor_images(model: Model, shape: ImageShape) -> Picture:
    """A sheet of the heaviest anchors in the units of the data, each with its class and its share of the weight."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    chosen, shares = heaviest(model, MOST)
    images = _images(model, model.anchors[chosen], shape)
    labels = model.classes[codes_at(model, model.anchors[chosen])]
    columns = min(COLUMNS, len(chosen))
    rows = math.ceil(len(chosen) / columns)
    tall = 0.8 * min(2.0, shape[0] / shape[1]) + 0.2
    layout = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.02)
    figure = Figure(figsize=(0.8 * max(columns, 4), rows * tall), layout=layout)
    panels = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for panel in panels:
        panel.axis("off")
    for panel, image, label, share in zip(panels, images, labels.tolist(), shares, strict=False):
        panel.imshow(image, cmap="gray_r", vmin=0.0, vmax=1.0, interpolation="nearest", aspect="equal")
        panel.set_title(f"{plain(label, SHORT)}  {100 * share:.1f} %", fontsize=6.5, pad=2.0)
    whole = "All" if len(chosen) == model.n_kernels else f"The {len(chosen)} heaviest of {model.n_kernels:,}"
    projected = " as far as the principal components hold them," if model.preprocessor.projection is not None else ""
    unit = " without their norms," if model.preprocessor.scaling.kind == "unit-norm" else ""
    caption = (
        f"{whole} anchors as images,{projected}{unit} each with the class that the model gives it and its share of the"
        " weight. The same image may be the anchor of several kernels, of different gammas."
    )
    return embedded(
        figure, f"{len(chosen)} anchors as images of {'x'.join(map(str, shape))}", caption, dpi=150, wide=True
    )


def _images(model: Model, anchors: NDArray[Any], shape: ImageShape) -> NDArray[np.float64]:
    """Anchors in the units of the data, and then from 0 to 1: one range for all, but for a few outliers."""
    rows = model.preprocessor.invert(anchors)
    low, high = np.percentile(rows, [0.5, 99.5])
    scaled = np.clip((rows - low) / (high - low or 1.0), 0.0, 1.0)
    images: NDArray[np.float64] = scaled.reshape(-1, *shape)
    return images
