"""The decision function as a graph of ONNX operators, from raw rows to scores.

    global       D = |z|^2 + |c|^2 - 2 z c',  H = h(D),  f_k = <z, H slope_k> + H (level_k - <c, slope_k>)
    tables       a binary search of a fixed number of steps for the cell, then its polynomial (Horner)
    component-wise without tables: a loop over the features, whose bumps (n, s) are in memory one at a time

No value has more than n (s + 2 K d) entries, with n the rows of a batch. `Graph` names constants and nodes, so that a
call reads like the formula.
"""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.preparation.quantiles import Quantiles
from mllkm_scale.errors import ParameterError
from mllkm_scale.export.layout import Layout, Preparation, TableLayout
from mllkm_scale.export.single import require_single
from mllkm_scale.kernels.distances import ROUNDING
from mllkm_scale.kernels.maps import falls_exponentially, uses_plain_distance
from mllkm_scale.model.calibration import TEMPERATURE, Calibration

__all__ = [
    "Graph",
    "add_component_scores",
    "add_global_scores",
    "add_preparation",
    "add_probabilities",
    "add_table_scores",
    "import_onnx",
]


def import_onnx() -> ModuleType:
    """The package `onnx`, which is optional."""
    try:
        import onnx
    except ImportError as error:
        raise ParameterError(
            'an export to ONNX needs the package onnx: pip install "mllkm-scale[onnx]", or export to C or NPZ'
        ) from error
    module: ModuleType = onnx
    return module


class Graph:
    """Nodes and constants in order of creation; every value is identified by its name.

    Constants that are not whole numbers have the type `real` of the graph, float32 or float64.
    """

    def __init__(self, onnx: ModuleType, real: DTypeLike = np.float64, stem: str = "") -> None:
        self.onnx = onnx
        self.real = np.dtype(real)
        self.stem = stem
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []

    def constant(self, values: Any) -> str:
        """A constant: an array, or a number."""
        array = np.asarray(values, order="C")
        if array.dtype.kind == "f" and self.real == np.float32:
            array = require_single(array, "a number of the model")
        name = f"{self.stem}c{len(self.initializers)}"
        self.initializers.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def __call__(self, operator: str, *inputs: str | float | NDArray[Any], name: str = "", **attributes: Any) -> str:
        """The result of an operator; inputs are names of values, or constants."""
        names = [given if isinstance(given, str) else self.constant(given) for given in inputs]
        result = name or f"{self.stem}v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, names, [result], **attributes))
        return result

    def sum(self, value: str, axis: int, *, keep: bool = False) -> str:
        """The sum over an axis."""
        return self("ReduceSum", value, np.array([axis]), keepdims=int(keep))

    def cast(self, value: str, dtype: DTypeLike, name: str = "") -> str:
        """The value, cast to another type."""
        return self("Cast", value, name=name, to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def add_preparation(graph: Graph, preparation: Preparation, x: str) -> str:
    """z' of raw rows x."""
    if preparation.unit_norm:
        # Divided by the largest entry first, so that no square overflows or vanishes.
        units = graph("Div", x, _without_zero(graph, graph("ReduceMax", graph("Abs", x), axes=[1], keepdims=1)))
        norms = graph("Sqrt", graph.sum(graph("Mul", units, units), 1, keep=True))
        x = graph("Div", units, _without_zero(graph, norms))
    if preparation.columns is not None:
        x = graph("Gather", x, preparation.columns, axis=1)
    centred = graph("Sub", x, preparation.centre)
    if preparation.knots is not None:
        centred = _add_levels(graph, preparation.knots, centred)
    if preparation.matrix is None:
        assert preparation.factors is not None
        z = graph("Mul", centred, preparation.factors)
    else:
        z = graph("MatMul", centred, preparation.matrix.T)
    return graph("Add", z, preparation.shift)


def _add_levels(graph: Graph, knots: Quantiles, x: str) -> str:
    """Columns x (n, p), in which those with knots are mapped; the others come first in the result."""
    plain, mapped = (np.flatnonzero(knots.mapped == has) for has in (False, True))
    starts = knots.take(mapped).starts
    # Slopes are computed from the knots in the precision of the graph; equal knots have none.
    rounded = replace(knots, values=knots.values.astype(graph.real).astype(np.float64))
    with np.errstate(divide="ignore"):
        slopes = rounded.slopes
    slopes[~np.isfinite(slopes)] = 0.0
    values, levels = graph.constant(knots.values), graph.constant(knots.levels)
    firsts, lasts = starts[:-1], starts[1:] - 1
    own = graph("Gather", x, mapped.astype(np.int64), axis=1)
    own = graph("Min", graph("Max", own, knots.values[firsts]), knots.values[lasts])  # constant beyond the knots
    knot = _last_at_or_below(graph, values, firsts, lasts, own)
    rise = graph("Mul", graph("Sub", own, graph("Gather", values, knot)), graph("Gather", slopes, knot))
    level = graph("Add", graph("Gather", levels, knot), rise)
    if not len(plain):
        return level
    both = graph("Concat", graph("Gather", x, plain.astype(np.int64), axis=1), level, axis=1)
    order = np.argsort(np.concatenate([plain, mapped])).astype(np.int64)
    return both if (np.diff(order) == 1).all() else graph("Gather", both, order, axis=1)


def _last_at_or_below(graph: Graph, edges: str, firsts: Array, lasts: Array, z: str) -> str:
    """For each column of z, the last of its edges `firsts` to `lasts` that is not above z, by a binary search."""
    all_lasts = graph.constant(lasts)
    found = graph.constant(firsts[None, :])
    step = 1 << max(int((lasts - firsts).max()).bit_length() - 1, 0)
    while step:
        probe = graph("Min", graph("Add", found, np.array(step)), all_lasts)
        below = graph("LessOrEqual", graph("Gather", edges, probe), z)
        found = graph("Where", below, probe, found)
        step //= 2
    return found


def add_global_scores(graph: Graph, layout: Layout, z: str) -> str:
    """Scores (n, K) of global kernels."""
    s, K, d = layout.slopes.shape
    squared = graph.sum(graph("Mul", z, z), 1, keep=True)
    lengths = graph("Add", squared, np.einsum("sd,sd->s", layout.anchors, layout.anchors))
    distances = graph("Add", lengths, graph("MatMul", z, -2.0 * layout.anchors.T))
    rounding = graph("Mul", lengths, ROUNDING * float(np.finfo(graph.real).eps))
    distances = graph("Where", graph("Less", distances, rounding), 0.0, distances)
    H = _bumps(graph, layout, distances, layout.gammas, squared=True)
    sums = graph("MatMul", H, layout.slopes.reshape(s, K * d))
    sums = graph("Reshape", sums, np.array([-1, K, d]))
    linear = graph.sum(graph("Mul", sums, graph("Unsqueeze", z, np.array([1]))), 2)
    offsets = layout.levels - np.einsum("skd,sd->sk", layout.slopes, layout.anchors)
    return graph("Add", linear, graph("MatMul", H, offsets))


def add_component_scores(graph: Graph, layout: Layout, z: str) -> str:
    """Scores (n, K) of component-wise kernels, feature by feature."""
    _, K, d = layout.slopes.shape
    types, helper = graph.onnx.TensorProto, graph.onnx.helper
    real = helper.np_dtype_to_tensor_dtype(graph.real)
    anchors = graph.constant(layout.anchors.T)
    slopes = graph.constant(layout.slopes.transpose(2, 0, 1))
    levels = graph.constant(layout.levels)
    body = Graph(graph.onnx, graph.real, "body_")
    column = body("Gather", z, "body_l", axis=1)
    offsets = body("Sub", body("Unsqueeze", column, np.array([1])), body("Gather", anchors, "body_l", axis=0))
    H = _bumps(body, layout, offsets, layout.gammas, squared=False)
    linear = body("MatMul", body("Mul", H, offsets), body("Gather", slopes, "body_l", axis=0))
    body("Add", "body_in", body("Add", linear, body("MatMul", H, levels)), name="body_out")
    body("Identity", "body_more", name="body_on")
    loop = helper.make_graph(
        body.nodes,
        "feature",
        [
            helper.make_tensor_value_info("body_l", types.INT64, []),
            helper.make_tensor_value_info("body_more", types.BOOL, []),
            helper.make_tensor_value_info("body_in", real, ["rows", K]),
        ],
        [
            helper.make_tensor_value_info("body_on", types.BOOL, []),
            helper.make_tensor_value_info("body_out", real, ["rows", K]),
        ],
        body.initializers,
    )
    start = graph("MatMul", z, np.zeros((d, K)))
    return graph("Loop", np.array(d), np.array(True), start, body=loop)


def add_table_scores(graph: Graph, tables: TableLayout, z: str) -> str:
    """Scores (n, K) by tables."""
    edges, variables, coefficients, starts = _with_outer_cells(tables)
    firsts, lasts = starts[:-1], starts[1:] - 1
    cell = _last_at_or_below(graph, graph.constant(edges), firsts, lasts, z)
    t = graph("Sub", z, graph("Gather", np.ascontiguousarray(variables[:, 0]), cell))
    t = graph("Mul", t, graph("Gather", np.ascontiguousarray(variables[:, 1]), cell))
    t = graph("Unsqueeze", t, np.array([2]))
    value = graph("Gather", coefficients[:, :, -1], cell)
    for power in range(tables.degree - 1, -1, -1):
        value = graph("Add", graph("Mul", value, t), graph("Gather", coefficients[:, :, power], cell))
    return graph.sum(value, 1)


def _bumps(graph: Graph, layout: Layout, distances: str, gammas: Array, *, squared: bool) -> str:
    """h of squared distances, or of signed ones."""
    if uses_plain_distance(layout.map):
        distances = graph("Sqrt" if squared else "Abs", distances)
    elif not squared:
        distances = graph("Mul", distances, distances)
    if falls_exponentially(layout.map):
        return graph("Exp", graph("Mul", distances, -gammas))
    return graph("Max", graph("Sub", 1.0, graph("Mul", distances, gammas)), 0.0)


def _without_zero(graph: Graph, values: str) -> str:
    return graph("Where", graph("Equal", values, 0.0), 1.0, values)


def _with_outer_cells(tables: TableLayout) -> tuple[Array, Array, Array, NDArray[np.int64]]:
    """Left edges, variables, coefficients and starts, with a zero cell before and after those of each feature."""
    d = len(tables.starts) - 1
    edges = [np.append(-np.inf, tables.edges[tables.starts[l] + l : tables.starts[l + 1] + l + 1]) for l in range(d)]
    starts = np.concatenate([[0], np.cumsum([len(own) for own in edges])]).astype(np.int64)
    inner = np.concatenate([np.arange(tables.starts[l], tables.starts[l + 1]) + 1 + 2 * l for l in range(d)])
    variables = np.zeros((starts[-1], 2))
    coefficients = np.zeros((starts[-1], *tables.coefficients.shape[1:]))
    variables[inner], coefficients[inner] = tables.variables, tables.coefficients
    return np.concatenate(edges), variables, coefficients, starts


def add_probabilities(graph: Graph, calibration: Calibration, scores: str, n_scores: int) -> str:
    """Probabilities (n, c) of scores (n, K); K = 1 for two classes."""
    if n_scores > 1:
        return graph("Softmax", graph("Mul", scores, calibration.slope), axis=1)
    if calibration.method == TEMPERATURE:
        scaled = graph("Mul", scores, calibration.slope)
        return graph("Concat", graph("Sigmoid", graph("Neg", scaled)), graph("Sigmoid", scaled), axis=1)
    second = _add_levels(graph, Quantiles.of([(np.array(calibration.knots), np.array(calibration.levels))]), scores)
    return graph("Concat", graph("Sub", 1.0, second), second, axis=1)
