"""The machine that learns online: samples come in blocks, each with its kernels (the paper's fully online variant).

    for each block of samples:
        test      f of every sample, before any of them is learned
        process   a step of its duals, for every class; those within a margin are kept
        forget    samples by the rule of `KeptSamples`
        weigh     the best weights for the sums as they are; kernels without a part leave
        reprocess steps on samples kept before, block by block, in random order
    for each episode, which is some blocks, before its last reprocess:
        insert    those kernels of the episode before that violated, worst first, and none that repeat another
        probe     the kernels of all samples of the episode, which goes on beside the next one

What is minimised is the MKL problem of the samples kept and the kernels active, and these are the ones that matter as
far as was seen. The state after a block is a function of the samples that came, in their order, and of nothing else:
not of how they were cut into calls, nor of who does the probes.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.labels import n_outputs, signs_of
from mllkm_scale.mkl.restricted import Objective
from mllkm_scale.online.active import ActiveKernels, sums_of
from mllkm_scale.online.kept import KeptSamples, distinct_runs, latest_of_each
from mllkm_scale.online.probing import Candidates, Probe, Probing
from mllkm_scale.scan.diversity import diverse

__all__ = ["BLOCK", "EPISODE", "OnlineMachine", "OnlineSettings"]


BLOCK = 128
"""Samples that come at a time."""

EPISODE = 4
"""Blocks whose kernels are probed together."""

REFERENCE = 1024
"""The latest samples, over which the mean diagonal of a kernel is taken when it is probed."""

_REPROCESS = 16  # blocks of kept samples that are visited for each block that comes
_INSERTIONS = 16  # kernels of an episode, at most
_REPLACED = 0.25  # of the most kernels, at most, in one go
_CANDIDATES = 4  # times as many are looked at, to find those that do not repeat one another
_WITNESSES = 100  # support vectors on which responses are compared
_LIGHT = 1e-4  # of the largest part in the machine: a kernel below it leaves
_FIRST_KERNELS = 100
_FINISHING = 2  # sweeps over all samples kept, before a machine is used
_FIRST_ROUNDS = 12  # of the start: steps on all samples, weights, and kernels


@dataclass(frozen=True)
class OnlineSettings:
    """Settings of the machine: the box, what it may keep, and the seed of its random choices."""

    C: float
    max_kernels: int
    max_samples: int
    window: int | None = None
    seed: int = 0


class OnlineMachine:
    """Active kernels and kept samples, after `n_seen` samples have come."""

    def __init__(self, probing: Probing, n_classes: int, settings: OnlineSettings) -> None:
        n_features = probing.n_features
        self.probing, self.settings, self.n_classes = probing, settings, n_classes
        self.n_outputs = n_outputs(n_classes)
        self.kept = KeptSamples(n_features, self.n_outputs)
        nothing = probing.family.kernels(np.empty((0, n_features)), np.empty(0))
        self.active = ActiveKernels(nothing, np.empty(0), np.empty((self.n_outputs, 0, n_features + 1)))
        self.n_seen = self.n_blocks = 0
        self.latest = np.empty((0, n_features))  # samples: those of the episode, and the reference of its kernels
        self.probe = Probe.done(Candidates.none(n_features))
        self.sweep, self.queue = 0, np.empty(0, np.int64)  # of the visits to kept samples
        self.inserted = self.dropped = self.forgotten = 0  # in all

    def start(self, X: Array, codes: Array, ids: Array, weights: Array | None = None) -> None:
        """Learn the first samples together: all that have a weight are kept, and their kernels probed in each round."""
        n_seen, K = len(X), self.n_outputs
        weights = np.ones(n_seen) if weights is None else weights
        since = latest_of_each(ids)
        since = since[weights[since] > 0]
        X, codes, ids, weights, n = X[since], codes[since], ids[since], weights[since], len(since)
        signs = signs_of(codes, self.n_classes)
        even = np.where(signs > 0, 0.5 / np.maximum(1, (signs > 0).sum(axis=0)), 0.5 / (signs < 0).sum(axis=0).clip(1))
        nothing = {"duals": np.zeros((n, K)), "margins": np.zeros(n)}
        self.kept.append(rows=X, codes=codes, ids=ids, since=since, weights=weights, **nothing)
        self.n_seen, self.latest = n_seen, X[-REFERENCE:]
        self.kept.duals[:] = even
        first = min(self.settings.max_kernels, _FIRST_KERNELS)
        self.insert(self.look_for(X, first), first)
        if not len(self.active):  # no kernel tells anything apart, and any will do
            any_kernel = self.probing.family.kernels(X[:1], self.probing.gammas[:1])
            self.active.join(any_kernel, np.zeros((K, 1, X.shape[1] + 1)))
        self.kept.duals[:] = 0.0
        self.active.sums[:] = 0.0
        blocks = -(-n // BLOCK)
        for _ in range(_FIRST_ROUNDS):
            self.reprocess(2 * blocks)
            self.weigh()
            self.insert(self.look_for(X, _INSERTIONS), _INSERTIONS)
        self.finish()
        self.forget()

    def learn(self, X: Array, codes: Array, ids: Array, weights: Array | None = None) -> Array:
        """A block of samples with their weights; returns f (b, K) of each, as it was before they were learned."""
        outputs = self.process(X, codes, ids, weights)
        self.forget()
        self.n_blocks += 1
        self.latest = np.concatenate([self.latest, X])[-max(REFERENCE, EPISODE * BLOCK) :]
        self.weigh()
        if self.n_blocks % EPISODE == 0:
            self.insert(self.probe.result(), _INSERTIONS)
            self.probe = self.begin_probe(self.latest[-EPISODE * BLOCK :], _INSERTIONS)
        self.reprocess(_REPROCESS)
        return outputs

    def finish(self) -> None:
        """Some sweeps over all samples kept, for a machine that is to be used and learns no more."""
        for _ in range(_FINISHING):
            self.weigh()
            self.reprocess(-(-len(self.kept) // BLOCK))

    def copy(self) -> OnlineMachine:
        """Another machine in the same state; what goes on beside is not waited for, and belongs to both."""
        twin = copy(self)
        twin.kept, twin.active = self.kept.copy(), self.active.copy()
        return twin

    def process(self, X: Array, codes: Array, ids: Array, weights: Array | None = None) -> Array:
        """Test, and then train on one sample after the other; of those that are kept already the duals go on."""
        runs, weights = distinct_runs(ids), np.ones(len(X)) if weights is None else weights
        return np.concatenate([self.process_distinct(X[at], codes[at], ids[at], weights[at]) for at in runs])

    def process_distinct(self, X: Array, codes: Array, ids: Array, weights: Array) -> Array:
        """Likewise, of samples none of which comes twice; one without weight is tested only."""
        kept, at = self.kept, self.kept.find(ids)
        found = np.flatnonzero(at >= 0)
        at[found[kept.codes[at[found]] != codes[found]]] = -1  # with another label, it is another sample
        again, signs = at >= 0, signs_of(codes, self.n_classes)
        duals = np.zeros((len(X), self.n_outputs))
        duals[again] = kept.duals[at[again]]
        outputs, after = self.active.visit(X, signs, self.settings.C * weights, duals)
        margins, since = (signs * after).min(axis=1), self.n_seen + np.arange(len(X))
        kept.duals[at[again]], kept.margins[at[again]] = duals[again], margins[again]
        kept.since[at[again]], kept.weights[at[again]] = since[again], weights[again]
        new = ~again & (weights > 0) & (((signs * outputs).min(axis=1) < 1.0) | duals.any(axis=1))
        kept.append(
            rows=X[new],
            codes=codes[new],
            duals=duals[new],
            margins=margins[new],
            ids=ids[new],
            since=since[new],
            weights=weights[new],
        )
        self.n_seen += len(X)
        return outputs

    def reprocess(self, n_blocks: int) -> None:
        """Steps on blocks of kept samples; all of them have their turn before one has it again."""
        kept, boxes = self.kept, self.boxes()
        for _ in range(n_blocks if len(kept) else 0):
            if not len(self.queue):
                self.sweep += 1
                self.queue = np.random.default_rng([self.settings.seed, 0, self.sweep]).permutation(len(kept))
            at, self.queue = self.queue[:BLOCK], self.queue[BLOCK:]
            signs, duals = signs_of(kept.codes[at], self.n_classes), kept.duals[at]
            _, outputs = self.active.visit(kept.rows[at], signs, boxes[at], duals)
            kept.duals[at], kept.margins[at] = duals, (signs * outputs).min(axis=1)

    def weigh(self) -> None:
        """The best weights; kernels that have almost no part in the machine leave."""
        self.active.reweigh()
        parts = self.active.parts()
        self.drop(np.flatnonzero(parts < _LIGHT * parts.max()))

    def drop(self, at: Array) -> None:
        """The kernels at these positions leave."""
        if len(at):
            self.active.keep(np.setdiff1d(np.arange(len(self.active)), at))
            self.dropped += len(at)

    def forget(self) -> None:
        """Samples leave by the rule of `KeptSamples`, and what is left of their part in the machine with them."""
        kept = self.kept
        gone = kept.leaving(self.boxes())
        if not len(gone):
            return
        support = gone[kept.duals[gone].any(axis=1)]
        if len(support):
            self.active.add(kept.rows[support], -self.signed_duals(support))
        staying = np.ones(len(kept), dtype=bool)
        staying[gone] = False
        at = np.cumsum(staying) - 1
        self.queue = at[self.queue[staying[self.queue]]]
        kept.retain(np.flatnonzero(staying))
        self.forgotten += len(gone)

    def insert(self, found: Candidates, most: int) -> None:
        """The worst violators join, but of those with parallel responses only the best; the lightest make room."""
        support, room = self.support(), self.settings.max_kernels - len(self.active)
        kernels = self.active.without_known(found.kernels(self.probing.family))
        if not len(kernels) or not len(support):
            return
        most = min(most, max(room, 1, int(_REPLACED * self.settings.max_kernels)))
        rows, duals = self.kept.rows[support], self.signed_duals(support)
        rng = np.random.default_rng([self.settings.seed, 1, self.n_seen, self.inserted])
        witnesses = rows[np.sort(rng.permutation(len(rows))[:_WITNESSES])]
        kernels = kernels.take(diverse(kernels.responses(witnesses, rows, duals), most))
        if len(kernels) > room:
            self.drop(np.argsort(self.active.parts(), kind="stable")[: len(kernels) - room])
        self.active.join(kernels, sums_of(kernels, rows, duals))
        self.inserted += len(kernels)

    def look_for(self, X: Array, most: int) -> Candidates:
        """The violators among the kernels of these samples, at once."""
        probe = self.begin_probe(X, most)
        return probe.result()

    def begin_probe(self, X: Array, most: int) -> Probe:
        """Begin to probe the kernels of these samples, for the duals as they are now."""
        support = self.support()
        threshold = float(self.active.weights @ self.active.forms())
        rows, duals = self.kept.rows[support], self.signed_duals(support)
        return self.probing.begin(X, self.latest[-REFERENCE:], rows, duals, threshold, _CANDIDATES * most)

    def boxes(self) -> Array:
        """C_i of the samples kept."""
        settings = self.settings
        return self.kept.boxes(settings.C, self.n_seen, settings.max_samples, settings.window)

    def support(self) -> Array:
        """Positions of the kept samples that have a dual."""
        return np.flatnonzero(self.kept.duals.any(axis=1))

    def signed_duals(self, at: Array) -> Array:
        """alpha y of the kept samples at these positions, (n, K)."""
        return np.asarray(self.kept.duals[at] * signs_of(self.kept.codes[at], self.n_classes))

    def objective(self) -> Objective:
        """P and D (F5) of the samples kept and the kernels active.

        A dual may be above a box that has shrunk since its last turn: the box counts as large as the dual then.
        """
        kept, active, boxes, hinge = self.kept, self.active, self.boxes(), 0.0
        for start in range(0, len(kept), BLOCK):
            part = slice(start, start + BLOCK)
            margins = signs_of(kept.codes[part], self.n_classes) * active.outputs(kept.rows[part])
            losses = np.maximum(boxes[part, None], kept.duals[part])
            hinge += float(np.vdot(losses, np.maximum(0.0, 1.0 - margins)))
        forms = active.forms()
        primal = 0.5 * float(active.weights @ np.sqrt(forms)) ** 2 + hinge
        return Objective(primal, float(kept.duals.sum() - 0.5 * forms.max(initial=0.0)))
