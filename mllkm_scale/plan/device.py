"""The bytes that a machine takes on a device, and the sizes that fit into a number of bytes.

    projection   columns (weights + 2) + 5 directions          where a column is, and its shift
    kernels      kernels (directions + 3 + outputs + outputs directions bits / 8)

in constants of 4 or 8 bits, as `export.integer` writes them. With 4 bits, slopes have 4 bits, and so have the weights
of the projection if there are many columns; all others have 8. Without a projection, every column has a factor of 16
bits instead. Bumps of other maps than `squared` need a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from mllkm_scale.base.units import format_bytes
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.maps import MapName

__all__ = [
    "BITS",
    "DIRECTIONS",
    "FITTED_NUMBERS",
    "ROUNDED_TOGETHER",
    "ROUNDING_ROWS",
    "DeviceLimit",
    "DeviceSize",
    "judging_bytes",
    "other_shares",
    "sizes_within",
]

DIRECTIONS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48)
"""Numbers of directions of a projection that are compared."""

_TABLE_BYTES: dict[MapName, int] = {"squared": 0, "linear": 290, "gaussian": 210, "exponential": 402}
_LEAST_KERNELS = 4

BITS = (4, 8)
"""Bits of the constants, as in `export.integer`: machines with either number compete."""

ROUNDING_ROWS = 4000
"""Largest number of rows to choose the fixed point of a machine, and of held-out rows to evaluate it."""

FITTED_NUMBERS = 32_000_000
"""Largest number of bumps and offsets, in single precision, to fit local predictors again."""

ROUNDED_TOGETHER = 1200
"""Constants of 4 bits that are rounded in turn with one matrix."""

_MANY_COLUMNS = 96  # more have weights of 4 bits, even if some of them turn out to be constant


@dataclass(frozen=True)
class DeviceSize:
    """The size of a machine: outputs, bits, columns that it reads, directions of a projection or None, and kernels.

    Examples
    --------
    >>> [DeviceSize("squared", 1, bits, columns=150, directions=6, kernels=40).constant_bytes for bits in BITS]
    [1300, 1870]
    """

    map: MapName
    outputs: int
    bits: int
    columns: int
    directions: int | None
    kernels: int

    @property
    def width(self) -> int:
        """Number of features of the kernels."""
        return self.columns if self.directions is None else self.directions

    @property
    def kernel_bytes(self) -> int:
        """Bytes of one kernel."""
        return self.width + 3 + self.outputs + -(-self.outputs * self.width * self.bits // 8)

    @property
    def constant_bytes(self) -> int:
        """Largest number of bytes of all constants."""
        if self.directions is None:
            prepared = 8 * self.columns
        else:
            prepared = self.columns * _column_bytes(self.columns, self.directions, self.bits) + 5 * self.directions
        return prepared + _TABLE_BYTES[self.map] + self.kernels * self.kernel_bytes


@dataclass(frozen=True)
class DeviceLimit:
    """The result of a choice with `max_bytes`: the bits of the constants, and the limit of their bytes.

    A model stores both among its parameters, because its bytes depend on the bits.
    """

    bits: int
    max_bytes: int

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> DeviceLimit | None:
        """The limit among the parameters of a model; None if there is none, or if a value is not valid.

        >>> DeviceLimit.of({"bits": 4, "max_bytes": 2000}), DeviceLimit.of({"bits": 5, "max_bytes": 2000})
        (DeviceLimit(bits=4, max_bytes=2000), None)
        """
        bits, max_bytes = params.get("bits"), params.get("max_bytes")
        if type(bits) is not int or bits not in BITS or type(max_bytes) is not int or max_bytes <= 0:
            return None
        return cls(bits, max_bytes)


def judging_bytes(max_bytes: int, n_rows: int, n_columns: int, outputs: int) -> int:
    """Largest memory for rounding and evaluating a machine of this number of bytes.

    Bumps and offsets are held twice, for at most as many constants as bytes. A group of them is in double precision,
    with its matrices. Rows of columns and scores are integers.
    """
    rows, group = min(n_rows, ROUNDING_ROWS), min(ROUNDED_TOGETHER, max_bytes)
    fitted = min(rows * max_bytes, FITTED_NUMBERS)
    return 8 * fitted + 8 * group * (2 * rows + 4 * group) + 32 * rows * (n_columns + outputs)


def sizes_within(
    max_bytes: int,
    map: MapName,
    outputs: int,
    n_columns: int,
    directions: Iterable[int | None],
    most_kernels: int,
) -> list[DeviceSize]:
    """Sizes that fit, with as many kernels as possible, for these directions (None: no projection) and all bits.

    A projection reads all columns if this takes less than half of the bytes, and otherwise as many as take half.

    >>> for size in sizes_within(2000, "squared", 1, 784, DIRECTIONS[:3], 1000):
    ...     print(size.directions, size.bits, size.columns, size.kernels, size.constant_bytes)
    2 4 330 142 1994
    2 8 247 125 1998
    3 4 246 111 1998
    3 8 197 100 2000
    4 4 245 100 2000
    4 8 163 83 1994
    """
    found, allowed = [], tuple(directions)
    for count, bits in product(allowed, BITS):
        size = DeviceSize(map, outputs, bits, n_columns, count, 0)
        if count is not None and size.constant_bytes > max_bytes / 2:
            size = _with_share(size, max_bytes, 0.5)
        found.append(_filled(size, max_bytes, most_kernels))
    within = [size for size in found if size is not None]
    if not within:
        smallest = [DeviceSize(map, outputs, min(BITS), c or n_columns, c, _LEAST_KERNELS) for c in allowed]
        least = min(size.constant_bytes for size in smallest)
        raise ParameterError(
            f"max_bytes={max_bytes} is too small for {n_columns} features and {outputs} outputs: give at least"
            f" {format_bytes(2 * least)}"
        )
    return within


def other_shares(
    size: DeviceSize, max_bytes: int, n_columns: int, most_kernels: int, shares: Sequence[float]
) -> list[DeviceSize]:
    """The same directions and bits with other shares of the bytes for the projection."""
    if size.directions is None:
        return []
    wanted = (_with_share(size, max_bytes, share) for share in shares)
    found = [_filled(one, max_bytes, most_kernels) for one in wanted if one.columns < n_columns]
    return [one for one in found if one is not None]


def _with_share(size: DeviceSize, max_bytes: int, share: float) -> DeviceSize:
    assert size.directions is not None
    room = share * max_bytes - 5 * size.directions
    columns = int(room // _column_bytes(size.columns, size.directions, size.bits))
    if columns <= _MANY_COLUMNS < size.columns:
        columns = int(room // _column_bytes(columns, size.directions, size.bits))
    return replace(size, columns=columns)


def _column_bytes(columns: int, directions: int, bits: int) -> int:
    return 2 + (-(-directions * bits // 8) if columns > _MANY_COLUMNS else directions)


def _filled(size: DeviceSize, max_bytes: int, most_kernels: int) -> DeviceSize | None:
    """The size with as many kernels as fit, or None if none fit, or if there are fewer columns than directions."""
    room = max_bytes - replace(size, kernels=0).constant_bytes
    kernels = min(room // size.kernel_bytes, most_kernels)
    enough = kernels >= min(_LEAST_KERNELS, most_kernels) and size.columns >= (size.directions or 1)
    return replace(size, kernels=kernels) if enough else None
