"""SequentialMKL on a stream of kernels: each is probed on arrival, and discarded kernels are probed again.

    process(k)      q_k(alpha) > max over the active set S of q: k joins S, and weights and duals are optimised again,
                    warm. The others are discarded, as are kernels of S that have lost their weight.
    reprocess()     the same with the discarded, until none violates and the gap over all that are remembered is `tol`.

While the stream runs, a kernel must violate by a share of q, and the machine is solved to a fraction of that share.
Kernels that are missed by this are found by `reprocess` among the discarded ones, or with a budget by the next,
stricter pass. The lower bound

    D = sum alpha - 1/2 max over all kernels seen of q(alpha)  <=  optimum

is known from the current duals as long as no kernel is forgotten. Just before the first kernel is forgotten, the duals
are frozen, and again at the start of each further pass; q of every later kernel is computed for the frozen duals
(`bounds`).

As many discarded kernels are remembered as the budget allows, each with its price, which is q_m / max over S of q for
the duals of its last probe. A kernel with price 1 is about to violate. The kernels with the smallest prices are
forgotten; of equal prices, the latest ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.mkl.restricted import Objective
from mllkm_scale.mkl.state import Settings
from mllkm_scale.online.streamed_kernels.bounds import FrozenDuals, dual_bound
from mllkm_scale.online.streamed_kernels.lists import Kernels
from mllkm_scale.online.streamed_kernels.probe import KernelProbe
from mllkm_scale.online.streamed_kernels.solver import MachineSolver, StreamedMachine, View
from mllkm_scale.scan.diversity import diverse

__all__ = ["Discarded", "StreamedMKL"]

_LOOSEST = 0.02  # share of q by which a kernel of the first pass must violate
_SOLVED = 0.2  # of that share, as the tolerance of the machine
_LOOSEST_TOL, _TIGHTEST_TOL = 1e-2, 1e-8  # of a solution in `reprocess`
_NEAR = 0.05  # a kernel of zero weight stays if its q is this near to the largest
_PATIENCE = 30  # rounds of `reprocess` without a smaller gap
_EXACT = 0.5  # of `tol`, for `reprocess` with a budget: the next pass adds its own inexactness


class Discarded:
    """Discarded kernels, at most `limit` of them; `n_forgotten` counts the forgotten ones."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit, self.n_forgotten = limit, 0
        self._parts: list[Kernels] = []
        self._prices = np.empty(0)
        self._keys: dict[Hashable, None] = {}  # in the order of the kernels

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._keys

    @property
    def kernels(self) -> Kernels | None:
        """All of them as one list, in the order of arrival; None if there are none."""
        if len(self._parts) > 1:
            self._parts = [self._parts[0].joined(self._parts[1:])]
        return self._parts[0] if self._parts else None

    def would_forget(self, n_more: int) -> bool:
        """Whether adding this number of kernels would exceed the limit."""
        return self.limit is not None and len(self) + n_more > self.limit

    def add(self, kernels: Kernels, prices: Array) -> None:
        """Remember these kernels; beyond the limit, forget those with the smallest prices."""
        if self.limit is not None and len(self) >= self.limit > 0:
            costly = prices > self._prices.min()  # the others would be forgotten at once
            self.n_forgotten += int(np.count_nonzero(~costly))
            kernels, prices = kernels.take(costly), prices[costly]
        if not len(kernels):
            return
        self._parts.append(kernels)
        self._prices = np.concatenate([self._prices, prices])
        self._keys |= dict.fromkeys(kernels.keys())
        if self.would_forget(0):
            assert self.limit is not None
            self.n_forgotten += len(self) - self.limit
            self._keep(np.sort(np.argsort(-self._prices, kind="stable")[: self.limit]))

    def renew(self, prices: Array) -> None:
        """Set new prices of all kernels, for other duals."""
        self._prices = prices

    def pop(self, places: Array) -> Kernels:
        """Remove and return these kernels."""
        kernels = self.kernels
        assert kernels is not None
        taken = kernels.take(places)
        self._keep(np.delete(np.arange(len(self)), places))
        return taken

    def _keep(self, places: Array) -> None:
        kernels = self.kernels
        assert kernels is not None
        keys = list(self._keys)
        self._parts = [kernels.take(places)] if len(places) else []
        self._prices, self._keys = self._prices[places], dict.fromkeys(keys[m] for m in places.tolist())


class StreamedMKL:
    """The algorithm; `machine` is None until the first kernel is active."""

    def __init__(self, solver: MachineSolver, probe: KernelProbe, settings: Settings, remember: int | None) -> None:
        self.solver, self.probe, self.settings = solver, probe, settings
        self.discarded = Discarded(remember)
        self.machine: StreamedMachine | None = None
        self.view = View.before(solver.support_of(solver.start()[0]))
        self.frozen: FrozenDuals | None = None  # with the largest q over all kernels so far
        self.meeting: FrozenDuals | None = None  # with the largest q over the kernels of a further pass
        self.slack = max(_LOOSEST, 0.5 * settings.tol)
        self.n_arrived = self.n_seen = self.n_inserted = self.n_rounds = 0
        self.local_bound = 0.0  # D over the active and the remembered kernels, at the last `reprocess`

    @property
    def n_members(self) -> int:
        """Number of kernels of the active set."""
        return 0 if self.machine is None else len(self.machine.active)

    @property
    def n_active(self) -> int:
        """Number of kernels with positive weight."""
        return 0 if self.machine is None else int(np.count_nonzero(self.machine.weights))

    def process(self, kernels: Kernels) -> int:
        """Probe arriving kernels; return the number of inserted ones."""
        self.n_arrived += len(kernels)
        arrived = self.unknown(kernels)
        if not len(arrived):
            return 0
        n_new = len(arrived)
        if self.frozen is None and self.discarded.would_forget(n_new + self.n_members):
            self.frozen = self.freeze()
        prices = self.probe(arrived, self.view.support)
        self.meet(arrived, prices)
        inserted = 0
        while len(chosen := self.violators(arrived, prices, self.slack)):
            self.insert(arrived.take(chosen))
            inserted += len(chosen)
            arrived = arrived.take(np.delete(np.arange(len(arrived)), chosen))
            self.optimise(_SOLVED * self.slack)
            prices = self.probe(arrived, self.view.support)
        self.discarded.add(arrived, self.relative(prices))
        self.n_seen += n_new if self.meeting is None else 0
        return inserted

    def reprocess(self) -> float:
        """Probe the discarded kernels until none violates; return the relative gap over all remembered kernels."""
        tol = self.settings.tol * (_EXACT if self.discarded.n_forgotten else 1.0)
        inner_tol, best_gap, idle = _LOOSEST_TOL, np.inf, 0
        self.local_bound = 0.0
        while True:
            grew = self.optimise(inner_tol, _NEAR)
            prices, largest = self.price_remembered()
            self.local_bound = max(self.local_bound, dual_bound(self.view.support.total, largest))
            gap = Objective(self.view.primal, self.local_bound).gap
            idle = 0 if gap < best_gap else idle + 1
            best_gap = min(best_gap, gap)
            if gap <= tol or inner_tol < _TIGHTEST_TOL or idle >= _PATIENCE:
                return gap
            self.discarded.renew(self.relative(prices))
            if len(chosen := self.violators(self.discarded.kernels, prices, 0.0)):
                self.insert(self.discarded.pop(chosen))
                grew = True
            following = float(np.clip(0.1 * gap, 0.2 * tol, max(_LOOSEST_TOL, 0.2 * tol)))
            inner_tol = following if grew else min(following, 0.1 * inner_tol)

    @contextmanager
    def further_pass(self, whole: bool) -> Iterator[None]:
        """Context of a further pass over the same kernels, with the duals at its beginning frozen.

        Afterwards their bound is used, if it is better and the pass had the `whole` of all kernels. After a failed
        pass, only the bound of zero duals remains, because its kernels are unknown.
        """
        meeting = self.meeting = self.freeze()
        gap = Objective(self.view.primal, self.bound).gap
        self.slack = float(np.clip(0.25 * gap, 0.5 * self.settings.tol, self.slack))
        before, self.frozen = self.frozen, meeting.zero
        try:
            yield
        finally:
            self.meeting = None
        better = whole and (before is None or meeting.bound > before.bound)
        self.frozen = meeting if better else before

    @property
    def bound(self) -> float:
        """D over all kernels so far."""
        known = 0.0 if self.frozen is None else self.frozen.bound
        return known if self.discarded.n_forgotten else max(known, self.local_bound)

    def unknown(self, kernels: Kernels) -> Kernels:
        """The kernels that are neither active nor remembered, without duplicates."""
        known = set() if self.machine is None else set(self.machine.active.keys())
        new = []
        for place, key in enumerate(kernels.keys()):
            if key not in known and key not in self.discarded:
                known.add(key)
                new.append(place)
        return kernels if len(new) == len(kernels) else kernels.take(np.array(new, dtype=np.int64))

    def violators(self, kernels: Kernels | None, prices: Array, slack: float) -> Array:
        """Indices of the worst violators; of violators with parallel responses, only the best one."""
        settings, (rows, signed_duals) = self.settings, (self.view.support.rows, self.view.support.signed_duals)
        n_classes = signed_duals.shape[1]
        over = np.flatnonzero(prices > (1.0 + slack) * self.view.threshold)
        over = over[np.argsort(-prices[over], kind="stable")][: settings.n_candidates(n_classes)]
        if len(over) < 2:
            return over
        assert kernels is not None
        rng = np.random.default_rng([settings.seed, self.n_rounds, 1])
        witnesses = np.sort(rng.permutation(len(rows))[: settings.n_witnesses(n_classes)])
        responses = kernels.take(over).responses(rows[witnesses], rows, signed_duals)
        return over[diverse(responses, settings.n_insertions(n_classes))]

    def insert(self, kernels: Kernels) -> None:
        """Add kernels to the active set with weight zero."""
        if self.machine is None:
            self.machine = StreamedMachine(kernels, np.zeros(len(kernels)), *self.solver.start())
        else:
            self.machine = self.machine.joined(kernels)
        self.n_inserted += len(kernels)

    def optimise(self, tol: float, near: float = 0.0) -> bool:
        """Optimise weights and duals of the active kernels; return whether the working samples have changed.

        Kernels of zero weight are discarded, except those with q within `near` of the largest, which would come back.
        In a further pass, none is discarded: a kernel of zero weight may keep the duals at a point where no other
        kernel violates. If it were forgotten, it would be inserted and dropped in every pass.
        """
        if self.machine is None:
            return False
        solved = self.solver.solve(self.machine, tol)
        view = self.solver.primal_pass(solved)
        keep = (solved.weights > 0) | (view.forms > (1.0 - near) * view.threshold if near else False)
        keep |= self.meeting is not None
        self.view = replace(view, forms=view.forms[keep])
        if not keep.all():
            dropped = solved.only(~keep).active
            self.discarded.add(dropped, self.relative(view.forms[~keep]))
        self.n_rounds += 1
        self.machine = self.solver.renewed(solved.only(keep), view, self.n_rounds)
        return bool((self.machine.working & ~solved.working).any())

    def relative(self, prices: Array) -> Array:
        """Prices as `Discarded` compares them."""
        return prices / (self.view.threshold or 1.0)

    def price_remembered(self) -> tuple[Array, float]:
        """q of the discarded kernels, and the largest q of these and the active ones."""
        kernels = self.discarded.kernels
        prices = np.empty(0) if kernels is None else self.probe(kernels, self.view.support)
        return prices, max(float(self.view.forms.max(initial=0.0)), float(prices.max(initial=0.0)))

    def freeze(self) -> FrozenDuals:
        """Freeze the current duals, with the largest q over all active and remembered kernels."""
        return FrozenDuals(self.view.support, self.price_remembered()[1])

    def meet(self, arrived: Kernels, prices: Array) -> None:
        """Update frozen duals with arriving kernels; `prices` are for the current duals."""
        frozen = self.meeting or self.frozen
        if frozen is not None and frozen.support.total > 0:
            same = frozen.support is self.view.support
            frozen.meet(prices if same else self.probe(arrived, frozen.support))
