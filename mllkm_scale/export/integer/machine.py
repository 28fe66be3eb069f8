"""A machine in integers, with the same arithmetic as the C header, bit for bit.

    o = Z - (C_m << anchor_shift)
    global           P_k = <o, W_mk> + (L_mk << level_shift)
                     f_k += (h_m(|o|^2) ((P_k + ..) >> product_shift) + ..) >> downs_m
    component-wise   P_k = sum_l ((h_ml o_l + ..) >> 15) W_mkl + (sum_l h_ml >> (15 - level_shift)) L_mk
                     f_k += (P_k + ..) >> downs_m

Scores are f_k 2^-score_bits. Sums and products are checked to be within 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.export.integer.bump_table import ONE, Bumps
from mllkm_scale.export.integer.integers import Integers, halved, int32, paired
from mllkm_scale.export.integer.preparation import IntegerPreparation
from mllkm_scale.kernels.maps import MapName

__all__ = ["IntegerMachine"]

_ROWS = 4096


@dataclass(frozen=True)
class IntegerMachine:
    """Constants of s kernels over d prepared features, for K scores.

    Attributes
    ----------
    bits : int
        Bits of anchors and levels: 8 or 16.
    slope_bits : int
        Bits of slopes: 4, 8 or 16.
    score_bits : int
        An integer score means its value times 2^-score_bits.
    arithmetic : float
        Bound on the difference of scores from exact arithmetic with the same constants, for any row within the extent
        of the data.
    deviation : float
        Bound on the difference from the scores of the model.
    """

    map: MapName
    componentwise: bool
    bits: int
    slope_bits: int
    preparation: IntegerPreparation
    bumps: Bumps
    anchors: Integers  # (s, d)
    anchor_shift: int
    slopes: Integers  # (s, K, d)
    levels: Integers  # (s, K)
    level_shift: int
    product_shift: int
    downs: Integers  # (s,)
    score_bits: int
    arithmetic: float = float("nan")
    deviation: float = float("nan")

    @property
    def scale_bits(self) -> int:
        """b: Z means Z 2^-b."""
        return self.preparation.scale_bits

    @property
    def n_kernels(self) -> int:
        return len(self.anchors)

    @property
    def n_features(self) -> int:
        return int(self.anchors.shape[1])

    @property
    def n_scores(self) -> int:
        return int(self.levels.shape[1])

    def scores(self, U: ArrayLike) -> Integers:
        """Integer scores (rows, K) of integer rows from `preparation.inputs.quantise`."""
        rows = np.asarray(U, dtype=np.int64)
        F = np.zeros((len(rows), self.n_scores), np.int64)
        for start in range(0, len(rows), _ROWS):
            part = slice(start, start + _ROWS)
            F[part] = self._add(self.preparation.apply(rows[part]))
        return F

    def codes(self, U: ArrayLike) -> Integers:
        """The number of the class of each row."""
        F = self.scores(U)
        return (F[:, 0] > 0).astype(np.int64) if F.shape[1] == 1 else F.argmax(axis=1)

    def decision_function(self, X: ArrayLike) -> Array:
        """Scores (rows, K) of raw rows, in the units of the model."""
        F: Array = self.scores(self.preparation.inputs.quantise(X)) * 2.0**-self.score_bits
        return F

    def _add(self, Z: Integers) -> Integers:
        F = np.zeros((len(Z), self.n_scores), np.int64)
        add = self._add_components if self.componentwise else self._add_global
        for m in range(self.n_kernels):
            add(m, Z - (self.anchors[m] << self.anchor_shift), F)
        return F

    def _add_global(self, m: int, offsets: Integers, F: Integers) -> None:
        h = self.bumps.evaluate(int32(np.einsum("nd,nd->n", offsets, offsets)), m)
        near = np.flatnonzero(h)
        P = offsets[near] @ self.slopes[m].T + (self.levels[m] << self.level_shift)
        Q = halved(int32(P), self.product_shift)
        F[near] = int32(F[near] + halved(int32(h[near, None] * Q), self.downs[m]))

    def _add_components(self, m: int, offsets: Integers, F: Integers) -> None:
        h = self.bumps.evaluate(offsets * offsets, m)
        moved = halved(int32(h * offsets), 15)
        P = moved @ self.slopes[m].T + (h.sum(axis=1) >> (15 - self.level_shift))[:, None] * self.levels[m]
        F += halved(int32(P), self.downs[m])
        int32(F)

    @property
    def step(self) -> float:
        """The value of one unit of Z."""
        return 2.0**-self.scale_bits

    @property
    def units(self) -> Array:
        """The value of one unit of a slope, (s,), for bumps relative to their height at the anchor."""
        widths = self.score_bits + self.downs - self.scale_bits
        widths = widths if self.componentwise else widths + self.product_shift - 15
        units: Array = self.bumps.heights / ONE * 2.0**-widths
        return units

    @property
    def constants(self) -> dict[str, NDArray[np.integer]]:
        """Tables for the C header, in their types."""
        kind = np.int8 if self.bits == 8 else np.int16
        slopes = self.slopes.reshape(self.n_kernels, -1)
        return (
            self.preparation.constant_arrays
            | self.bumps.constants
            | {
                "anchors": self.anchors.astype(kind),
                "slopes": paired(slopes) if self.slope_bits == 4 else slopes.astype(kind),
                "levels": self.levels.astype(kind),
                "score_downs": self.downs.astype(np.uint8),
            }
        )

    @property
    def constant_bytes(self) -> int:
        """Bytes of all tables."""
        return sum(values.nbytes for values in self.constants.values())

    @property
    def stack_bytes(self) -> int:
        """Bytes of the arrays of a call: prepared features, and either their sums, or offsets and the sums of a
        kernel."""
        before = 0 if self.preparation.matrix.ndim == 1 else 4 * self.n_features
        after = 4 * self.n_scores if self.componentwise else 2 * self.n_features
        return 2 * self.n_features + before + after + 4 * self.n_scores
