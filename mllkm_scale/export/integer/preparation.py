"""From the integers of a row to Z, the fixed point of z': scaling, quantiles and projection in one step.

    w_j = clip(u_c(j) << ups_j), or its level between knots
    Z_i = clip((shift_i + sum_j matrix_ij w_j + half) >> downs_i, -limit, limit)

Z_i means z'_i = Z_i 2^-b. Each row of the matrix is as fine as its type and 32 bits of the sum allow. Columns with
large weights are shifted up, so that the matrix has digits left for the others. A matrix of many columns may have 4
bits: each weight then compensates the rounding errors of those before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.preparation.quantiles import Quantiles
from mllkm_scale.errors import ParameterError
from mllkm_scale.export.integer.compensation import rounded_in_turn
from mllkm_scale.export.integer.inputs import Extent, Inputs
from mllkm_scale.export.integer.integers import MOST, Integers, halved, int32, paired
from mllkm_scale.export.layout import Preparation

__all__ = ["LIMIT", "IntegerPreparation"]

LIMIT = 2**14 - 1
"""Largest |Z|: the difference of two values is an int16."""

_MOST_DOWN, _MOST_CLIPPED, _TINY = 28, 8, 2.0**-900
_MANY_COLUMNS = 64  # with more columns, a matrix may have 4 bits
_STEEP = 4.0  # a column is shifted if a weight exceeds this multiple of the median of its row


@dataclass(frozen=True)
class Knots:
    """Piecewise linear maps of columns, one after another, from inputs to non-negative levels."""

    starts: Integers
    values: Integers
    levels: Integers

    @property
    def mapped(self) -> NDArray[np.bool_]:
        """Which columns have knots."""
        return np.diff(self.starts) > 0

    def apply(self, W: Integers) -> Integers:
        out = W.copy()
        for j in np.flatnonzero(self.mapped):
            own = slice(self.starts[j], self.starts[j + 1])
            out[:, j] = interpolated(W[:, j], self.values[own], self.levels[own])
        return out


def _columns(
    U: Integers, columns: Integers, ups: Integers | None, within: tuple[int, int], knots: Knots | None
) -> Integers:
    W = U[:, columns]
    if ups is not None:
        W = np.clip(int32(W << ups), *within)
    return W if knots is None else knots.apply(W)


def interpolated(u: Integers, values: Integers, levels: Integers) -> Integers:
    """Linear interpolation between knots, rounded down."""
    if len(values) == 1:
        return np.full_like(u, levels[0])
    low = np.clip(np.searchsorted(values, u, side="right") - 1, 0, len(values) - 2)
    rise = (np.clip(u, values[0], values[-1]) - values[low]) * (levels[low + 1] - levels[low])
    return levels[low] + int32(rise) // (values[low + 1] - values[low])


@dataclass(frozen=True)
class IntegerPreparation:
    """The constants; `matrix` is (d, p), or the diagonal (d,) of one."""

    inputs: Inputs
    columns: Integers  # (p,)
    knots: Knots | None
    matrix: Integers
    shift: Integers  # (d,)
    downs: Integers
    limit: int
    scale_bits: int  # b
    ups: Integers | None
    within: tuple[int, int]  # range to which columns are clipped
    matrix_bits: int  # 4, 8 or 16
    errors: Array  # (d,): bound on |Z - z' 2^b|, for inputs within the extent of the data

    def columns_of(self, U: Integers) -> Integers:
        """w (rows, p) of integer rows."""
        return _columns(U, self.columns, self.ups, self.within, self.knots)

    def apply(self, U: Integers) -> Integers:
        """Z (rows, d) of integer rows."""
        W = self.columns_of(U)
        sums = W * self.matrix if self.matrix.ndim == 1 else W @ self.matrix.T
        return np.clip(halved(int32(sums + self.shift), self.downs), -self.limit, self.limit)

    @classmethod
    def of(
        cls, preparation: Preparation, extent: Extent, rows: Array, scale_bits: int, limit: int, bits: int
    ) -> IntegerPreparation:
        """The preparation times at most 2^scale_bits, with a matrix of this number of bits and factors of 16 bits.

        Rows of the matrix are rounded for the smallest error on the raw `rows`. A matrix of few columns has at least 8
        bits.
        """
        if preparation.unit_norm:
            raise ParameterError(
                "scaling='unit-norm' divides every row by its norm, for which integers have no exact form: train with"
                " another scaling, or give the machine rows of unit norm and train with scaling='none'"
            )
        full = preparation.columns is None
        columns = np.arange(preparation.n_columns) if preparation.columns is None else preparation.columns
        matrix = preparation.factors if preparation.matrix is None else preparation.matrix
        assert matrix is not None
        knots = preparation.knots
        if preparation.matrix is not None and full:
            # Features without weight in any component are not read.
            columns = np.flatnonzero(matrix.any(axis=0))
            columns = columns if len(columns) else np.arange(1)
            matrix = matrix[:, columns]
        diagonal = matrix.ndim == 1
        matrix_bits = 16 if diagonal else bits if len(columns) > _MANY_COLUMNS else max(8, bits)
        centre = preparation.centre[columns] if full else preparation.centre
        used = np.zeros(len(extent.low), dtype=bool)
        used[columns] = True
        input_bits = _input_bits(matrix, bits)
        inputs = Inputs.of(extent, used, input_bits)
        within = inputs.low, inputs.high
        # For every column: u_j = base_j + unit_j w_j, with w_j up to most_j, and its error.
        base, unit = inputs.offsets[columns] - centre, inputs.steps[columns].copy()
        most, off = np.full(len(columns), float(max(-inputs.low, inputs.high))), np.zeros(len(columns))
        ends = np.maximum(np.abs(inputs.least), np.abs(inputs.most))[columns].astype(np.float64)
        found, reach = None, 2 ** (input_bits - 1)
        if knots is not None:
            found = _knots(knots, inputs, columns, preparation.centre, reach, base, unit, off)
            most = np.where(found.mapped, float(reach), most)
            ends = np.where(found.mapped, most, ends)
        ups = None if diagonal else _ups(matrix * unit, ends, reach)
        if ups is not None:
            within = -reach, reach - 1
            unit, ends, most = unit / 2.0**ups, ends * 2.0**ups, np.maximum(most, reach)
        with_unit, wanted = matrix * unit, preparation.shift + (matrix * base if diagonal else matrix @ base)
        W = _columns(inputs.quantise(rows), columns, ups, within, found)
        mean, spread = W.mean(axis=0), W.std(axis=0)
        top = 2 ** (matrix_bits - 1) - 1
        room = MOST - 2.0**29 - (most if diagonal else most.sum())  # half of a shift, and rounding of the matrix
        sums = np.abs(with_unit) * most if diagonal else np.abs(with_unit) @ most
        exponents = _finest(with_unit, spread, top, room / np.maximum(sums + np.abs(wanted), _TINY))
        scale_bits = int(min(scale_bits, exponents.min()))
        downs = np.minimum(exponents - scale_bits, _MOST_DOWN).astype(np.int64)
        factor, scale = 2.0 ** (downs + scale_bits), 2.0**scale_bits
        by_row = factor if diagonal else factor[:, None]
        whole = np.clip(np.rint(with_unit * by_row), -top, top)
        if matrix_bits == 4:
            units, tops = 1.0 / factor[None], np.full((1, 1), float(top))
            better = rounded_in_turn(W - mean, with_unit.T, units, tops).T
            sums = np.abs(better) @ most + np.abs((wanted + (with_unit - better / by_row) @ mean) * factor)
            whole = better if sums.max() < MOST - 2.0**29 else whole
        lost = with_unit - whole / by_row
        wanted = wanted + (lost * mean if diagonal else lost @ mean)  # so that the error is zero on average
        shift = np.rint(wanted * factor).astype(np.int64)
        off = scale * (np.abs(lost) * (ends + np.abs(mean)) + np.abs(with_unit) * off)
        errors = (off if diagonal else off.sum(axis=1)) + scale * np.abs(wanted - shift / factor) + 0.5
        return cls(
            inputs,
            columns,
            found,
            whole.astype(np.int64),
            shift,
            downs,
            limit,
            scale_bits,
            ups,
            within,
            matrix_bits,
            errors,
        )

    @property
    def rounding(self) -> Array:
        """Bound on the difference of Z (d,) from exact arithmetic with the same constants."""
        if self.knots is None:
            return np.full(len(self.shift), 0.5)
        lost = np.abs(self.matrix) * self.knots.mapped
        rounding: Array = 0.5 + (lost if lost.ndim == 1 else lost.sum(axis=1)) * 2.0**-self.downs
        return rounding

    @property
    def constant_arrays(self) -> dict[str, NDArray[np.integer]]:
        """Tables for the C header, without trivial ones."""
        diagonal, n = self.matrix.ndim == 1, len(self.inputs.offsets)
        kind = np.int16 if diagonal or np.abs(self.matrix).max() > 127 else np.int8
        tables: dict[str, NDArray[np.integer]] = {
            "matrix": paired(self.matrix.T) if self.matrix_bits == 4 else self.matrix.T.astype(kind),
            "shift": self.shift.astype(np.int32),
            "downs": self.downs.astype(np.uint8),
        }
        gaps = np.diff(self.columns, prepend=0)
        if 0 <= gaps.min() <= gaps.max() < 256:
            if len(self.columns) != n or (gaps[1:] != 1).any():
                tables["gaps"] = gaps.astype(np.uint8)
        else:
            tables["columns"] = self.columns.astype(np.uint8 if self.columns.max() < 256 else np.uint16)
        if self.ups is not None:
            tables["ups"] = self.ups.astype(np.uint8)
        if self.knots is not None:
            tables["knot_starts"] = self.knots.starts.astype(np.uint16)
            tables["knot_values"] = self.knots.values.astype(np.int16)
            tables["knot_levels"] = self.knots.levels.astype(np.uint16)
        return tables


def _finest(matrix: Array, spread: Array, top: int, room: Array) -> Array:
    """The exponent of each row with the smallest error on the data by rounding, and possibly clipping."""
    largest = np.abs(matrix) if matrix.ndim == 1 else np.abs(matrix).max(axis=1)
    first = np.floor(np.log2(np.minimum(top / np.maximum(largest, _TINY), room)))
    if matrix.ndim == 1:
        return first
    costs = []
    for more in range(_MOST_CLIPPED):
        factor = 2.0 ** (first + more)[:, None]
        lost = matrix - np.clip(np.rint(matrix * factor), -top, top) / factor
        fits = first + more <= np.floor(np.log2(room))
        costs.append(np.where(fits, np.square(lost) @ np.square(spread), np.inf))
    finest: Array = first + np.argmin(costs, axis=0)
    return finest


def _ups(matrix: Array, ends: Array, reach: int) -> Integers | None:
    """Shifts of columns with large weights, which would leave few digits for the others, as far as the range allows.

    Inputs up to `ends` are then up to `reach`.
    """
    sizes = np.abs(matrix)
    usual = np.array([np.median(row[row > 0]) if row.any() else 1.0 for row in sizes])
    wanted = np.floor(np.log2(np.maximum((sizes / usual[:, None]).max(axis=0) / _STEEP, 1.0)))
    ups = np.minimum(wanted, np.floor(np.log2(np.maximum(reach / np.maximum(ends, 1.0), 1.0)))).astype(np.int64)
    return np.minimum(ups, 15) if ups.any() else None


def _input_bits(matrix: Array, bits: int) -> int:
    """Bits of an input, such that a sum over all columns leaves enough bits for the matrix."""
    if matrix.ndim == 1:
        return 16
    room = 31 - np.log2(matrix.shape[1])
    return int(np.clip(room - 8 if bits <= 8 else room / 2 + 1, 8, 16))


def _knots(
    knots: Quantiles, inputs: Inputs, columns: Integers, centre: Array, top: int, base: Array, unit: Array, off: Array
) -> Knots:
    """Knots in integers, with levels up to `top`; sets base, unit and error of their columns."""
    starts, values, levels = [0], [], []
    for j in range(len(columns)):
        own, shares = knots.knots(j)
        if len(own):
            feature = int(columns[j])
            step, offset = inputs.steps[feature], inputs.offsets[feature]
            places = np.clip(np.rint((own + centre[j] - offset) / step), inputs.low, inputs.high).astype(np.int64)
            rise = (shares[-1] - shares[0]) or 1.0
            heights = np.rint((shares - shares[0]) / rise * top).astype(np.int64)
            # Of knots that are rounded to the same value, the last determines the level above, and the first the level
            # below.
            last = np.append(np.diff(places) > 0, True)
            places, heights = places[last], heights[last]
            base[j], unit[j] = shares[0], rise / top
            every = np.arange(inputs.least[feature], inputs.most[feature] + 1)
            exact = np.interp(offset + step * every - centre[j], own, shares)
            off[j] = np.abs((base[j] - exact) / unit[j] + interpolated(every, places, heights)).max()
            values.append(places)
            levels.append(heights)
        starts.append(starts[-1] + (len(values[-1]) if len(own) else 0))
    return Knots(np.array(starts), np.concatenate(values), np.concatenate(levels))
