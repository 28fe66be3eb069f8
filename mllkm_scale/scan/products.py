"""The scan of blocks of anchors: q_m for every gamma, summed over the classes.

global (F1):     V = (H * a)^T X - rowsum(H * a) * C,   q = |V|^2 + b rowsum^2;   no Gram matrix, one product per
                 gamma and class; all gammas and classes share the distances. For maps that vanish beyond a radius,
                 kernels that reach few samples are summed over these samples only
component-wise:  one-dimensional sums (F4), from tables of the columns of the support
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import MapName, falls_exponentially
from mllkm_scale.scan.fast_bumps import add_forms, bumps_of_gammas, distances
from mllkm_scale.scan.near import add_near, count_near, near_share
from mllkm_scale.scan.support import Buffers, Support, SupportPart

__all__ = ["scan_block", "scan_blocks"]


def scan_block(family: Family, anchors: Array, gammas: Array, scales: Array, support: Support) -> Array:
    """q (anchors, gammas) in double precision; the products run in the precision of the support."""
    return scan_blocks(family, [anchors], gammas, [scales], support)[0]


def scan_blocks(
    family: Family, blocks: Sequence[Array], gammas: Array, scales: Sequence[Array], support: Support
) -> list[Array]:
    """The same for several blocks of anchors, in one pass over the support; the bits are those of separate scans."""
    blocks = [support.relative(anchors) for anchors in blocks]
    if family.componentwise:
        forms = support.component_sums(family.map, gammas).forms_of_blocks(blocks, family.local_bias)
    elif falls_exponentially(family.map):
        forms = _global_forms(family, blocks, gammas, support)
    else:
        widest_first = np.argsort(gammas)
        given_order = np.argsort(widest_first)
        forms = [q[:, given_order] for q in _global_forms(family, blocks, gammas[widest_first], support)]
    return [factors * q for factors, q in zip(scales, forms, strict=True)]


def _global_forms(family: Family, blocks: list[Array], gammas: Array, support: Support) -> list[Array]:
    (n_classes, d), buffers = (support.n_classes, support.n_features), support.buffers
    sums = []
    for i, anchors in enumerate(blocks):
        sums.append(buffers.get(f"sums {i}", (n_classes, len(gammas), len(anchors), d + 1), anchors.dtype))
        sums[i].fill(0.0)
    for part in support.parts(keep=len(blocks) > 1):
        for V, anchors in zip(sums, blocks, strict=True):
            _add_part(V, family, anchors, gammas, part, buffers)
    forms = [np.zeros((len(anchors), len(gammas))) for anchors in blocks]
    for q, V, anchors in zip(forms, sums, blocks, strict=True):
        add_forms(V, anchors, family.local_bias, q)
    return forms


def _add_part(V: Array, family: Family, anchors: Array, gammas: Array, part: SupportPart, buffers: Buffers) -> None:
    """Add sum_i h(|x_i - c|) a_i [x_i, 1] over the part, for every class and gamma; for bounded maps, widest first."""
    X = part.X
    n, G, B = len(X), len(gammas), len(anchors)
    t = distances(family.map, X, anchors, part.squares, out=buffers.get("distances", (n, B), X.dtype))
    if falls_exponentially(family.map):
        _add_products(V, family.map, t, gammas, part, buffers)
        return
    most, gammas = int(near_share(X.shape[1]) * t.size), gammas.astype(t.dtype)
    counts = buffers.get("counts", (G, B), np.int32)
    wide = count_near(t, gammas, most, counts)
    if wide:
        _add_products(V[:, :wide], family.map, t, gammas[:wide], part, buffers)
    if wide < G:
        rows, reach = buffers.get("near", (most,), np.uint32), buffers.get("reach", (most,), t.dtype)
        add_near(X, part.signed_duals, t, gammas, wide, counts, rows, reach, V)


def _add_products(V: Array, map: MapName, t: Array, gammas: Array, part: SupportPart, buffers: Buffers) -> None:
    """The same by one product per class.

    If a class has duals for some rows only, its bumps are computed separately. This takes no longer than copying them,
    and they stay in the cache for the product.
    """
    (n, B), G, width = t.shape, len(gammas), V.shape[-1]
    of_all: Array | None = None
    for k, rows in enumerate(part.rows):
        if rows is not None:
            H = bumps_of_gammas(map, t, gammas, rows, buffers.get("picked", (len(rows), G, B), t.dtype))
        else:
            if of_all is None:
                of_all = bumps_of_gammas(map, t, gammas, out=buffers.get("bumps", (n, G, B), t.dtype))
            H = of_all
        product = buffers.get("product", (G * B, width), t.dtype)
        np.matmul(H.reshape(-1, G * B).T, part.factor(k), out=product)
        V[k] += product.reshape(G, B, width)
