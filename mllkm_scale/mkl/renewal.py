"""The working sets of the next round (F6, F16): kernels and samples to add and to drop, and the inner tolerance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.threads import Threads
from mllkm_scale.kernels.grid import KernelGrid
from mllkm_scale.mkl.margins import PrimalPass
from mllkm_scale.mkl.pricing import DualPass
from mllkm_scale.mkl.state import Settings, State
from mllkm_scale.scan.diversity import diverse

__all__ = ["Renewal"]


LOOSEST = 0.3  # inner tolerance: duals well inside of their box violate fewer kernels than those at its corners
_INNER, _INNER_LATE = 0.2, 0.1  # of the gap, as the next inner tolerance; and if few kernels remain to be inserted
_LEAST = 0.4  # of the tolerance, as the smallest inner tolerance
_SPARE = 0.3  # kernels of zero weight that stay, per kernel of positive weight
_LEAST_INSERTIONS = 50  # for a small budget: the worst violators alone are a bad choice
_GROWTH = 3  # samples added to a working set, per sample in it: with 1 there are more rounds
_ROUGHLY, _NEARLY = 0.1, 0.02
"""Inner tolerances with a budget of kernels: while many violating samples are not in a working set, and later."""


class Renewal:
    """The working sets of the next round, from the results of this one."""

    def __init__(self, grid: KernelGrid, n_classes: int, settings: Settings, threads: Threads) -> None:
        self.grid, self.n_classes, self.settings, self.threads = grid, n_classes, settings, threads

    def __call__(self, state: State, primal: PrimalPass, dual: DualPass, gap: float) -> State:
        """The state before the next round; `gap` is that of the machine and the duals of this round."""
        renewed = self.insert_kernels(self.drop_kernels(state, primal.active_forms), primal, dual)
        n_new = len(np.setdiff1d(renewed.active, state.active))
        renewed = self.renew_samples(renewed, primal.margins)
        grew = n_new > 0 or bool((renewed.working & ~state.working).any())
        inner = _INNER if n_new >= self.most_insertions(state) else _INNER_LATE
        return replace(
            renewed,
            round=state.round + 1,
            inner_tol=self.next_tolerance(state, primal.margins, inner * gap, grew),
            pool=dual.ids,
            priced=dual.priced,
            scanned=dual.complete,
        )

    def drop_kernels(self, state: State, active_forms: Array) -> State:
        """Drop kernels of zero weight, except those with the largest q, which would be the first to come back.

        No kernel is dropped twice, because kernels could be added and dropped in a cycle.
        """
        idle = np.flatnonzero(state.weights == 0.0)
        n_spare = int(_SPARE * (len(state.active) - len(idle)))
        idle = idle[np.argsort(-active_forms[idle], kind="stable")[n_spare:]]
        leaving = idle[~np.isin(state.active[idle], state.left)]
        keep = np.isin(np.arange(len(state.active)), leaving, invert=True)
        left = np.union1d(state.left, state.active[leaving])
        return replace(state, active=state.active[keep], weights=state.weights[keep], left=left)

    def insert_kernels(self, state: State, primal: PrimalPass, dual: DualPass) -> State:
        """Add the worst violators with weight zero; of violators with parallel responses, only the best one."""
        new = dual.ids[dual.values > primal.threshold]
        new = new[~np.isin(new, state.active)]
        rng = np.random.default_rng([self.settings.seed, state.round, 1])
        rows = np.sort(rng.permutation(len(primal.support))[: self.settings.n_witnesses(self.n_classes)])
        if not len(new) or not len(rows):
            return state
        signed_duals = primal.signed_duals
        responses = self.grid.take(new).responses(primal.support[rows], primal.support, signed_duals, self.threads)
        new = new[diverse(responses, self.most_insertions(state))]
        weights = np.concatenate([state.weights, np.zeros(len(new))])
        return replace(state, active=np.concatenate([state.active, new]), weights=weights)

    def most_insertions(self, state: State) -> int:
        """Largest number of kernels to insert: doubled after each round without progress, but at most half of a
        budget."""
        at_once, most = self.settings.n_insertions(self.n_classes), self.settings.max_kernels
        candidates = self.settings.n_candidates(self.n_classes)
        for _ in range(state.idle):
            at_once = min(2 * at_once, candidates)
        return at_once if most is None else min(at_once, max(most // 2, _LEAST_INSERTIONS))

    def renew_samples(self, state: State, margins: Array) -> State:
        """Drop samples well beyond the margin, and add samples within it, at most three per sample that stays.

        The samples to add are chosen at random: in noisy data, the worst samples are mislabelled, and a machine trained
        on them is useless. A class whose samples are all well beyond the margin keeps the nearest one, so that the
        inner problem has samples of every class.
        """
        working = state.working & (margins < self.settings.margin)
        for k, column in enumerate(margins.T):
            rng = np.random.default_rng([self.settings.seed, state.round, 2, k])
            outside = rng.permutation(np.flatnonzero((column < 1.0) & ~working[:, k]))
            working[outside[: max(self.settings.first_samples, _GROWTH * int(working[:, k].sum()))], k] = True
            working[np.argmin(column), k] |= not working[:, k].any()
        return replace(state, working=working)

    def next_tolerance(self, state: State, margins: Array, wanted: float, grew: bool) -> float:
        """The wanted tolerance, within bounds; a tenth of the last one if neither a kernel nor a sample was added.

        With a budget of kernels, the gap stays wide, and does not determine a useful tolerance.
        """
        least = _LEAST * self.settings.tol
        if state.over_budget:
            missing = np.count_nonzero((margins < 1.0) & ~state.working)
            return max(least, _ROUGHLY if missing > np.count_nonzero(state.working) else _NEARLY)
        tol = float(np.clip(wanted, least, max(LOOSEST, least)))
        return tol if grew else min(tol, 0.1 * state.inner_tol)
