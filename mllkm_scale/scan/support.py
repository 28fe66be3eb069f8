"""The support of a scan: rows and signed duals, and what is made of them once for all anchors."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mllkm_scale.crew import PlainArrays
from mllkm_scale.kernels.maps import MapName

if TYPE_CHECKING:
    from mllkm_scale.scan.component import ComponentSums

__all__ = ["PART_ROWS", "Buffers", "Support", "SupportPart"]

Array = NDArray[Any]

_making = threading.Lock()
_WHOLE = 0.7  # share of the rows from which on a class takes all of them: zeros cost less than picking

PART_ROWS = 2048


class Buffers(threading.local):
    """Arrays of a thread that are used again: memory that the system gives anew costs more than what is done in it."""

    def __init__(self) -> None:
        self._flat: dict[str, Array] = {}

    def get(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """An array with whatever was in it before."""
        size = math.prod(shape)
        flat = self._flat.get(name)
        if flat is None or flat.size < size or flat.dtype != dtype:
            flat = self._flat[name] = np.empty(size, dtype)
        return flat[:size].reshape(shape)


@dataclass(frozen=True)
class SupportPart:
    """Some rows of a support; for each class, which of them have a dual (None for all), and the duals."""

    rows: slice
    classes: list[tuple[Array | None, Array]]

    @classmethod
    def of(cls, rows: slice, signed_duals: Array) -> SupportPart:
        classes: list[tuple[Array | None, Array]] = []
        for a in signed_duals[rows].T:
            at = np.flatnonzero(a)
            classes.append((at, a[at]) if len(at) < _WHOLE * len(a) else (None, a.copy()))
        return cls(rows, classes)


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
        rows = np.subtract(X, origin, out=np.empty(X.shape, dtype), casting="same_kind")
        return cls(rows, np.ascontiguousarray(signed_duals, np.float64), origin)

    def relative(self, anchors: Array) -> Array:
        """Anchors as seen from the origin, in the precision of the rows."""
        return np.ascontiguousarray(anchors - self.origin, self.X.dtype)

    @cached_property
    def parts(self) -> list[SupportPart]:
        """Runs of PART_ROWS rows: what is made of one in a scan stays in the caches of a core."""
        starts = range(0, len(self.X), PART_ROWS)
        return [SupportPart.of(slice(start, start + PART_ROWS), self.signed_duals) for start in starts]

    @property
    def buffers(self) -> Buffers:
        """Room for the blocks that this thread scans."""
        return self._buffers

    @cached_property
    def _buffers(self) -> Buffers:
        return Buffers()

    def component_sums(self, map: MapName, gammas: Array) -> ComponentSums:
        """The tables for component-wise kernels of this map; all threads of a process get the same ones."""
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
