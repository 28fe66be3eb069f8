"""Numbers and tables in single precision, for the C header and for ONNX runtimes without double precision.

Rounding changes edges, origins and factors of cells. A polynomial is therefore rewritten in the rounded variable,

    x = (t - o) f = a x' + b,     x' = (t - o') f',    a = f / f',  b = (o' - o) f

in double precision. Cells that shrink to a point in single precision are left out.
"""

from __future__ import annotations

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.errors import ParameterError
from mllkm_scale.export.layout import TableLayout

__all__ = ["require_single", "single_tables", "substituted"]


def require_single(values: Array, what: str) -> Array:
    """The values in single precision; an error if the largest one exceeds its range."""
    with np.errstate(over="ignore", under="ignore"):
        single = values.astype(np.float32)
    overflown = np.isinf(single).sum() > np.isinf(values).sum()
    vanished = values.any() and not single.any()
    if overflown or vanished:
        largest = np.abs(values[np.isfinite(values)]).max()
        raise ParameterError(
            f"{what} is up to {largest:.2g}, which single precision cannot hold: train with scaling='standard',"
            " or export to NPZ, or to ONNX in double precision"
        )
    return single


def single_tables(tables: TableLayout) -> TableLayout:
    """The same tables in float32."""
    edges = require_single(tables.edges, "an edge of the tables")
    counts = np.diff(tables.starts)
    feature = np.repeat(np.arange(len(counts)), counts)
    left = np.arange(tables.cells) + feature
    kept = np.flatnonzero(edges[left] < edges[left + 1])
    variables = require_single(tables.variables[kept], "a variable of the tables")
    o, f = tables.variables[kept].T
    coefficients = substituted(tables.coefficients[kept], f / variables[:, 1], (variables[:, 0] - o) * f)
    numbers = np.bincount(feature[kept], minlength=len(counts))
    own = [np.append(left[kept][feature[kept] == l], tables.starts[l + 1] + l) for l in range(len(counts))]
    return TableLayout(
        starts=np.concatenate([[0], np.cumsum(numbers)]).astype(np.int64),
        edges=edges[np.concatenate(own)],
        variables=variables,
        coefficients=require_single(coefficients, "a coefficient of the tables"),
    )


def substituted(coefficients: Array, a: Array, b: Array) -> Array:
    """Coefficients (cells, K, degree + 1) of p(a x + b), for each cell its a and b.

    >>> substituted(np.array([[[1.0, 0.0, 3.0]]]), np.array([2.0]), np.array([1.0])).tolist()
    [[[4.0, 12.0, 12.0]]]
    """
    a, b = a[:, None, None], b[:, None, None]
    degree = coefficients.shape[2] - 1
    found = np.zeros_like(coefficients)
    found[:, :, 0] = coefficients[:, :, degree]
    for power in range(degree - 1, -1, -1):
        higher = a * found[:, :, :-1]
        found *= b
        found[:, :, 1:] += higher
        found[:, :, 0] += coefficients[:, :, power]
    return found
