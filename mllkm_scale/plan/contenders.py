"""The settings that "auto" stands for: which candidates there are, in which metric, and how they are regularised.

Candidates are learned, or are all samples. With few rows several settings compete (`selection`); with many, or where
parameters leave no choice, one setting follows by rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mllkm_scale.kernels.anchors import anchor_spec
from mllkm_scale.learn.machine import Metric
from mllkm_scale.params import Params

__all__ = [
    "FEW_ROWS",
    "FOLD_ROWS",
    "LEAST_ROWS",
    "MOST_ROWS",
    "TRIED_AT_ONCE",
    "Contender",
    "contenders",
    "is_settled",
    "may_be_learned",
    "may_be_samples",
]

LEAST_ROWS = 50
"""With fewer rows nothing is learned, and nothing held out: all samples are anchors."""

FEW_ROWS = 2000
"""Up to so many rows every row is held out once; with more, a third of them is."""

GRID_ROWS = 8000
"""Up to so many rows all samples compete with learned anchors."""

FOLD_ROWS = 20_000
"""Up to so many rows learned machines are judged by folds; with more, by rows held out from the descent."""

MOST_ROWS = 2000
"""Rows that a contender is trained on where they are more, and rows that are then held out, at most."""

TRIED_AT_ONCE = 4
"""Settings that are tried at the same time, at most, each in a thread of its own."""

RIDGES, RIDGES_OF_MANY = (0.1, 8.0, 128.0), (0.1, 1.0, 8.0, 128.0)
CS, CS_OF_MANY, FIRST_C = (300.0, 30.0, 3.0, 0.3), (30.0, 3.0), 30.0


@dataclass(frozen=True)
class Contender:
    """One kind of candidates with a path of strengths: ridges of the descent, or values of C for samples.

    The strength at `first` is tried first. A kind that is `doubted` is taken only if it is clearly better than others.
    """

    params: Params
    strengths: tuple[float | str, ...]
    first: int = 0
    doubted: bool = False

    @property
    def learned(self) -> bool:
        return anchor_spec(self.params.anchors).learned

    def at(self, strength: float | str) -> Params:
        """The parameters with this strength."""
        return replace(self.params, ridge=strength) if self.learned else replace(self.params, C=strength)


def contenders(params: Params, n_rows: int) -> list[Contender]:
    """What the parameters leave open for so many rows; the first strength of the first is what is taken unseen."""
    few = LEAST_ROWS <= n_rows <= FEW_ROWS
    found = []
    if may_be_learned(params, n_rows):
        anchors = "learned" if _open(params) else params.anchors
        metric: Metric = "diagonal" if params.metric == "auto" else params.metric
        ridges: tuple[float | str, ...] = (params.ridge,)
        if params.ridge == "auto":
            ridges = RIDGES if few else RIDGES_OF_MANY if n_rows > FEW_ROWS else RIDGES[:1]
        found.append(Contender(replace(params, anchors=anchors, metric=metric), ridges))
    if may_be_samples(params, n_rows):
        anchors = "all" if _open(params) else params.anchors
        scaling = "standard" if params.scaling == "auto" else params.scaling
        samples = replace(params, anchors=anchors, metric=None, scaling=scaling)
        Cs: tuple[float | str, ...] = (params.C,)
        if found and params.C == "auto":
            Cs = CS if few else CS_OF_MANY
        first = Cs.index(FIRST_C) if FIRST_C in Cs else 0
        if found and few and _automatic(params.gammas):
            found.append(Contender(replace(samples, gammas="wide"), Cs, first, doubted=True))
        found.append(Contender(samples, Cs, first))
    return found


def is_settled(rivals: list[Contender]) -> bool:
    """Whether there is a single setting."""
    return len(rivals) == 1 and len(rivals[0].strengths) == 1


def _open(params: Params) -> bool:
    return anchor_spec(params.anchors).kind == "auto"


def _automatic(gammas: object) -> bool:
    return isinstance(gammas, str) and gammas == "auto"


def may_be_learned(params: Params, n_rows: int) -> bool:
    """Whether kernels may be learned: not where scales are given, or where a machine has no local biases."""
    if not _open(params):
        return anchor_spec(params.anchors).learned
    if params.finish == "none":
        return True
    as_given = params.strategy == "paper" or not _automatic(params.gammas) or params.local_bias == 0
    return n_rows >= LEAST_ROWS and not as_given


def may_be_samples(params: Params, n_rows: int) -> bool:
    """Whether candidates may be those of a grid: all samples, or the anchors that were asked for."""
    if not _open(params):
        return not anchor_spec(params.anchors).learned
    if not may_be_learned(params, n_rows):
        return True
    return n_rows <= GRID_ROWS and params.max_kernels is None and params.finish == "auto"
