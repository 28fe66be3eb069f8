"""The scan of a block of anchors: q_m for every gamma, summed over the classes.

global (F1):     V = (H * a)^T X - rowsum(H * a) * C,   q = |V|^2 + b rowsum^2;   no Gram matrix, one product for each
                 gamma and class; the distances are shared by all gammas and classes. Of the maps that vanish beyond
                 a radius, kernels that reach few samples are summed over these alone
component-wise:  one-dimensional sums (F4), from tables that are made once for a support
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import MapName, falls_exponentially
from mllkm_scale.scan.fast_bumps import bumps_of_gammas, distances
from mllkm_scale.scan.near import add_near, count_near, near_share
from mllkm_scale.scan.support import Buffers, Support, SupportPart

__all__ = ["scan_block"]

Array = NDArray[Any]


def scan_block(family: Family, anchors: Array, gammas: Array, scales: Array, support: Support) -> Array:
    """q (anchors, gammas) in double precision; the products run in the precision of the support."""
    anchors = support.relative(anchors)
    if family.componentwise:
        return scales * _component_forms(family, anchors, gammas, support)
    if falls_exponentially(family.map):
        return scales * _global_forms(family, anchors, gammas, support)
    widest_first = np.argsort(gammas)
    q = np.empty((len(anchors), len(gammas)))
    q[:, widest_first] = _global_forms(family, anchors, gammas[widest_first], support)
    return scales * q


def _global_forms(family: Family, anchors: Array, gammas: Array, support: Support) -> Array:
    n_classes, (n, d) = support.signed_duals.shape[1], anchors.shape
    V = support.buffers.get("sums", (n_classes, len(gammas), n, d + 1), anchors.dtype)
    V.fill(0.0)
    for part in support.parts:
        _add_part(V, family, anchors, gammas, support, part)
    r = V[..., d]
    q = np.zeros((n, len(gammas)))
    for v in V:
        v[..., :d] -= v[..., d:] * anchors
        q += np.einsum("gij,gij->ig", v[..., :d], v[..., :d])
    return q + family.local_bias * np.einsum("kgi,kgi->ig", r, r, dtype=np.float64)


def _add_part(V: Array, family: Family, anchors: Array, gammas: Array, support: Support, part: SupportPart) -> None:
    """Add sum_i h(|x_i - c|) a_i [x_i, 1] over the part, for every class and gamma; of bounded maps, widest first."""
    X, buffers = support.X[part.rows], support.buffers
    n, G, B = len(X), len(gammas), len(anchors)
    t = distances(family.map, X, anchors, out=buffers.get("distances", (n, B), X.dtype))
    if falls_exponentially(family.map):
        _add_products(V, family.map, t, gammas, X, part, buffers)
        return
    most, gammas = int(near_share(X.shape[1]) * t.size), gammas.astype(t.dtype)
    counts = buffers.get("counts", (G, B), np.int32)
    wide = count_near(t, gammas, most, counts)
    if wide:
        _add_products(V[:, :wide], family.map, t, gammas[:wide], X, part, buffers)
    if wide < G:
        rows, reach = buffers.get("near", (most,), np.uint32), buffers.get("reach", (most,), t.dtype)
        add_near(X, support.signed_duals[part.rows], t, gammas, wide, counts, rows, reach, V)


def _add_products(
    V: Array, map: MapName, t: Array, gammas: Array, X: Array, part: SupportPart, buffers: Buffers
) -> None:
    """The same by a product for each class."""
    (n, B), G, width = t.shape, len(gammas), V.shape[-1]
    H = bumps_of_gammas(map, t, gammas, out=buffers.get("bumps", (n, G, B), X.dtype)).reshape(n, G * B)
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
