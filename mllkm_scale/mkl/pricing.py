"""Pricing: which open kernels violate their constraint for the duals of a round, and the bound D that follows.

Where scanning would be the larger part of a round, a share of the open set is scanned that takes as long as solving,
another one in every round (partial pricing); and with `overlap` it is scanned beside the solving of the next round:
round t + 1 solves while workers scan with the duals of round t, and then prices with its own duals the candidates that
they have found. D is the best one proved before then, which bounds the optimum as well. A round that could be the last
one, or that has nothing left to insert, scans all kernels with its own duals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.grid import KernelGrid, RowSource
from mllkm_scale.kernels.picked_rows import Rows, pick
from mllkm_scale.mkl.certificate import Proof, proof_of
from mllkm_scale.mkl.state import Settings, State
from mllkm_scale.scan.scanner import ALL, Scan, Scanner, ScanResult, Share
from mllkm_scale.scan.work import scan_flops

__all__ = ["Priced", "Pricing", "Seen"]


_MOST_SHARES = 16  # into which the open set is cut
_LEAST_ANCHORS = 2000  # of a share
_BUDGET_SHARES = 4  # where kernels are only exchanged within a budget: any share has more violators than are taken
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
    """Candidates with their q for the duals of the round, best first; and what scans prove."""

    ids: Array
    values: Array
    proof: Proof | None  # of a scan of all kernels
    likely_dual: float  # D if no kernel violates more than those that were scanned
    stage_dual: float  # likewise of the problem with the samples in play and their box
    priced: bool  # found by a scan for these duals
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
        """A scan of all kernels, or of a share, for the duals of this state."""
        return self.scanner.start(lambda: self.support_of(state.duals), self.n_candidates, share)

    def share(self, state: State) -> Share:
        """The blocks of anchors that a round scans, unless it could be the last one; others in the next round."""
        if self.settings.pricing == "full":
            return ALL
        most = min(_MOST_SHARES, self.grid.anchors.n_rows // _LEAST_ANCHORS)
        wanted = max(_BUDGET_SHARES * state.over_budget, self.scan_flops(state) / max(1.0, self.solve_flops(state)))
        step = int(max(1.0, min(most, wanted)))
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
        self, state: State, solved: State, seen: Seen, lagging: ScanResult | None, own: ScanResult | None
    ) -> Priced:
        """Candidates for the duals of this round, of its own scan and of those before.

        Of all kernels, if need be: in the last stage, if the gap could be small enough, or nothing is left to insert.
        """
        scans = [scan for scan in (lagging, own) if scan is not None]
        ids, values, more = self.candidates(state, solved, seen, scans)
        active = float(seen.active_forms.max())
        if own is None or not own.complete:
            largest = max(active, own.maximum if own is not None else float(values.max(initial=0.0)))
            likely, stage_dual = _proof(solved, largest).dual, proof_of(solved.duals, largest).dual
            if (more and not self.enough(state, seen, likely)) or not solved.last_stage:
                before = _proof(state, lagging.maximum) if lagging is not None and lagging.complete else None
                return Priced(ids, values, before, likely, stage_dual, own is not None, False, *_effort(scans))
            own = self.begin_scan(solved).result()
            scans.append(own)
            ids, values, _ = self.candidates(state, solved, seen, scans)
        largest = max(active, own.maximum)
        proof, stage_dual = _proof(solved, largest), proof_of(solved.duals, largest).dual
        return Priced(ids, values, proof, proof.dual, stage_dual, True, True, *_effort(scans))

    def enough(self, state: State, seen: Seen, dual: float) -> bool:
        """Whether the gap would be as small as it should be."""
        primal = min(state.best_primal, seen.primal)
        return primal - max(state.bound, dual) <= self.settings.tol * abs(primal)

    def candidates(
        self, state: State, solved: State, seen: Seen, scans: Sequence[ScanResult]
    ) -> tuple[Array, Array, bool]:
        """Kernels that scans have found, this round's or earlier ones, with their q for the duals of this one.

        And whether some that are not active violate their constraint.
        """
        ids = np.unique(np.concatenate([state.pool, *(scan.ids for scan in scans)]))
        values = self.grid.take(ids).quadratic_forms(seen.support, seen.signed_duals, self.scanner.threads)
        best = np.argsort(-values, kind="stable")[: self.n_candidates]
        ids, values = ids[best], values[best]
        return ids, values, bool(((values > seen.threshold) & ~np.isin(ids, solved.active)).any())

    def active_forms(self, state: State) -> Array:
        """q of the active kernels for the duals of a state."""
        return self.grid.take(state.active).quadratic_forms(*self.support_of(state.duals), self.scanner.threads)

    def prove(self, state: State) -> Proof:
        """What the duals of a state prove, by a scan of all kernels."""
        return _proof(state, max(self.begin_scan(state).result().maximum, float(self.active_forms(state).max())))

    def proof_of_margins(self, margins: Array) -> Proof:
        """The best D of duals that margins (n, K) of some machine give, by a full scan.

        Duals are C within the margin, 0 beyond it, and between them on a ramp; of several widths of the ramp that with
        the best D over the listed kernels is scanned.
        """
        best = Proof(-np.inf, np.zeros_like(margins))
        for width in _RAMPS:
            duals = self.settings.C * np.clip((1.0 + width - margins) / (2.0 * width), 0.0, 1.0)
            if not duals.any():
                continue
            support = self.support_of(duals)
            listed = self.grid.listed
            largest = 0.0 if listed is None else float(listed.quadratic_forms(*support, self.scanner.threads).max())
            best = max(best, proof_of(duals, largest), key=lambda proof: proof.dual)
        if not best.duals.any():
            return Proof(0.0, best.duals)
        largest = self.scanner.start(lambda: self.support_of(best.duals), self.n_candidates).result().maximum
        return proof_of(best.duals, largest)


def _proof(state: State, largest: float) -> Proof:
    """What the duals of a state prove for all samples, given their largest q."""
    return proof_of(state.duals, largest, state.in_play / len(state.duals))


def _effort(scans: list[ScanResult]) -> tuple[float, int]:
    """Seconds and kernels of scans."""
    return sum(scan.seconds for scan in scans), sum(scan.n_kernels for scan in scans)
