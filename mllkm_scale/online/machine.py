"""The online machine: samples arrive in blocks, with their kernels (the fully online variant of the paper).

    for each block of samples:
        test      f of every sample, before any of them is learned
        process   a step on the duals for every class; samples within a margin are kept
        forget    samples by the rule of `KeptSamples`
        weigh     the best weights for the current sums; kernels without effect are dropped
        reprocess steps on kept samples, block by block, in random order
    for each episode of some blocks, before its last reprocess:
        insert    the violating kernels of the previous episode, worst first, without nearly parallel ones
        probe     the kernels of all samples of the episode, concurrently with the next episode

This minimises the MKL problem of the kept samples and the active kernels. The state after a block is a function of the
samples in order. It does not depend on how they were divided into calls, or on the executor of the probes.
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
"""Number of samples of a block."""

EPISODE = 4
"""Number of blocks of an episode, whose kernels are probed together."""

REFERENCE = 1024
"""Number of latest samples for the mean diagonal of a probed kernel."""

_REPROCESS = 16  # blocks of kept samples that are visited per arriving block
_INSERTIONS = 16  # largest number of kernels per episode
_REPLACED = 0.25  # of the largest number of kernels, at most at once
_CANDIDATES = 4  # times as many are compared, to leave out nearly parallel ones
_WITNESSES = 100  # support vectors on which responses are compared
_LIGHT = 1e-4  # of the largest |w_m|: a kernel below it is dropped
_FIRST_KERNELS = 100
_FINISHING = 2  # sweeps over all kept samples before a machine is used
_FIRST_ROUNDS = 12  # rounds of the start: steps on all samples, weights, and kernels


@dataclass(frozen=True)
class OnlineSettings:
    """Settings of the machine: the box, the limits of what it keeps, and the seed."""

    C: float
    max_kernels: int
    max_samples: int
    window: int | None = None
    seed: int = 0


class OnlineMachine:
    """Active kernels and kept samples, after `n_seen` samples."""

    def __init__(self, probing: Probing, n_classes: int, settings: OnlineSettings) -> None:
        n_features = probing.n_features
        self.probing, self.settings, self.n_classes = probing, settings, n_classes
        self.n_outputs = n_outputs(n_classes)
        self.kept = KeptSamples(n_features, self.n_outputs)
        nothing = probing.family.kernels(np.empty((0, n_features)), np.empty(0))
        self.active = ActiveKernels(nothing, np.empty(0), np.empty((self.n_outputs, 0, n_features + 1)))
        self.n_seen = self.n_blocks = 0
        self.latest = np.empty((0, n_features))  # the samples of the episode, and the reference rows of its kernels
        self.probe = Probe.done(Candidates.none(n_features))
        self.sweep, self.queue = (
            0,
            np.empty(0, np.int64),
        )  # number of the sweep over kept samples, and its remaining samples
        self.inserted = self.dropped = self.forgotten = 0  # in all

    def start(self, X: Array, codes: Array, ids: Array, weights: Array | None = None) -> None:
        """Learn the first samples together: all of positive weight are kept, and their kernels are probed in each
        round."""
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
        if not len(self.active):  # no kernel separates the signs, so any kernel will do
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
        """Learn a block of samples with weights; return f (b, K) of each, before they are learned."""
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
        """Final sweeps over all kept samples, for a machine that will be used and learns no more."""
        for _ in range(_FINISHING):
            self.weigh()
            self.reprocess(-(-len(self.kept) // BLOCK))

    def copy(self) -> OnlineMachine:
        """A copy of the machine; concurrent probes are shared and not waited for."""
        twin = copy(self)
        twin.kept, twin.active = self.kept.copy(), self.active.copy()
        return twin

    def process(self, X: Array, codes: Array, ids: Array, weights: Array | None = None) -> Array:
        """Test, and then train on one sample after the other; the duals of kept samples continue."""
        runs, weights = distinct_runs(ids), np.ones(len(X)) if weights is None else weights
        return np.concatenate([self.process_distinct(X[at], codes[at], ids[at], weights[at]) for at in runs])

    def process_distinct(self, X: Array, codes: Array, ids: Array, weights: Array) -> Array:
        """Likewise, for distinct samples; a sample of zero weight is only tested."""
        kept, at = self.kept, self.kept.find(ids)
        found = np.flatnonzero(at >= 0)
        at[found[kept.codes[at[found]] != codes[found]]] = -1  # with another label, it counts as another sample
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
        """Steps on blocks of kept samples; every sample is visited before one is visited again."""
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
        """Set the best weights, and drop kernels with almost no effect."""
        self.active.reweigh()
        parts = self.active.parts()
        self.drop(np.flatnonzero(parts < _LIGHT * parts.max()))

    def drop(self, at: Array) -> None:
        """Drop the kernels at these positions."""
        if len(at):
            self.active.keep(np.setdiff1d(np.arange(len(self.active)), at))
            self.dropped += len(at)

    def forget(self) -> None:
        """Drop samples by the rule of `KeptSamples`, with their remaining contribution to the machine."""
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
        """Insert the worst violators, only the best one of parallel responses; the kernels with the smallest weights
        make room."""
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
        """The violators among the kernels of these samples, computed now."""
        probe = self.begin_probe(X, most)
        return probe.result()

    def begin_probe(self, X: Array, most: int) -> Probe:
        """Start a probe of the kernels of these samples, with the current duals."""
        support = self.support()
        threshold = float(self.active.weights @ self.active.forms())
        rows, duals = self.kept.rows[support], self.signed_duals(support)
        return self.probing.begin(X, self.latest[-REFERENCE:], rows, duals, threshold, _CANDIDATES * most)

    def boxes(self) -> Array:
        """C_i of the kept samples."""
        settings = self.settings
        return self.kept.boxes(settings.C, self.n_seen, settings.max_samples, settings.window)

    def support(self) -> Array:
        """Positions of the kept samples with a nonzero dual."""
        return np.flatnonzero(self.kept.duals.any(axis=1))

    def signed_duals(self, at: Array) -> Array:
        """alpha y of the kept samples at these positions, (n, K)."""
        return np.asarray(self.kept.duals[at] * signs_of(self.kept.codes[at], self.n_classes))

    def objective(self) -> Objective:
        """P and D (F5) of the kept samples and the active kernels.

        A dual may exceed a box that has shrunk since its last step; then the box counts as large as the dual.
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
