"""The settings among which "auto" chooses: candidates, metric and regularisation.

Candidates are learned, or are all samples. Several settings are compared on held-out rows (`selection`), unless there
are very few rows, or the parameters leave no choice.
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
    "RIDGES",
    "TRIED_AT_ONCE",
    "contenders",
    "may_be_learned",
    "may_be_samples",
    "tried_rows",
]

LEAST_ROWS = 50
"""With fewer rows, no kernels are learned and no rows are held out: all samples are anchors."""

FEW_ROWS = 1000
"""Up to this number of rows, settings are compared that differ more, and by their errors."""

GRID_ROWS = 8000
"""Up to this number of rows, all samples as anchors compete with learned anchors."""

FOLD_ROWS = 20_000
"""Up to this number of rows, learned machines are compared on folds; with more rows, on rows held out from the
descent."""

MOST_ROWS = 2000
"""Largest number of rows on which a contender is trained, and of rows that are held out for it; with two classes and
few features, it is trained on `CHEAP_ROWS`."""

CHEAP_ROWS, CHEAP_FEATURES = 6000, 100
"""That many rows, if there are two classes and at most so many features."""

MANY_OUTPUTS = 100
"""With more outputs, no additional kernels with narrow bumps compete: each has a predictor for every output."""

TRIED_AT_ONCE = 4
"""Largest number of settings that are tried at the same time, each in its own thread; fewer if the budget is small."""

RIDGES = (0.1, 8.0, 128.0)
"""Ridges of learned kernels, from one for clean data to one for noisy data."""

LEARNED_C, WIDE_C, SAMPLES_C = 10.0, 300.0, 30.0
"""C for learned kernels with MKL, and for all samples as anchors with wide bumps and with bumps of all widths."""

C_PER_OUTPUT = 3.0
"""C per output for all samples with narrow bumps: a class has only 1 / K of the rows."""


def contenders(params: Params, n_rows: int, n_outputs: int = 1) -> list[Params]:
    """Settings for what the parameters leave open, with this number of rows; the first is used if none can be tried.

    Learned kernels with a few ridges, or with more and narrower bumps; and all samples as anchors. With few rows, the
    settings differ more (`_with_few_rows`), all samples have wide or narrow bumps, and the comparison decides whether
    MKL follows the descent.
    """
    few, free = LEAST_ROWS <= n_rows <= FEW_ROWS, params.C == "auto"
    learned, samples = [], []
    if may_be_learned(params, n_rows):
        anchors = "learned" if _open(params) else params.anchors
        metric: Metric = "diagonal" if params.metric == "auto" else params.metric
        kind = replace(params, anchors=anchors, metric=metric)
        if params.ridge != "auto":
            learned = [kind]
        elif few:
            learned = _with_few_rows(kind, params)
        else:
            learned = [replace(kind, ridge=ridge) for ridge in (RIDGES if n_rows > FEW_ROWS else RIDGES[:1])]
            if n_rows > FEW_ROWS and n_outputs <= MANY_OUTPUTS and _may_be_more(kind):
                # MKL on so many kernels would take long, and does not improve them.
                finish = "none" if _settles(params) else kind.finish
                learned.append(replace(learned[0], gammas="narrow", finish=finish))
    if may_be_samples(params, n_rows):
        anchors = "all" if _open(params) else params.anchors
        scaling = "standard" if params.scaling == "auto" else params.scaling
        kind = replace(params, anchors=anchors, metric=None, scaling=scaling)
        if not learned:
            return [kind]
        samples = [replace(kind, C=C_PER_OUTPUT * n_outputs if few else SAMPLES_C)]
        if few and _automatic(params.gammas):
            samples = [replace(kind, gammas="wide", C=WIDE_C), replace(samples[0], gammas="narrow")]
        if not free:
            samples = [replace(one, C=params.C) for one in samples]
    return learned + samples


def tried_rows(n_features: int, n_outputs: int) -> int:
    """Largest number of rows on which a contender is trained."""
    return CHEAP_ROWS if n_outputs == 1 and n_features <= CHEAP_FEATURES else MOST_ROWS


def _with_few_rows(kind: Params, params: Params) -> list[Params]:
    """Learned kernels of different flexibility: with a metric, without a metric, and with a nearly straight boundary.

    With a few hundred rows, a metric overfits, above all with additional quantile columns. With a small ridge, MKL
    regularises the machine.
    """
    little, middle, much = RIDGES
    settles = _settles(params)
    as_learned = replace(kind, finish="none") if settles else kind
    plain = replace(as_learned, metric=None) if params.metric == "auto" else as_learned
    straight = replace(
        plain,
        ridge=much,
        gammas="wide" if _automatic(params.gammas) else params.gammas,
        scaling="standard" if params.scaling == "auto" else params.scaling,
    )
    rivals = [replace(as_learned, ridge=middle)]
    if params.metric == "auto":
        rivals.append(replace(plain, ridge=middle))
    weighed = replace(kind, C=LEARNED_C, finish="mkl") if settles else kind
    return [*rivals, straight, replace(weighed, ridge=little)]


def _settles(params: Params) -> bool:
    """Whether the comparison decides if MKL follows the descent."""
    return params.C == "auto" and params.finish == "auto" and params.local_bias != 0


def _may_be_more(params: Params) -> bool:
    """Whether the number of learned kernels and their widths are free."""
    return _automatic(params.gammas) and params.max_kernels is None and anchor_spec(params.anchors).count is None


def _open(params: Params) -> bool:
    return anchor_spec(params.anchors).kind == "auto"


def _automatic(gammas: object) -> bool:
    return isinstance(gammas, str) and gammas == "auto"


def may_be_learned(params: Params, n_rows: int) -> bool:
    """Whether kernels may be learned: not if scales are given, or if a machine has no local biases."""
    if not _open(params):
        return anchor_spec(params.anchors).learned
    if params.finish == "none":
        return True
    as_given = params.strategy == "paper" or not _automatic(params.gammas) or params.local_bias == 0
    return n_rows >= LEAST_ROWS and not as_given


def may_be_samples(params: Params, n_rows: int) -> bool:
    """Whether candidates may be those of a grid: on all samples, or on the given anchors."""
    if not _open(params):
        return not anchor_spec(params.anchors).learned
    if not may_be_learned(params, n_rows):
        return True
    return n_rows <= GRID_ROWS and params.max_kernels is None and params.finish == "auto"
