"""The scan of a block of anchors: q_m for every gamma, summed over the classes.

global (F1):     V = (H * a) X - rowsum(H * a) * C,   q = |V|^2 + b rowsum^2;   no Gram matrix, one product per
                 gamma and class; the distances are shared by all gammas and classes
component-wise:  one-dimensional sums (F4), from tables that are made once for a support
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.crew import PlainArrays
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.locally_linear import squared_distances
from mllkm_scale.kernels.maps import MapName, bumps

if TYPE_CHECKING:
    from mllkm_scale.scan.component import ComponentSums

__all__ = ["Support", "scan_block"]

Array = NDArray[Any]

_making = threading.Lock()


@dataclass(frozen=True)
class Support(PlainArrays):
    """The samples with a nonzero dual in some class: rows (n_sv, d) less `origin`, and a = alpha y (n_sv, K).

    The forms depend on differences of rows alone. Measured from the mean of the support, the rows are as short as
    they can be, and single precision loses least.
    """

    X: Array
    signed_duals: Array
    origin: Array

    @classmethod
    def of(cls, X: Array, signed_duals: Array, dtype: np.dtype[Any]) -> Support:
        origin = X.mean(axis=0, dtype=np.float64) if len(X) else np.zeros(X.shape[1])
        rows = np.ascontiguousarray(X - origin, dtype)
        return cls(rows, np.ascontiguousarray(signed_duals, np.float64), origin)

    def relative(self, anchors: Array) -> Array:
        """Anchors as seen from the origin, in the precision of the rows."""
        return np.ascontiguousarray(anchors - self.origin, self.X.dtype)

    @cached_property
    def by_class(self) -> list[tuple[Array, Array, Array]]:
        """For each class: positions of its support vectors, their duals, and their rows."""
        parts = []
        for a in self.signed_duals.T:
            at = np.flatnonzero(a)
            parts.append((at, a[at].astype(self.X.dtype), self.X[at]))
        return parts

    def component_sums(self, map: MapName, gammas: Array) -> ComponentSums:
        """The tables for component-wise kernels of this map; all threads of a process get the same ones."""
        # Compiled loops take 120 MB of libraries, which a worker that scans global kernels does without.
        from mllkm_scale.scan.component import ComponentSums

        key = (map, np.asarray(gammas, dtype=np.float64).tobytes())
        with _making:  # one thread makes them, and the others wait for it
            made = self._component_sums.get(key)
            if made is None:
                made = self._component_sums[key] = ComponentSums.of(map, self.X, self.signed_duals, gammas)
            return made

    @cached_property
    def _component_sums(self) -> dict[tuple[MapName, bytes], ComponentSums]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """The arrays alone: what was made of them is made again where they arrive."""
        return {spec.name: getattr(self, spec.name) for spec in fields(self)}


def scan_block(family: Family, anchors: Array, gammas: Array, scales: Array, support: Support) -> Array:
    """q (anchors, gammas) in double precision; the products run in the precision of the support."""
    unscaled = _component_forms if family.componentwise else _global_forms
    return scales * unscaled(family, support.relative(anchors), gammas, support)


def _global_forms(family: Family, anchors: Array, gammas: Array, support: Support) -> Array:
    D = squared_distances(anchors, support.X)
    H = np.empty_like(D)
    q = np.zeros((len(anchors), len(gammas)))
    for g, gamma in enumerate(gammas):
        bumps(family.map, D, D.dtype.type(gamma), out=H)
        for at, a, X in support.by_class:
            mass = H * a if len(at) == H.shape[1] else H[:, at] * a
            r = mass.sum(axis=1)
            V = mass @ X
            V -= r[:, None] * anchors
            q[:, g] += np.einsum("ij,ij->i", V, V)
            q[:, g] += family.local_bias * r.astype(np.float64) ** 2
    return q


def _component_forms(family: Family, anchors: Array, gammas: Array, support: Support) -> Array:
    return support.component_sums(family.map, gammas).forms(anchors, family.local_bias)
