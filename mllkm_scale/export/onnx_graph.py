"""A graph of ONNX operators under construction: constants and nodes get names, and a call reads like the formula."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mllkm_scale.errors import ParameterError
from mllkm_scale.export.single import require_single

__all__ = ["Graph", "import_onnx"]


def import_onnx() -> ModuleType:
    """The package `onnx`, which is not among those that are always installed."""
    try:
        import onnx
    except ImportError as error:
        raise ParameterError(
            'an export to ONNX needs the package onnx: pip install "mllkm-scale[onnx]", or export to C or NPZ'
        ) from error
    module: ModuleType = onnx
    return module


class Graph:
    """Nodes and constants in the order in which they were asked for; every value is known by its name.

    Constants that are not whole numbers are of the type `real`, float32 or float64, in which the graph computes.
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
        """The same value as another type."""
        return self("Cast", value, name=name, to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
