"""The settings that "auto" stands for: which candidates there are, in which metric, and how they are regularised.

Candidates are learned, or are all samples. Several settings compete on held-out rows (`selection`), unless there are
hardly any rows, or the parameters leave no choice.
"""

from __future__ import annotations

from dataclasses import replace

from mllkm_scale.kernels.anchors import anchor_spec
from mllkm_scale.learn.machine import Metric
from mllkm_scale.params import Params

__all__ = [
    "FEW_ROWS",
    "FOLD_ROWS",
    "LEAST_ROWS",
    "MOST_ROWS",
    "TRIED_AT_ONCE",
    "contenders",
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
"""Settings that are tried at the same time, at most, each in a thread of its own; fewer where the budget is small."""

RIDGES, WIDE_RIDGE = (0.1, 8.0, 128.0), 8.0
LEARNED_C, SAMPLES_C, WIDE_C = 10.0, 30.0, 300.0


def contenders(params: Params, n_rows: int) -> list[Params]:
    """Settings that fill what the parameters leave open for so many rows; the first is what is taken unseen.

    Learned kernels with a few ridges, and all samples as anchors. With few rows also both with wide bumps, which suit
    boundaries that are nearly straight; and it is settled whether MKL weighs the learned ones.
    """
    few, free = LEAST_ROWS <= n_rows <= FEW_ROWS, params.C == "auto"
    learned, samples = [], []
    if may_be_learned(params, n_rows):
        anchors = "learned" if _open(params) else params.anchors
        metric: Metric = "diagonal" if params.metric == "auto" else params.metric
        kind = replace(params, anchors=anchors, metric=metric)
        if params.ridge != "auto":
            learned = [kind]
        else:
            settles = few and free and params.finish == "auto" and params.local_bias != 0
            as_learned = replace(kind, finish="none") if settles else kind
            ridges = RIDGES if n_rows >= LEAST_ROWS else RIDGES[:1]
            learned = [replace(as_learned, ridge=ridge) for ridge in ridges]
            if few and _automatic(params.gammas):
                learned.append(replace(as_learned, gammas="wide", ridge=WIDE_RIDGE))
            if settles:
                learned.append(replace(kind, ridge=RIDGES[0], C=LEARNED_C, finish="mkl"))
    if may_be_samples(params, n_rows):
        anchors = "all" if _open(params) else params.anchors
        scaling = "standard" if params.scaling == "auto" else params.scaling
        kind = replace(params, anchors=anchors, metric=None, scaling=scaling)
        if not learned:
            return [kind]
        if few and _automatic(params.gammas):
            samples.append(replace(kind, gammas="wide", C=WIDE_C if free else params.C))
        samples.append(replace(kind, C=SAMPLES_C if free else params.C))
    return learned + samples


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
