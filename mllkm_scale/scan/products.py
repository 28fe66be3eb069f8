"""The scan of a block of anchors: q_m for every gamma, summed over the classes.

global (F1):     V = (H * a)^T X - rowsum(H * a) * C,   q = |V|^2 + b rowsum^2;   no Gram matrix, one product for each
                 gamma and class; the distances are shared by all gammas and classes
component-wise:  one-dimensional sums (F4), from tables that are made once for a support
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.kernels.grid import Family
from mllkm_scale.scan.fast_bumps import bumps_of_gammas, distances
from mllkm_scale.scan.support import Buffers, Support, SupportPart

__all__ = ["scan_block"]

Array = NDArray[Any]


def scan_block(family: Family, anchors: Array, gammas: Array, scales: Array, support: Support) -> Array:
    """q (anchors, gammas) in double precision; the products run in the precision of the support."""
    unscaled = _component_forms if family.componentwise else _global_forms
    return scales * unscaled(family, support.relative(anchors), gammas, support)


def _global_forms(family: Family, anchors: Array, gammas: Array, support: Support) -> Array:
    n_classes, (n, d) = support.signed_duals.shape[1], anchors.shape
    V = support.buffers.get("sums", (n_classes, len(gammas), n, d + 1), anchors.dtype)
    V.fill(0.0)
    for part in support.parts:
        _add_part(V, family, anchors, gammas, support.X[part.rows], part, support.buffers)
    r = V[..., d]
    q = np.zeros((n, len(gammas)))
    for v in V:
        v[..., :d] -= v[..., d:] * anchors
        q += np.einsum("gij,gij->ig", v[..., :d], v[..., :d])
    return q + family.local_bias * np.einsum("kgi,kgi->ig", r, r, dtype=np.float64)


def _add_part(
    V: Array, family: Family, anchors: Array, gammas: Array, X: Array, part: SupportPart, buffers: Buffers
) -> None:
    """Add sum_i h(|x_i - c|) a_i [x_i, 1] over the part, for every class and gamma."""
    n, G, B, width = len(X), len(gammas), len(anchors), V.shape[-1]
    t = distances(family.map, X, anchors, out=buffers.get("distances", (n, B), X.dtype))
    H = bumps_of_gammas(family.map, t, gammas, out=buffers.get("bumps", (n, G, B), X.dtype)).reshape(n, G * B)
    for k, (at, a) in enumerate(part.classes):
        h, x = H, X
        if at is not None:
            h = np.take(H, at, axis=0, out=buffers.get("picked", (len(at), G * B), X.dtype), mode="clip")
            x = X[at]
        product = np.matmul(h.T, _times_duals(x, a), out=buffers.get("product", (G * B, width), X.dtype))
        V[k] += product.reshape(G, B, width)


def _times_duals(X: Array, a: Array) -> Array:
    """Rows a_i [x_i, 1]."""
    factor = np.empty((len(X), X.shape[1] + 1), X.dtype)
    factor[:, -1] = a
    np.multiply(X, factor[:, -1:], out=factor[:, :-1])
    return factor


def _component_forms(family: Family, anchors: Array, gammas: Array, support: Support) -> Array:
    return support.component_sums(family.map, gammas).forms(anchors, family.local_bias)
