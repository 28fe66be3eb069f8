"""What a machine takes on a device, and which sizes fit into a number of bytes.

    projection   columns (weights + 2) + 5 directions          where a column is, and its shift
    kernels      kernels (directions + 3 + outputs + outputs directions bits / 8)

in constants of 4 or 8 bits, as `export.integer` writes them. With 4, slopes have so many, and so have weights where
there are many columns; all else has 8. Without a projection, every column has a factor of 16 bits instead. Bumps of
other maps than `squared` need a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mllkm_scale.base.units import format_bytes
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.maps import MapName

__all__ = ["BITS", "ROUNDING_ROWS", "DeviceSize", "judging_bytes", "other_shares", "sizes_within", "with_bits"]

_DIRECTIONS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48)
_TABLE_BYTES: dict[MapName, int] = {"squared": 0, "linear": 290, "gaussian": 210, "exponential": 402}
_LEAST_KERNELS = 4

BITS = (4, 8)
"""Of the constants, as `export.integer` has them: machines of either compete."""

ROUNDING_ROWS = 4000
"""Rows that a machine is rounded by, and that are held out to judge it, at most."""

_FITTED_NUMBERS, _GROUP = 32_000_000, 1200  # of bumps and offsets, in single precision; constants rounded in turn

_MANY_COLUMNS = 96  # more have weights of 4 bits, even if some of them turn out to be constant


@dataclass(frozen=True)
class DeviceSize:
    """A machine for so many outputs: bits, the columns it reads, directions of a projection or None, and kernels.

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
        """Features of the kernels."""
        return self.columns if self.directions is None else self.directions

    @property
    def kernel_bytes(self) -> int:
        """Of one kernel."""
        return self.width + 3 + self.outputs + -(-self.outputs * self.width * self.bits // 8)

    @property
    def constant_bytes(self) -> int:
        """Of all constants, at most."""
        if self.directions is None:
            prepared = 8 * self.columns
        else:
            prepared = self.columns * _column_bytes(self.columns, self.directions, self.bits) + 5 * self.directions
        return prepared + _TABLE_BYTES[self.map] + self.kernels * self.kernel_bytes


def judging_bytes(max_bytes: int, n_rows: int, n_columns: int, outputs: int) -> int:
    """Memory in which a machine of so many bytes is rounded and judged, at most.

    Bumps and offsets are held twice, for no more constants than there are bytes, a group of them in double precision
    with its matrices, and rows of columns and scores as integers.
    """
    rows, group = min(n_rows, ROUNDING_ROWS), min(_GROUP, max_bytes)
    fitted = min(rows * max_bytes, _FITTED_NUMBERS)
    return 8 * fitted + 8 * group * (2 * rows + 4 * group) + 32 * rows * (n_columns + outputs)


def sizes_within(
    max_bytes: int,
    map: MapName,
    outputs: int,
    n_columns: int,
    most_directions: int,
    most_kernels: int,
    bits: int = min(BITS),
) -> list[DeviceSize]:
    """Sizes that fit, with as many kernels as there is room for: by numbers of directions, and without a projection.

    A projection reads all columns where that takes less than half of the bytes, and otherwise as many as take half.

    >>> for size in sizes_within(2000, "squared", 1, 784, 6, 1000):
    ...     print(size.directions, size.columns, size.kernels, size.constant_bytes)
    2 330 142 1994
    3 246 111 1998
    4 245 100 2000
    5 195 83 1996
    6 194 76 1988
    """
    found = []
    for directions in (*(d for d in _DIRECTIONS if d <= most_directions), None):
        size = DeviceSize(map, outputs, bits, n_columns, directions, 0)
        if directions is not None and size.constant_bytes > max_bytes / 2:
            size = _with_share(size, max_bytes, 0.5)
        found.append(_filled(size, max_bytes, most_kernels))
    within = [size for size in found if size is not None]
    if not within:
        least = DeviceSize(map, outputs, bits, 2, 2, _LEAST_KERNELS).constant_bytes
        raise ParameterError(
            f"max_bytes={max_bytes} is too small for {n_columns} features and {outputs} outputs: give at least"
            f" {format_bytes(2 * least)}"
        )
    return within


def with_bits(size: DeviceSize, bits: int, max_bytes: int, n_columns: int, most_kernels: int) -> list[DeviceSize]:
    """The same directions with other bits, and as many kernels as fit then: the same columns, and half of the bytes.

    >>> size = DeviceSize("squared", 1, 4, columns=100, directions=2, kernels=200)
    >>> for other in with_bits(size, 8, 2000, 784, 1000):
    ...     print(other.columns, other.kernels, other.constant_bytes)
    100 198 1994
    247 125 1998
    """
    same = replace(size, bits=bits)
    wanted = [same] if size.directions is None else [same, _with_share(same, max_bytes, 0.5)]
    found = [_filled(one, max_bytes, most_kernels) for one in wanted if one.columns <= n_columns]
    return list(dict.fromkeys(one for one in found if one is not None))


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
    """The size with as many kernels as fit, if that are some, and there is a column for each direction."""
    room = max_bytes - replace(size, kernels=0).constant_bytes
    kernels = min(room // size.kernel_bytes, most_kernels)
    enough = kernels >= min(_LEAST_KERNELS, most_kernels) and size.columns >= (size.directions or 1)
    return replace(size, kernels=kernels) if enough else None
