"""Rows to check an exported machine with: raw rows on and between its anchors, one far away, and one of zeros.

A model does not hold the samples it was trained on, but anchors can be taken back to raw features: exactly without a
projection, with one to a row that is projected onto the anchor, and otherwise to a row near it.
"""

from __future__ import annotations

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.model.model import Model

__all__ = ["probe_rows"]


_FAR = 3.0  # times as far from the first anchor as the last one


def probe_rows(model: Model, n_anchors: int = 3) -> Array:
    """Raw rows (n, n_features_in) that float32 holds exactly, so that every target can be given the same.

    Examples
    --------
    >>> from mllkm_scale import MLLKMClassifier
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], ["near", "near", "far", "far"]
    >>> rows = probe_rows(MLLKMClassifier().fit(X, y).model_)
    >>> rows.shape[1], bool((rows == rows.astype(np.float32)).all())
    (2, True)
    """
    picked = np.unique(np.linspace(0, model.n_kernels - 1, n_anchors).astype(int))
    rows = model.preprocessor.invert(model.anchors[picked])
    between = 0.5 * (rows[:-1] + rows[1:])
    away = rows[:1] + _FAR * (rows[-1:] - rows[:1])
    found = np.concatenate([rows, between, away, np.zeros((1, model.n_features_in))])
    with np.errstate(over="ignore"):
        found = found.astype(np.float32).astype(np.float64)
    return found[np.isfinite(found).all(axis=1)]
