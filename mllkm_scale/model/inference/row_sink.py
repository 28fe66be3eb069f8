"""Where the converters of whole files put the rows to predict, in the place of an HDF5 file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.data.sparse.reduction import Reduction
from mllkm_scale.errors import DataError
from mllkm_scale.model.inference.blocks import Rows
from mllkm_scale.model.names import MatchedColumns

__all__ = ["RowSink", "Take"]

Take = Callable[[Rows], None]
"""Takes the next rows of a file."""


class RowSink:
    """Takes the array X of a converter, and ignores the others; rows of a sparse format are padded.

    If `columns` are given, only these are taken.
    """

    def __init__(
        self,
        name: str,
        take: Take,
        fill_up_to: int | None,
        columns: MatchedColumns | None,
        reduction: Reduction | None = None,
    ) -> None:
        self.n_rows = 0
        self._reduction = reduction
        self._name, self._take, self._fill_up_to, self._columns = name, take, fill_up_to, columns

    def append(self, name: str, block: NDArray[Any]) -> None:
        if name != "X":
            return
        rows = block if self._fill_up_to is None else _filled_up(block, self._fill_up_to)
        if rows.ndim != 2 or rows.dtype.kind not in "fiub":
            raise DataError(f"{self._name} has X of shape {rows.shape} and type {rows.dtype}: give rows of numbers")
        if self._columns is not None and rows.shape[1] != self._columns.n_columns:
            raise DataError(
                f"{self._name} has {self._columns.n_columns} feature_names, but {rows.shape[1]} columns: name each"
            )
        if self._columns is not None and not self._columns.in_place:
            rows = rows[:, list(self._columns.positions)]
        self._take(Rows(rows, self.n_rows, self._name))
        self.n_rows += len(rows)

    def append_sparse(self, name: str, rows: Any) -> None:
        assert self._reduction is not None
        width = self._reduction.n_columns
        if rows.shape[1] > width:
            raise DataError(
                f"{self._name} has {rows.shape[1]} features per row, but the model was trained with {width}: give the"
                " same features in the same order"
            )
        rows.resize(rows.shape[0], width)
        self._take(Rows(self._reduction.apply(rows), self.n_rows, self._name))
        self.n_rows += rows.shape[0]

    def append_labels(self, name: str, block: NDArray[Any]) -> None:
        if name == "X":
            raise DataError(f"{self._name} has X of shape {block.shape}: give rows of numbers")

    def write_scalar(self, name: str, value: NDArray[Any]) -> None:
        """Do nothing: scalars are not rows."""

    def write_names(self, names: Sequence[str]) -> None:
        """Do nothing: names were read before, if the format has them."""

    def require_space(self, size_bytes: int) -> None:
        """Do nothing: the rows are not written."""


def _filled_up(rows: NDArray[Any], width: int) -> NDArray[Any]:
    """Pad rows of a sparse file, which end with the last feature that is not zero in any of them."""
    return np.pad(rows, ((0, 0), (0, max(0, width - rows.shape[1]))))
