"""The restricted MKL problem: working samples of every class against the active kernels, shared weights.

    min over beta in the simplex, max over 0 <= alpha_k <= C:
        sum_k 1'alpha_k - 1/2 sum_m beta_m q_m,      q_m = sum_k q_m(alpha_k)

The duals of all classes are one long vector; `slices` says where each class lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.gram.blocks import Block
from mllkm_scale.team import Team

__all__ = ["PANEL", "HeldSamples", "Objective", "RestrictedProblem", "Solution"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Objective:
    """Primal and dual value at a pair (alpha, beta): primal >= optimum >= dual."""

    primal: float
    dual: float

    @property
    def gap(self) -> float:
        """Relative duality gap (P - D) / P."""
        return (self.primal - self.dual) / self.primal if self.primal != 0 else 0.0


@dataclass(frozen=True)
class Solution:
    """What a weight solver returns: weights (s,), duals (all classes), and how good they are."""

    weights: Array
    duals: Array
    objective: Objective
    steps: int


PANEL = 384  # columns of a Gram that one task makes; of up to twice as many, it makes all


@dataclass(frozen=True)
class HeldSamples:
    """Samples of all classes whose duals are held: the sum of these, and the forms of them alone (s,)."""

    total: float
    forms: Array


class RestrictedProblem:
    """Blocks of the classes, the box [0, C], and the team that works on them.

    What is solved to the same end in less memory, and more time, is `lean`. The moments of the blocks include the
    samples that are `held`.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        C: float,
        team: Team | None = None,
        *,
        lean: bool = False,
        held: HeldSamples | None = None,
    ) -> None:
        self.blocks, self.C, self.team = list(blocks), float(C), team or Team()
        self.lean = lean
        edges = np.cumsum([0, *(len(block.signs) for block in blocks)])
        self.slices = [slice(int(a), int(b)) for a, b in pairwise(edges)]
        self.n_duals = int(edges[-1])
        self.held = held

    def moments(self, duals: Array, out: Array | None = None) -> tuple[Array, Array]:
        """U (all duals, s) with column m = y o K_m (alpha o y), and q (s,) summed over the classes.

        U is written to `out` if that is given.
        """
        if out is None:
            out = np.empty((self.n_duals, self.blocks[0].n_kernels))
        U = out

        def fill(k: int) -> Array:
            return self.blocks[k].moments(duals[self.slices[k]], U[self.slices[k]])

        return U, np.sum(self.team.run(fill, range(len(self.blocks))), axis=0)

    def forms(self, duals: Array) -> Array:
        """The quadratic forms (s,) of duals alone, without samples that are held."""
        parts = self.team.run(lambda k: self.blocks[k].forms(duals[self.slices[k]]), range(len(self.blocks)))
        return np.sum(parts, axis=0)

    def objective(self, duals: Array, weights: Array, U: Array, q: Array) -> Objective:
        """F5 on the restricted problem, with w_m = beta_m v_m(alpha).

        With samples held, the value at fixed weights is concave in the other duals: its tangent over the box bounds it
        by C hinge + 1/2 sum_m beta_m (a'Q_m a - c_m) + the duals held, where c_m is the form of the samples held.
        """
        hinge = self.C * np.maximum(0.0, 1.0 - U @ weights).sum()
        if self.held is None:
            primal = 0.5 * (weights @ np.sqrt(np.maximum(q, 0.0))) ** 2 + hinge
            return Objective(float(primal), float(duals.sum() - 0.5 * q.max()))
        primal = hinge + 0.5 * weights @ (self.forms(duals) - self.held.forms) + self.held.total
        return Objective(float(primal), float(duals.sum() + self.held.total - 0.5 * q.max()))
