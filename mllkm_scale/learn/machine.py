"""The machine that is learned: local predictors, anchors, scales, and the metric, in one array of parameters.

    f_k(x) = sum_m h(gamma_m; |z - c_m|) (<z, w_mk> + b_mk)           z = metric(x),  c_m = metric(a_m)     (global)
    f_k(x) = sum_m sum_l h(gamma_m; |z_l - c_ml|) (z_l - c_ml) w_mkl + b_mk mean_l h(...)           (component-wise)

The metric is a scaling z = e^theta x ("diagonal"), a linear map z = M x ("full", or a number of its rows), or nothing
(None). Anchors a_m are points in the space of x, so that c_m follows the metric. Scales are stored as log gamma, which
keeps them positive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import DTypeLike

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.grid import Family

__all__ = ["Layout", "LearnedMachine", "Metric"]

Metric = str | int | None


@dataclass(frozen=True)
class Layout:
    """The sizes of a machine, and the positions of its parameters in the array of all parameters."""

    family: Family
    n_kernels: int
    n_features: int  # of x
    n_outputs: int  # K
    metric: Metric

    @property
    def n_mapped(self) -> int:
        """Number of features of z."""
        return self.metric if isinstance(self.metric, int) else self.n_features

    @property
    def linear(self) -> bool:
        """Whether the metric is a matrix."""
        return self.metric == "full" or isinstance(self.metric, int)

    @property
    def width(self) -> int:
        """Number of parameters of a local predictor: w and b."""
        return self.n_mapped + 1

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each group of parameters, in order."""
        shapes: dict[str, tuple[int, ...]] = {
            "predictors": (self.n_kernels, self.n_outputs * self.width),
            "anchors": (self.n_kernels, self.n_features),
            "log_gammas": (self.n_kernels,),
        }
        if self.linear:
            shapes["metric"] = (self.n_mapped, self.n_features)
        elif self.metric is not None:
            shapes["metric"] = (self.n_features,)
        return shapes

    @cached_property
    def runs(self) -> dict[str, slice]:
        """Position of each group."""
        runs, start = {}, 0
        for name, shape in self.shapes.items():
            runs[name] = slice(start, start + math.prod(shape))
            start = runs[name].stop
        return runs

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def views(self, values: Array) -> dict[str, Array]:
        """The groups of an array of all parameters, as views."""
        return {name: values[run].reshape(self.shapes[name]) for name, run in self.runs.items()}


class LearnedMachine:
    """A layout and the values of its parameters."""

    def __init__(self, layout: Layout, values: Array) -> None:
        self.layout, self.values = layout, values
        parts = layout.views(values)
        self.predictors, self.anchors, self.log_gammas = parts["predictors"], parts["anchors"], parts["log_gammas"]
        self.metric = parts.get("metric")

    @classmethod
    def zeros(cls, layout: Layout, dtype: DTypeLike = np.float32) -> LearnedMachine:
        """All parameters are zero, except a linear metric, which is the identity (or its first rows)."""
        machine = cls(layout, np.zeros(layout.size, dtype))
        if layout.linear and machine.metric is not None:
            machine.metric[:] = np.eye(*machine.metric.shape)
        return machine

    @property
    def gammas(self) -> Array:
        return np.exp(self.log_gammas)

    def map(self, X: Array, out: Array | None = None) -> Array:
        """z of every row."""
        if self.metric is None:
            if out is None:
                return X
            out[:] = X
            return out
        if self.layout.linear:
            return np.matmul(X, self.metric.T, out=out)
        return np.multiply(X, np.exp(self.metric), out=out)

    @property
    def mapped_anchors(self) -> Array:
        """c of every kernel, (s, features of z), in double precision."""
        values = self.values.astype(np.float64)
        return LearnedMachine(self.layout, values)._mapped_anchors()

    def _mapped_anchors(self) -> Array:
        return np.array(self.map(self.anchors))

    def local_predictors(self) -> tuple[Array, Array]:
        """coef (K, s, features of z) and local_coef (K, s) of f = sum_m h_m (<z - c_m, coef> + local_coef)."""
        layout = self.layout
        table = self.predictors.astype(np.float64).reshape(layout.n_kernels, layout.n_outputs, layout.width)
        coef, local_coef = np.ascontiguousarray(table[:, :, :-1].transpose(1, 0, 2)), table[:, :, -1].T.copy()
        if not layout.family.componentwise:
            local_coef += np.einsum("ksd,sd->ks", coef, self.mapped_anchors)
        return coef, local_coef

    def copy(self) -> LearnedMachine:
        return LearnedMachine(self.layout, self.values.copy())
