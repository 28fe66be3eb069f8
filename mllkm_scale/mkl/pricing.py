"""Pricing: which open kernels violate their constraint for the duals of a round, and the bound D that follows.

Where scanning would be the larger part of a round, a share of the open set is scanned that takes as long as solving,
another one in every round (partial pricing); and with `overlap` it is scanned beside the solving of the next round:
round t + 1 solves while workers scan with the duals of round t, and then prices with its own duals the candidates that
they have found. D is the best one proved before then, which bounds the optimum as well. A round that could be the last
one, or that has nothing left to insert, scans all kernels with its own duals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.kernels.grid import KernelGrid, RowSource
from mllkm_scale.kernels.picked_rows import Rows, pick
from mllkm_scale.mkl.state import Settings, State
from mllkm_scale.scan.scanner import ALL, Scan, Scanner, ScanResult, Share
from mllkm_scale.scan.work import scan_flops

__all__ = ["Priced", "Pricing", "Seen", "dual_value"]

Array = NDArray[Any]

_MOST_SHARES = 16  # into which the open set is cut
_LEAST_ANCHORS = 2000  # of a share


@dataclass(frozen=True)
class Seen:
    """What a round sees of its solution when it looks at all samples and at the active kernels."""

    support: Rows  # of the samples with a nonzero dual in some class
    signed_duals: Array  # a = alpha y of these samples (n_sv, K)
    margins: Array  # y f(x) of all samples (n, K)
    primal: float  # P over all samples
    stage_primal: float  # and over those in play, with their box
    active_forms: Array  # q of the active kernels
    threshold: float  # the largest q among the kernels with a weight: what an open kernel must exceed to violate


@dataclass(frozen=True)
class Priced:
    """Candidates with their q for the duals of the round, best first; and bounds on the optimum from below."""

    ids: Array
    values: Array
    dual: float
    likely_dual: float  # D if no kernel violates more than those that were scanned
    stage_dual: float  # likewise of the problem of the stage
    priced: bool  # found by a scan with these duals
    scanned: bool  # of all kernels: the bound rests on it, too
    scan_s: float = 0.0
    n_scanned: int = 0


class Pricing:
    """Scans for the outer loop; `solve_flops` says what solving costs in a state."""

    def __init__(
        self,
        data: RowSource,
        signs: Array,
        grid: KernelGrid,
        scanner: Scanner,
        solve_flops: Callable[[State], float],
        settings: Settings,
    ) -> None:
        self.data, self.signs, self.grid, self.scanner = data, signs, grid, scanner
        self.solve_flops, self.settings = solve_flops, settings

    def support_of(self, state: State) -> tuple[Rows, Array]:
        """Rows of the samples with a nonzero dual in some class, and their signed duals."""
        rows = np.flatnonzero(state.duals.any(axis=1))
        return pick(self.data, rows, self.scanner.support_bytes), state.duals[rows] * self.signs[rows]

    def begin_scan(self, state: State, share: Share = ALL) -> Scan:
        """A scan of all kernels, or of a share, with the duals of this state."""
        return self.scanner.start(lambda: self.support_of(state), self.settings.candidates, share)

    def share(self, state: State) -> Share:
        """The blocks of anchors that a round scans, unless it could be the last one; others in the next round."""
        if self.settings.pricing == "full":
            return ALL
        most = min(_MOST_SHARES, self.grid.anchors.n_rows // _LEAST_ANCHORS)
        step = int(max(1.0, min(most, self.scan_flops(state) / max(1.0, self.solve_flops(state)))))
        return Share(state.round % step, step)

    def scans_at_once(self, state: State) -> bool:
        """Whether this round scans with its own duals, or the next one scans beside its solving with these."""
        if self.settings.overlap != "auto":
            return self.settings.overlap == "never"
        return self.scan_flops(state) <= self.share(state).step * self.solve_flops(state)

    def scan_flops(self, state: State) -> float:
        """Multiply-adds of a scan of all kernels: by arithmetic, whose answer is the same everywhere."""
        n_support, n_duals = int(state.duals.any(axis=1).sum()), int(np.count_nonzero(state.duals))
        anchors, sizes = self.grid.anchors, (len(self.grid.gammas), self.grid.anchors.n_features)
        return anchors.n_rows * scan_flops(self.grid.family, *sizes, n_support, n_duals)

    def price(
        self,
        state: State,
        solved: State,
        seen: Seen,
        lagging: ScanResult | None,
        own: ScanResult | None,
    ) -> Priced:
        """Candidates for the duals of this round, of its own scan and of those before.

        Of all kernels, if need be: in the last stage, if the gap could be small enough, or nothing is left to insert.
        """
        scans = [scan for scan in (lagging, own) if scan is not None]
        if own is None or not own.complete:
            ids, values = self.candidates(state, seen, lagging, own)
            bound = state.bound
            if lagging is not None and lagging.complete:
                bound = max(bound, dual_value(state, lagging.maximum))
            largest = max(float(values.max(initial=0.0)), float(seen.active_forms.max()))
            likely, stage_dual = max(bound, dual_value(solved, largest)), _stage_dual(solved, largest)
            open_violators = ids[(values > seen.threshold) & ~np.isin(ids, solved.active)]
            nearly = seen.primal - likely <= self.settings.tol * abs(seen.primal)
            unfinished = len(open_violators) and not nearly and not state.stalled
            if unfinished or not solved.last_stage:
                return Priced(ids, values, bound, likely, stage_dual, own is not None, False, *_effort(scans))
            own = self.begin_scan(solved).result()
            scans.append(own)
        largest = max(own.maximum, float(seen.active_forms.max()))
        dual, stage_dual = dual_value(solved, largest), _stage_dual(solved, largest)
        return Priced(own.ids, own.values, dual, dual, stage_dual, True, True, *_effort(scans))

    def candidates(
        self, state: State, seen: Seen, lagging: ScanResult | None, own: ScanResult | None
    ) -> tuple[Array, Array]:
        """Kernels that scans have found, this round's or earlier ones, with their q for the duals of this one."""
        old = state.pool if lagging is None else lagging.ids
        ids = np.empty(0, np.int64) if own is None else own.ids
        known = np.empty(0) if own is None else own.values
        old = old[~np.isin(old, ids)]
        values = self.grid.take(old).quadratic_forms(seen.support, seen.signed_duals)
        ids, values = np.concatenate([ids, old]), np.concatenate([known, values])
        best = np.argsort(-values, kind="stable")[: self.settings.candidates]
        return ids[best], values[best]

    def dual_bound(self, state: State) -> float:
        """D of F5 by a scan of all kernels with the duals of this state."""
        support, signed_duals = self.support_of(state)
        forms = self.grid.take(state.active).quadratic_forms(support, signed_duals)
        return dual_value(state, max(self.begin_scan(state).result().maximum, float(forms.max())))


def dual_value(state: State, largest: float) -> float:
    """D of F5 for the feasible duals of a state, given the largest q of its duals."""
    share = state.in_play / len(state.duals)
    return share * float(state.duals.sum()) - 0.5 * share**2 * largest


def _stage_dual(state: State, largest: float) -> float:
    """Likewise of the problem with the samples in play and their box."""
    return float(state.duals.sum()) - 0.5 * largest


def _effort(scans: list[ScanResult]) -> tuple[float, int]:
    """Seconds and kernels of scans."""
    return sum(scan.seconds for scan in scans), sum(scan.n_kernels for scan in scans)
