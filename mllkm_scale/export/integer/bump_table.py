"""Bumps in integers: a subtraction for `squared`, and one table for all kernels for the other maps.

With D = |Z - C|^2 in units of 4^-b, and h as a function of a variable q that is common to all kernels,

    squared       h(q) = 1 - q            q = gamma t^2
    gaussian      h(q) = e^-q             q = gamma t^2
    exponential   h(q) = e^-sqrt(q)       q = (gamma t)^2
    linear        h(q) = 1 - sqrt(q)      q = (gamma t)^2

q is D times a factor of the kernel. The table has `STEPS` entries per octave of q, because h may have a square root at
zero. It is interpolated linearly; h is convex, so the error of a chord is at most width (h'(end) - h'(begin)) / 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.export.integer.integers import Integers
from mllkm_scale.kernels.maps import MapName, uses_plain_distance

__all__ = ["ONE", "BumpTable", "Bumps", "SquaredBumps"]

ONE = 1 << 15
"""h(0) in a table, and a bound on all bumps."""


@dataclass(frozen=True)
class SquaredBumps:
    """max(0, t_m - (D >> p_m)) with t_m = mantissas << spare: h times t_m, which the coefficients compensate."""

    mantissas: Integers  # (s,)
    exponents: Integers  # p_m
    spare: int

    @classmethod
    def of(cls, rates: Array, bits: int) -> SquaredBumps:
        """Bumps that vanish where rates (s,) times D is one."""
        spare = 15 - min(bits, 15)
        reach = np.minimum(1.0 / rates, 2.0**44)
        exponents = np.maximum(np.floor(np.log2(reach)) - 14, 0).astype(np.int64)
        mantissas = np.rint(reach / 2.0 ** (exponents + spare)).astype(np.int64)
        full = mantissas > 2 ** (15 - spare) - 1
        exponents[full] += 1
        mantissas[full] = 2 ** (14 - spare)
        return cls(np.maximum(mantissas, 1), exponents, spare)

    @property
    def heights(self) -> Integers:
        """t_m, the bump at its anchor."""
        return self.mantissas << self.spare

    @property
    def rates(self) -> Array:
        """The actual q / D."""
        return 1.0 / (self.heights * 2.0**self.exponents)

    @property
    def errors(self) -> Array:
        """Bound on the error of each bump, relative to 1."""
        return 1.0 / self.heights

    @property
    def reach(self) -> Array:
        """The bump is zero where D is at least this."""
        return 1.0 / self.rates

    def evaluate(self, D: Integers, m: int) -> Integers:
        return np.maximum(self.heights[m] - (D >> self.exponents[m]), 0)

    @property
    def constants(self) -> dict[str, NDArray[np.integer]]:
        """Tables for the C header."""
        kind = np.uint8 if self.spare else np.uint16
        return {"mantissas": self.mantissas.astype(kind), "exponents": self.exponents.astype(np.uint8)}


@dataclass(frozen=True)
class BumpTable:
    """h by interpolation in `entries`, for q = D g_m 2^...; the exponents give the octave."""

    map: MapName
    mantissas: Integers  # (s,)
    exponents: Integers  # the octave of D = 2^31
    spare: int
    steps: int  # log2 of the entries of an octave
    first: int  # log2 of the first entry of the table
    entries: Integers

    @classmethod
    def of(cls, map: MapName, rates: Array, bits: int) -> BumpTable:
        """The table for kernels with q = rates (s,) times D."""
        steps, small = (3, 2.0**-9) if bits == 8 else (5, 2.0**-14)
        first = int(np.floor(np.log2(small**2 if uses_plain_distance(map) else small)))
        last = {"linear": 0, "gaussian": 4, "exponential": 7}[map]
        octaves = np.exp2(np.arange(first, last))
        q = np.append((octaves[:, None] * (1.0 + np.arange(2**steps) / 2**steps)).ravel(), 2.0**last)
        entries = np.rint(ONE * _heights(map, q)).astype(np.int64)
        spare = 16 - min(bits, 16)
        fractions, powers = np.frexp(rates)
        mantissas = np.rint(fractions * 2 ** (16 - spare)).astype(np.int64)
        full = mantissas == 2 ** (16 - spare)
        mantissas[full] //= 2
        exponents = np.clip(31 + powers + full - first, -128, 127).astype(np.int64)
        return cls(map, mantissas, exponents, spare, steps, first, entries)

    @property
    def heights(self) -> Integers:
        """The bump at its anchor."""
        return np.full(len(self.mantissas), ONE)

    @property
    def rates(self) -> Array:
        """The actual q / D."""
        return (self.mantissas << self.spare) * 2.0 ** (self.exponents + self.first - 47)

    @property
    def errors(self) -> Array:
        """Bound on the error of each bump, relative to 1: interpolation, rounding of entries, truncation of q, both
        ends."""
        n = 2**self.steps
        q = 2.0**self.first * np.append(
            (np.exp2(np.arange((len(self.entries) - 1) // n))[:, None] * (1.0 + np.arange(n) / n)).ravel(),
            2.0 ** ((len(self.entries) - 1) // n),
        )
        chords = np.diff(q) * np.diff(_derivatives(self.map, q)) / 4
        ends = max(1.0 - float(_heights(self.map, q[:1])[0]), float(_heights(self.map, q[-1:])[0]))
        # |q h'| is at most 1/2, and q is truncated to 15 bits of D and of its product.
        inside = float(chords.max()) + 1.5 / ONE + 0.5 * 2.0**-14
        return np.full(len(self.mantissas), max(inside, ends + 0.5 / ONE))

    @property
    def reach(self) -> Array:
        """The bump is zero where D is at least this; infinite for exponentially decreasing bumps."""
        if self.map != "linear":
            return np.full(len(self.mantissas), np.inf)
        return (1.0 + 2.0**-14) / self.rates

    def evaluate(self, D: Integers, m: int) -> Integers:
        zeros = 32 - np.frexp(D.astype(np.float64))[1].astype(np.int64)  # leading ones of 32 bits
        product = ((D << zeros) >> 16) * (self.mantissas[m] << self.spare)
        low = product < 1 << 31
        product, zeros = np.where(low, product << 1, product), zeros + low
        octave = self.exponents[m] - zeros
        place = (octave << self.steps) + ((product >> (31 - self.steps)) - (1 << self.steps))
        fraction = (product >> (16 - self.steps)) & (ONE - 1)
        within = np.clip(place, 0, len(self.entries) - 2)
        drop = (self.entries[within] - self.entries[within + 1]) * fraction >> 15
        bumps = np.where(place > len(self.entries) - 2, 0, self.entries[within] - drop)
        return np.where((D == 0) | (octave < 0), ONE, bumps)

    @property
    def constants(self) -> dict[str, NDArray[np.integer]]:
        """Tables for the C header."""
        kind = np.uint8 if self.spare else np.uint16
        return {
            "mantissas": self.mantissas.astype(kind),
            "exponents": self.exponents.astype(np.int8),
            "bumps": self.entries.astype(np.uint16),
        }


Bumps = SquaredBumps | BumpTable


def _heights(map: MapName, q: Array) -> Array:
    if map == "gaussian":
        return np.exp(-q)
    return np.exp(-np.sqrt(q)) if map == "exponential" else 1.0 - np.sqrt(q)


def _derivatives(map: MapName, q: Array) -> Array:
    if map == "gaussian":
        return -np.exp(-q)
    return -0.5 / np.sqrt(q) * (np.exp(-np.sqrt(q)) if map == "exponential" else 1.0)
