"""Locally linear maps against plain Gaussian and linear ones in the same MKL (reviewer 6).

A kernel of MLLKM has the features h(x) (x - c) and sqrt(b) h(x). The same solver, anchors and constraint serve

    locally linear    h(x) (x - c)                     b = 0: the paper
    locally affine    h(x) (x - c), sqrt(b) h(x)       a tenth of the mean squared distance as b: the default
    Gaussian bumps    h(x)                             b so large that nothing else is left: one number a kernel
    linear            x - c, sqrt(b)                   gamma so small that h is almost one everywhere
    Gaussian kernels  exp(-gamma |x - z|^2)            on all features, at the same gammas: predicts by support vectors
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.kernels.gammas import logspace
from mllkm_scale.report.style import BLUE, GREY, styled
from mllkm_scale.reproduce.measure import tested
from mllkm_scale.reproduce.methods import C
from mllkm_scale.reproduce.parts import Parts, Record
from mllkm_scale.reproduce.reviewers.comparison import Comparison, Tell
from mllkm_scale.reproduce.reviewers.small_sets import over_small_sets
from mllkm_scale.reproduce.significance import paired_test
from mllkm_scale.reproduce.splits import TRAIN_SHARE, random_split
from mllkm_scale.reproduce.text import markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MAPS"]

OURS = "locally affine"
LARGE_BIAS = 1e6  # beside it, squared distances of features in [0, 1] are nothing
SMALL_GAMMA = 3e-3  # exp(-gamma |x - c|^2) is above 0.9 wherever the samples are


def _machines(n: int) -> dict[str, Any]:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    from mllkm_scale import MLLKMClassifier
    from mllkm_scale.reproduce.reviewers.gaussian_mkl import GaussianMKLClassifier

    def ours(**params: Any) -> Any:
        return MLLKMClassifier(**{"C": C / n, "gammas": logspace().tolist(), "scaling": "minmax", "n_jobs": 1} | params)

    return {
        "locally linear": ours(local_bias=0.0),
        OURS: ours(),
        "Gaussian bumps": ours(local_bias=LARGE_BIAS),
        "linear": ours(gammas=[SMALL_GAMMA]),
        "Gaussian kernels": make_pipeline(MinMaxScaler(), GaussianMKLClassifier(C=C, gammas=tuple(logspace()))),
    }


def _run(parts: Parts, tell: Tell, quick: bool) -> Record:
    return over_small_sets("maps", _over_splits, parts, tell, quick)


def _over_splits(X: Array, y: Array, splits: int) -> Record:
    found: Record = {kind: {"accuracy": [], "kernels": []} for kind in _machines(1)}
    with one_blas_thread():
        for seed in range(splits):
            split = random_split(X, y, seed)
            for kind, machine in _machines(len(split.y)).items():
                found[kind]["accuracy"].append(tested(machine, split)["accuracy"])
                fitted = machine[-1] if hasattr(machine, "steps") else machine
                found[kind]["kernels"].append(int(np.count_nonzero(fitted.weights_)))
    return found


def _markdown(record: Record) -> list[str]:
    kinds = list(next(iter(record.values()), {}))
    rows = []
    for name, found in record.items():
        cells = []
        for kind in kinds:
            accuracy = np.array(found[kind]["accuracy"])
            p = paired_test(np.array(found[OURS]["accuracy"]), accuracy, 1.0 - TRAIN_SHARE).corrected_t_p
            mark = "*" if kind != OURS and p < 0.05 else ""
            cells.append(f"{accuracy.mean():.1f} ± {accuracy.std():.1f}{mark} ({np.mean(found[kind]['kernels']):.0f})")
        rows.append([name, *cells])
    note = "Accuracy in percent over the splits, with the number of kernels; * differs from locally affine (p < 0.05)."
    return [*markdown_table(["", *kinds], rows), "", note, ""]


@styled
def _draw(record: Record) -> Figure:
    """A group of bars a data set."""
    from matplotlib.figure import Figure

    kinds = list(next(iter(record.values())))
    colours = ["#92c5de", BLUE, "#f4a582", GREY, "black"]
    figure = Figure(figsize=(1.15 * len(record) + 1.2, 2.6))
    axes = figure.subplots()
    width = 0.8 / len(kinds)
    for i, (kind, colour) in enumerate(zip(kinds, colours, strict=True)):
        means = [np.mean(found[kind]["accuracy"]) for found in record.values()]
        spreads = [np.std(found[kind]["accuracy"]) for found in record.values()]
        places = np.arange(len(record)) + (i - 0.5 * (len(kinds) - 1)) * width
        axes.errorbar(places, means, spreads, fmt="o", ms=4, color=colour, elinewidth=0.8, label=kind)
    axes.set_xticks(range(len(record)), list(record))
    axes.set_ylabel("accuracy (%)")
    axes.grid(True, axis="y", lw=0.3, color="#dddddd")
    figure.legend(loc="outside lower center", ncols=5)
    return figure


MAPS = Comparison(
    "maps",
    "What do locally linear maps bring, over Gaussian and linear ones in the same MKL?",
    _run,
    _markdown,
    _draw,
)
