"""Byte sizes as people write them, parsed once into an `int` named `*_bytes`."""

from __future__ import annotations

import re

from mllkm_scale.errors import ParameterError

__all__ = ["format_at_least", "format_bytes", "parse_bytes"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_PATTERN = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)


def parse_bytes(size: str | int | float) -> int:
    """Parse a size such as ``"1GB"``, ``"512 MiB"`` or ``2e9``.

    >>> parse_bytes("1.5GB"), parse_bytes("512MiB"), parse_bytes(1000)
    (1500000000, 536870912, 1000)
    """
    if isinstance(size, bool) or not isinstance(size, str | int | float):
        raise ParameterError(f"a byte size is a number or text such as '2GB', not {size!r}")
    if isinstance(size, str):
        match = _PATTERN.fullmatch(size)
        if match is None:
            raise ParameterError(f"{size!r} is not a byte size: write it as '2GB', '512MiB' or a number of bytes")
        number, unit, binary = match.groups()
        if binary and not unit:
            raise ParameterError(f"{size!r} is not a byte size: write 'KiB', 'MiB', 'GiB' or 'TiB'")
        value = float(number) * (_BINARY if binary else _UNITS)[unit.lower()]
    else:
        value = float(size)
    if not 1 <= value < 2**60:
        raise ParameterError(f"a byte size must be from 1 byte to 1 EiB, not {size!r}")
    return int(value)


def format_bytes(size_bytes: int | float) -> str:
    """Format a byte size for people, in decimal units.

    >>> format_bytes(0), format_bytes(1_500_000), format_bytes(2_000_000_000)
    ('0 B', '1.5 MB', '2.0 GB')
    """
    value = float(min(size_bytes, 10**300))  # a header may say any number
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def format_at_least(size_bytes: int) -> str:
    """Format a byte size rounded up, to the resolution of its text and to 10 MB, so that the text is enough.

    >>> format_at_least(291_000_001), format_at_least(1_910_000_000)
    ('300.0 MB', '2.0 GB')
    """
    step = 10**7 if size_bytes < 10**9 - 10**7 else 10**8
    return format_bytes(-(-size_bytes // step) * step)
