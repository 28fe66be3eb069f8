"""The dual pass: the open kernels that violate their constraint for the duals of a round, and D (F5).

If scanning would be the larger part of a round, only a share of the open set is scanned, which takes as long as
solving, and a different share in every round (partial pricing). With `overlap`, this scan runs while the next round is
solved: round t + 1 solves while workers scan with the duals of round t, and then evaluates the candidates found with
its own duals. Its D is the best one proved before, which is also a bound. A round that could be the last one, or that
has nothing left to insert, scans all kernels with its own duals.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.closing import Closing
from mllkm_scale.kernels.grid import KernelGrid, RowSource
from mllkm_scale.kernels.picked_rows import Rows, pick
from mllkm_scale.mkl.certificate import Objective, Proof, proof_of
from mllkm_scale.mkl.margins import NearMargin, PrimalPass
from mllkm_scale.mkl.state import Settings, State
from mllkm_scale.scan.scanner import ALL, Scan, Scanner, ScanResult, Share
from mllkm_scale.scan.work import scan_flops

__all__ = ["RAMPS", "DualPass", "Pricing", "RoundScans"]


_BUDGET_SHARES = 4  # with a full budget of kernels: a quarter of the blocks has more violators than are inserted
RAMPS = (0.01, 0.1, 0.3, 1.0)  # widths of the margin over which duals of a given machine fall from C_i to 0


@dataclass(frozen=True)
class DualPass:
    """Candidates with their q for the duals of the round, best first; and the bounds from the scans."""

    ids: Array
    values: Array
    proof: Proof | None  # the best proof of the scans of all kernels
    likely_dual: float  # D under the assumption that no other kernel violates more
    priced: bool  # whether the candidates are from a scan with these duals
    complete: bool  # whether it was a scan of all kernels: the proof is of these duals
    seconds: float = 0.0
    n_scanned: int = 0


class Pricing:
    """Scans for the outer loop; `solve_flops` gives the cost of solving in a state."""

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
        return self._support_among(np.arange(len(duals)), duals)

    def _support_among(self, rows: Array, duals: Array) -> tuple[Rows, Array]:
        """The support, given the duals of these rows only."""
        used = duals.any(axis=1)
        rows = rows[used]
        return pick(self.data, rows, self.scanner.support_bytes), duals[used] * self.signs[rows]

    def begin_scan(self, duals: Array, share: Share = ALL) -> Scan:
        """A scan of all kernels, or of a share, with these duals."""
        return self.scanner.start(lambda: self.support_of(duals), self.n_candidates, share)

    def share(self, state: State) -> Share:
        """The blocks of anchors that a round scans, unless it could be the last one; the next round scans others.

        Scanning them takes as long as solving, and there are at least as many anchors as candidates to keep.
        """
        if self.settings.pricing == "full":
            return ALL
        most = self.grid.anchors.n_rows // self.n_candidates
        wanted = max(_BUDGET_SHARES * state.over_budget, self.scan_flops(state) / max(1.0, self.solve_flops(state)))
        step = int(max(1.0, min(most, wanted)))
        return Share(state.round % step, step)

    def scans_at_once(self, state: State) -> bool:
        """Whether this round scans with its duals at once; otherwise the next round scans with them while it solves."""
        if self.settings.overlap != "auto":
            return self.settings.overlap == "never"
        return self.scan_flops(state) <= self.share(state).step * self.solve_flops(state)

    def scan_flops(self, state: State) -> float:
        """Multiply-adds of a scan of all kernels, computed from sizes, so that all machines decide alike."""
        n_support, n_duals = int(state.duals.any(axis=1).sum()), int(np.count_nonzero(state.duals))
        anchors, sizes = self.grid.anchors, (len(self.grid.gammas), self.grid.anchors.n_features)
        return anchors.n_rows * scan_flops(self.grid.family, *sizes, n_support, n_duals)

    def candidates(self, pool: Array, primal: PrimalPass) -> tuple[Array, Array]:
        """The best of these kernels for the duals of the round, with their q."""
        values = self.grid.take(pool).quadratic_forms(primal.support, primal.signed_duals, self.scanner.threads)
        best = np.argsort(-values, kind="stable")[: self.n_candidates]
        return pool[best], values[best]

    def active_forms(self, state: State) -> Array:
        """q of the active kernels for the duals of a state."""
        return self.grid.take(state.active).quadratic_forms(*self.support_of(state.duals), self.scanner.threads)

    def prove(self, state: State) -> Proof:
        """The bound that the duals of a state prove, by a scan of all kernels."""
        scanned = self.begin_scan(state.duals).result().maximum
        return proof_of(state.duals, max(scanned, float(self.active_forms(state).max())))

    def proof_of_margins(self, near: NearMargin) -> Proof:
        """The best D for duals derived from the margins of a machine, by a full scan.

        The duals are C_i within the margin and 0 beyond it, with a ramp between. Of several widths of the ramp, the one
        with the best D over the listed kernels is used for the scan. Rows that are not in `near` have zero duals.
        """
        nothing = np.zeros_like(near.margins)
        best, upper = Proof(-np.inf, nothing), self.settings.box(len(self.signs)).take(near.rows).upper[:, None]
        for width in RAMPS:
            duals = upper * np.clip((1.0 + width - near.margins) / (2.0 * width), 0.0, 1.0)
            if not duals.any() or 1.0 + width > near.limit:
                continue
            support = self._support_among(near.rows, duals)
            listed = self.grid.listed
            largest = 0.0 if listed is None else float(listed.quadratic_forms(*support, self.scanner.threads).max())
            best = max(best, proof_of(duals, largest), key=lambda proof: proof.dual)
        if not best.duals.any():
            return Proof(0.0, nothing)
        scan = self.scanner.start(lambda: self._support_among(near.rows, best.duals), self.n_candidates)
        return proof_of(best.duals, scan.result().maximum)


class RoundScans(Closing):
    """The scans of one round. Only this class decides which scans there are.

    beside      with the duals of the previous round, while this round solves: if these were not scanned for
    own         with the duals of this round: if a scan of a share takes no longer than solving
    to the end  likewise over all kernels: if the gap could be small enough, or no candidate violates

    Scans that have begun are stopped when the round ends, also by an exception.
    """

    def __init__(self, pricing: Pricing, state: State) -> None:
        self.pricing, self.before = pricing, state.duals
        self._open = ExitStack()
        self._beside = None if state.priced else self._begin(state.duals, pricing.share(state))
        self._own: Scan | None = None

    def close(self) -> None:
        """Stop the scans that have begun."""
        self._open.close()

    def beside(self) -> ScanResult | None:
        """The result of the scan with the duals of the previous round."""
        return None if self._beside is None else self._beside.result()

    def begin_own(self, solved: State) -> None:
        """Let workers scan with the duals of this round during the primal pass."""
        if self.pricing.scans_at_once(solved):
            self._own = self._begin(solved.duals, self.pricing.share(solved))

    def dual_pass(self, solved: State, primal: PrimalPass) -> DualPass:
        """Candidates for the duals of this round, from its own scans and earlier ones, and the bounds."""
        pricing = self.pricing
        beside, own = self.beside(), None if self._own is None else self._own.result()
        scans = [scan for scan in (beside, own) if scan is not None]
        found = np.unique(np.concatenate([solved.pool, *(scan.ids for scan in scans)]))
        ids, values = pricing.candidates(found, primal)
        active = float(primal.active_forms.max())
        likely = proof_of(solved.duals, max(active, float(values.max(initial=0.0)) if own is None else own.maximum))
        violate = bool(((values > primal.threshold) & ~np.isin(ids, solved.active)).any())
        if (own is None or not own.complete) and (self._near(solved, primal, likely) or not violate):
            own = self._begin(solved.duals, ALL).result()
            scans.append(own)
            ids, values = pricing.candidates(np.union1d(found, own.ids), primal)
            likely = proof_of(solved.duals, max(active, own.maximum))
        complete = own is not None and own.complete
        proofs = [likely] if complete else []
        if beside is not None and beside.complete:
            proofs.append(proof_of(self.before, beside.maximum))
        proof = max(proofs, key=lambda proof: proof.dual, default=None)
        seconds, n_kernels = sum(scan.seconds for scan in scans), sum(scan.n_kernels for scan in scans)
        return DualPass(ids, values, proof, likely.dual, own is not None, complete, seconds, n_kernels)

    def _near(self, solved: State, primal: PrimalPass, likely: Proof) -> bool:
        """Whether the gap would be small enough if no kernel violates more than those that were scanned."""
        best = Objective(min(solved.best_primal, primal.primal), max(solved.bound, likely.dual))
        return best.gap <= self.pricing.settings.tol

    def _begin(self, duals: Array, share: Share) -> Scan:
        scan = self.pricing.begin_scan(duals, share)
        self._open.callback(scan.close)
        return scan
