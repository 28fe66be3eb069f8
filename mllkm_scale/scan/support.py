"""The support of a scan: rows and signed duals, and the arrays computed from them for the anchors.

The rows are in memory, or in a file if there are too many. The file stores rows, which are read in runs, or columns,
which component-wise kernels read one by one.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import DTypeLike

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.files.archive import read_archive, write_archive
from mllkm_scale.errors import ClusterError
from mllkm_scale.kernels.maps import MapName
from mllkm_scale.kernels.picked_rows import Rows
from mllkm_scale.scan.matrix_file import ColumnFile, MatrixFile, write_columns, write_rows

if TYPE_CHECKING:
    from mllkm_scale.scan.component.sums import ComponentSums

__all__ = ["PART_ROWS", "Buffers", "Support", "SupportPart", "part_rows"]

_making = threading.Lock()
_WHOLE = 0.7  # share of the rows from which on a class takes all of them: zeros cost less than picking

PART_ROWS = 2048
"""Rows of a part for several classes, each of which uses some; half as many for one class, which uses all.

With this size, the operands of a product stay in the caches of a core.
"""


def part_rows(n_classes: int) -> int:
    return PART_ROWS if n_classes > 1 else max(1, PART_ROWS // 2)


class Buffers(threading.local):
    """Arrays that a thread reuses: new memory from the system costs more than the work done in it."""

    def __init__(self) -> None:
        self._flat: dict[str, Array] = {}

    def get(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """An array with arbitrary contents."""
        size = math.prod(shape)
        flat = self._flat.get(name)
        if flat is None or flat.size < size or flat.dtype != dtype:
            flat = self._flat[name] = np.empty(size, dtype)
        return flat[:size].reshape(shape)


class SupportPart:
    """Some rows of a support; for each class, `rows` are those with a nonzero dual, or None for all.

    It belongs to the thread that requested it, until that thread requests the next part.
    """

    def __init__(self, X: Array, signed_duals: Array, buffers: Buffers, keeps: bool) -> None:
        self.X, self.signed_duals, self._buffers, self._keeps = X, signed_duals, buffers, keeps
        self.squares: Array = np.einsum("ij,ij->i", X, X)
        self.rows = [_picked(a) for a in signed_duals.T]
        self._factors: dict[int, Array] = {}

    def factor(self, k: int) -> Array:
        """Rows a_i [x_i, 1] of class k; kept for further blocks of anchors, or written over the previous ones."""
        if not self._keeps:
            return self._factor(k, "factor")
        if k not in self._factors:
            self._factors[k] = self._factor(k, f"factor {k}")
        return self._factors[k]

    def _factor(self, k: int, name: str) -> Array:
        X, a, at = self.X, self.signed_duals[:, k], self.rows[k]
        if at is not None:
            X, a = X[at], a[at]
        factor = self._buffers.get(name, (len(X), X.shape[1] + 1), X.dtype)
        factor[:, -1] = a
        np.multiply(X, factor[:, -1:], out=factor[:, :-1])
        return factor


def _picked(a: Array) -> Array | None:
    at = np.flatnonzero(a)
    return at if len(at) < _WHOLE * len(a) else None


@dataclass(frozen=True)
class Support:
    """The samples with a nonzero dual in some class: rows (n_sv, d) less `origin`, and a = alpha y (n_sv, K).

    The forms depend on differences of rows only. Relative to the mean of the support, the rows are as short as
    possible, and single precision loses least.
    """

    rows: Array | MatrixFile | ColumnFile
    signed_duals: Array
    origin: Array

    @classmethod
    def of(
        cls,
        X: Rows,
        signed_duals: Array,
        dtype: np.dtype[Any],
        file: Path | None = None,
        *,
        by_column: bool = False,
    ) -> Support:
        """Build the support, with rows in memory or in `file`, there possibly by column; X may be on disk."""
        n, height = len(X), part_rows(signed_duals.shape[1])
        runs = [slice(start, start + height) for start in range(0, n, height)]
        total = sum((X[run].sum(axis=0, dtype=np.float64) for run in runs), np.zeros(X[:0].shape[1]))
        origin = total / max(1, n)

        def centred(run: slice) -> Array:
            x = X[run]
            return np.subtract(x, origin, out=np.empty(x.shape, dtype), casting="same_kind")

        rows: Array | MatrixFile | ColumnFile
        if file is None:
            rows = np.empty((n, len(origin)), dtype)
            for run in runs:
                rows[run] = centred(run)
        else:
            write = write_columns if by_column else write_rows
            rows = write(file, map(centred, runs), (n, len(origin)), dtype, height)
        return cls(rows, np.ascontiguousarray(signed_duals, np.float64), origin)

    def __len__(self) -> int:
        return len(self.signed_duals)

    @property
    def n_classes(self) -> int:
        return int(self.signed_duals.shape[1])

    @property
    def n_features(self) -> int:
        return len(self.origin)

    @property
    def X(self) -> Array:
        """All rows, if they are in memory."""
        if not isinstance(self.rows, np.ndarray):
            raise TypeError("the rows of this support are in a file, and are read in parts")
        return self.rows

    @property
    def file(self) -> Path | None:
        """The file of the rows, if they are in one."""
        return None if isinstance(self.rows, np.ndarray) else self.rows.path

    def relative(self, anchors: Array) -> Array:
        """Anchors relative to the origin, in the precision of the rows."""
        return np.ascontiguousarray(anchors - self.origin, self.rows.dtype)

    def parts(self, keep: bool = False) -> Iterator[SupportPart]:
        """Iterate over runs of rows; if they serve several blocks of anchors, each run keeps its factors."""
        rows, buffers, height = self.rows, self.buffers, part_rows(self.n_classes)
        for i, start in enumerate(range(0, len(self), height)):
            duals = self.signed_duals[start : start + height]
            if isinstance(rows, MatrixFile):
                x = rows.read(i, buffers.get("rows", (len(duals), self.n_features), rows.dtype))
            else:
                x = self.X[start : start + height]
            yield SupportPart(x, duals, buffers, keep)

    @property
    def buffers(self) -> Buffers:
        """Buffers for the blocks that this thread scans."""
        return self._buffers

    @cached_property
    def _buffers(self) -> Buffers:
        return Buffers()

    def component_sums(self, map: MapName, gammas: Array) -> ComponentSums:
        """The tables for component-wise kernels of this map; all threads of a process share them.

        For columns in a file, each pass over the columns computes them, and keeps one at a time.
        """
        from mllkm_scale.scan.component.sums import ComponentSums, make_columns

        if isinstance(self.rows, ColumnFile):
            columns = (self.rows.column(l) for l in range(self.n_features))
            walk = make_columns(map, columns, self.signed_duals, gammas)
            return ComponentSums(walk, len(gammas), self.n_classes)
        key = (map, np.asarray(gammas, dtype=np.float64).tobytes())
        with _making:  # one thread makes them, and the others wait for it
            made = self._component_sums.get(key)
            if made is None:
                made = self._component_sums[key] = ComponentSums.of(map, self.X, self.signed_duals, gammas)
            return made

    @cached_property
    def _component_sums(self) -> dict[tuple[MapName, bytes], ComponentSums]:
        return {}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an archive file, which names the file of the rows if they are in one."""
        arrays = {"signed_duals": self.signed_duals, "origin": self.origin}
        header: dict[str, Any] = {}
        if isinstance(self.rows, np.ndarray):
            arrays["rows"] = self.rows
        else:
            header, arrays["checksums"] = self.rows.header, self.rows.checksums
        write_archive(path, kind="Support", version=1, header=header, arrays=arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        header, arrays = read_archive(path, kind="Support", version=1, error=ClusterError)
        rows: Array | MatrixFile | ColumnFile
        if "rows" in arrays:
            rows = arrays["rows"]
        else:
            kind = ColumnFile if "columns_of" in header else MatrixFile
            rows = kind.of(header, arrays["checksums"])
        return cls(rows, arrays["signed_duals"], arrays["origin"])

    def __getstate__(self) -> dict[str, Any]:
        """The arrays only: the receiver recomputes everything else."""
        return {spec.name: getattr(self, spec.name) for spec in fields(self)}
