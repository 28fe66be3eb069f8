"""Pricing: which open kernels violate their constraint for the duals of a round, and the bound D that follows.

Where scanning would be the larger part of a round, a share of the open set is scanned that takes as long as solving,
another one in every round (partial pricing); and with `overlap` it is scanned beside the solving of the next round:
round t + 1 solves while workers scan with the duals of round t, and then prices with its own duals the candidates that
they have found. D is the best one proved before then, which bounds the optimum as well. A round that could be the last
one, or that has nothing left to insert, scans all kernels with its own duals.

Solutions of rounds that follow each other waver about the optimum, each violating other kernels. Once the gap is small,
kernels are therefore scanned for the mean of a round's duals and the prices before (smoothing): D is concave, so that
the mean is better than what it is the mean of. Candidates found there are inserted if they violate for the duals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
_RAMPS = (0.01, 0.1, 0.3, 1.0)  # widths of the margin over which duals of a given machine fall from C to 0


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
    prices: Array
    dual: float
    likely_dual: float  # D if no kernel violates more than those that were scanned
    stage_dual: float  # likewise of the problem of the stage
    priced: bool  # found by a scan for these prices
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
        self.n_candidates = settings.n_candidates(signs.shape[1])

    def support_of(self, duals: Array) -> tuple[Rows, Array]:
        """Rows of the samples with a nonzero dual in some class, and their signed duals."""
        rows = np.flatnonzero(duals.any(axis=1))
        return pick(self.data, rows, self.scanner.support_bytes), duals[rows] * self.signs[rows]

    def begin_scan(self, state: State, share: Share = ALL) -> Scan:
        """A scan of all kernels, or of a share, for the prices of this state."""
        return self.scanner.start(lambda: self.support_of(state.prices), self.n_candidates, share)

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
        n_support, n_duals = int(state.prices.any(axis=1).sum()), int(np.count_nonzero(state.prices))
        anchors, sizes = self.grid.anchors, (len(self.grid.gammas), self.grid.anchors.n_features)
        return anchors.n_rows * scan_flops(self.grid.family, *sizes, n_support, n_duals)

    def price(
        self, state: State, solved: State, seen: Seen, lagging: ScanResult | None, own: ScanResult | None
    ) -> Priced:
        """Candidates for the duals of this round, of its own scan and of those before.

        Of all kernels, if need be: in the last stage, if the gap could be small enough, or nothing is left to insert.
        """
        scans = [scan for scan in (lagging, own) if scan is not None]
        ids, values, more = self.candidates(state, solved, seen, scans)
        if own is None or not own.complete:
            bound = state.bound
            if lagging is not None and lagging.complete:
                bound = max(bound, dual_value(state, lagging.maximum))
            scanned = solved if own is not None else replace(solved, prices=solved.duals)
            largest = own.maximum if own is not None else float(values.max(initial=0.0))
            largest = max(largest, self.largest_active(scanned, seen))
            likely, stage_dual = max(bound, dual_value(scanned, largest)), _stage_dual(scanned, largest)
            unfinished = more and not self.enough(seen, likely) and not state.stalled
            if unfinished or not solved.last_stage:
                priced = own is not None
                return Priced(ids, values, solved.prices, bound, likely, stage_dual, priced, False, *_effort(scans))
            own = self.begin_scan(solved).result()
            scans.append(own)
            ids, values, more = self.candidates(state, solved, seen, scans)
        largest = max(own.maximum, self.largest_active(solved, seen))
        if not more and solved.prices is not solved.duals and not self.enough(seen, dual_value(solved, largest)):
            solved = replace(solved, prices=solved.duals)  # of what these lag behind
            own = self.begin_scan(solved).result()
            scans.append(own)
            ids, values, more = self.candidates(state, solved, seen, scans)
            largest = max(own.maximum, self.largest_active(solved, seen))
        dual, stage_dual = dual_value(solved, largest), _stage_dual(solved, largest)
        return Priced(ids, values, solved.prices, dual, dual, stage_dual, True, True, *_effort(scans))

    def enough(self, seen: Seen, dual: float) -> bool:
        """Whether the gap would be as small as it should be."""
        return seen.primal - dual <= self.settings.tol * abs(seen.primal)

    def candidates(
        self, state: State, solved: State, seen: Seen, scans: Sequence[ScanResult]
    ) -> tuple[Array, Array, bool]:
        """Kernels that scans have found, this round's or earlier ones, with their q for the duals of this one.

        And whether some that are not active violate their constraint.
        """
        ids = np.unique(np.concatenate([state.pool, *(scan.ids for scan in scans)]))
        values = self.grid.take(ids).quadratic_forms(seen.support, seen.signed_duals, self.scanner.team)
        best = np.argsort(-values, kind="stable")[: self.n_candidates]
        ids, values = ids[best], values[best]
        return ids, values, bool(((values > seen.threshold) & ~np.isin(ids, solved.active)).any())

    def largest_active(self, state: State, seen: Seen) -> float:
        """The largest q of the active kernels for the prices of a state."""
        if state.prices is state.duals:
            return float(seen.active_forms.max())
        return float(self.active_forms(state).max())

    def active_forms(self, state: State) -> Array:
        """q of the active kernels for the prices of a state."""
        return self.grid.take(state.active).quadratic_forms(*self.support_of(state.prices), self.scanner.team)

    def dual_bound(self, state: State) -> float:
        """D of F5 by a scan of all kernels for the prices of this state."""
        largest = float(self.active_forms(state).max())
        return dual_value(state, max(self.begin_scan(state).result().maximum, largest))

    def dual_of_margins(self, margins: Array) -> tuple[float, Array]:
        """The best D of duals that margins (n, K) of some machine give, and these duals, by a full scan (F15).

        Duals are C within the margin, 0 beyond it, and between them on a ramp; of several widths of the ramp that with
        the best D over the listed kernels is scanned. For any duals, t = min(1, sum alpha / max q) is the best factor.
        """
        best = (-np.inf, np.zeros_like(margins))
        for width in _RAMPS:
            duals = self.settings.C * np.clip((1.0 + width - margins) / (2.0 * width), 0.0, 1.0)
            if not duals.any():
                continue
            support = self.support_of(duals)
            listed = self.grid.listed
            largest = 0.0 if listed is None else float(listed.quadratic_forms(*support, self.scanner.team).max())
            value = _scaled_dual(float(duals.sum()), largest)[0]
            if value > best[0]:
                best = value, duals
        duals = best[1]
        if not duals.any():
            return 0.0, duals
        largest = self.scanner.start(lambda: self.support_of(duals), self.n_candidates).result().maximum
        value, factor = _scaled_dual(float(duals.sum()), largest)
        return value, factor * duals


def _scaled_dual(total: float, largest: float) -> tuple[float, float]:
    """max over t in [0, 1] of t total - t^2/2 largest, and that t."""
    factor = min(1.0, total / largest) if largest > 0 else 1.0
    return factor * total - 0.5 * factor**2 * largest, factor


def dual_value(state: State, largest: float) -> float:
    """D of F5 for the prices of a state, made feasible, given their largest q."""
    share = state.in_play / len(state.prices)
    return share * float(state.prices.sum()) - 0.5 * share**2 * largest


def _stage_dual(state: State, largest: float) -> float:
    """Likewise of the problem with the samples in play and their box."""
    return float(state.prices.sum()) - 0.5 * largest


def _effort(scans: list[ScanResult]) -> tuple[float, int]:
    """Seconds and kernels of scans."""
    return sum(scan.seconds for scan in scans), sum(scan.n_kernels for scan in scans)
