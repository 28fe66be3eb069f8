"""Locally linear, plain Gaussian and linear maps in the same MKL (reviewer 6).

A kernel of MLLKM has the features h(x) (x - c) and sqrt(b) h(x). The same solver, anchors and constraint serve

    locally linear    h(x) (x - c)                     b = 0: the paper
    locally affine    h(x) (x - c), sqrt(b) h(x)       a tenth of the mean squared distance as b: the default
    Gaussian bumps    h(x)                             b so large that the rest is negligible: one number per kernel
    linear            x - c, sqrt(b)                   gamma so small that h is almost one everywhere
    Gaussian kernels  exp(-gamma |x - z|^2)            on all features, at the same gammas: predicts by support vectors

The last is l1-MKL over plain Gaussian kernels of several widths, by the paper's SequentialMKL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.kernels.gammas import logspace
from mllkm_scale.report.style import BLUE, GREY, styled
from mllkm_scale.reproduce.measure import TRAIN_SHARE, random_split, tested
from mllkm_scale.reproduce.methods import C
from mllkm_scale.reproduce.parts import Parts, Record, markdown_table
from mllkm_scale.reproduce.reviewers.comparison import Comparison, Tell, over_small_sets
from mllkm_scale.reproduce.significance import paired_test

if TYPE_CHECKING:
    from matplotlib.figure import Figure

from collections.abc import Sequence
from dataclasses import dataclass

from mllkm_scale.baselines.base import Baseline
from mllkm_scale.kernels.distances import squared_distances
from mllkm_scale.mkl.algorithm2 import PaperMKL

__all__ = ["MAPS", "GaussianFamily", "GaussianMKLClassifier"]

OURS = "locally affine"
LARGE_BIAS = 1e6  # squared distances of features in [0, 1] are negligible beside it
SMALL_GAMMA = 3e-3  # exp(-gamma |x - c|^2) is above 0.9 wherever the samples are


@dataclass(frozen=True)
class GaussianFamily:
    """Kernels exp(-gamma |x - z|^2), one per gamma; their diagonals are one."""

    gammas: Array

    @property
    def scales(self) -> Array:
        """No kernel is left out."""
        return np.ones(len(self.gammas))

    def __len__(self) -> int:
        return len(self.gammas)

    def describe(self, id: int) -> str:
        """The formula of a kernel."""
        return f"exp(-{self.gammas[id]:.4g} |x - z|^2)"

    def combined_gram(self, ids: Array, weights: Array, X: Array, Z: Array) -> Array:
        """sum_m beta_m k_m(x, z), shape (rows of X, rows of Z)."""
        squares = squared_distances(X, Z)
        return np.asarray(sum(w * np.exp(-self.gammas[id] * squares) for id, w in zip(ids, weights, strict=True)))

    def quadratic_forms(self, X: Array, signed_duals: Array) -> Array:
        """q_m of all kernels, summed over the classes."""
        return self.active(np.arange(len(self.gammas)), X).forms(signed_duals)

    def active(self, ids: Array, X: Array) -> ActiveGaussians:
        """The kernels with these ids on these rows."""
        squares = squared_distances(X, X)
        return ActiveGaussians(np.stack([np.exp(-self.gammas[id] * squares) for id in ids]))


@dataclass(frozen=True)
class ActiveGaussians:
    """Gram matrices (s, n, n) of a few kernels."""

    grams: Array

    def gram(self, weights: Array) -> Array:
        """sum_m beta_m K_m."""
        return np.tensordot(weights, self.grams, axes=1)

    def forms(self, signed_duals: Array) -> Array:
        """q_m summed over the classes."""
        return np.maximum(np.einsum("ik,sik->s", signed_duals, self.grams @ signed_duals), 0.0)


class GaussianMKLClassifier(Baseline):
    """A sum of Gaussian kernels whose weights are learned; C is for kernels of unit trace, as in the table."""

    def __init__(self, C: float = 100.0, gammas: Sequence[float] = (0.1, 1.0, 10.0), tol: float = 0.01) -> None:
        self.C = C
        self.gammas = gammas
        self.tol = tol

    def _learn(self, X: Array, signs: Array) -> None:
        mkl = PaperMKL(GaussianFamily(np.asarray(self.gammas)), X, signs, self.C / len(X), self.tol)
        *_, (state, _) = mkl.rounds()
        self.weights_, self._mkl, self._state = state.weights, mkl, state

    def _scores(self, X: Array) -> Array:
        return self._mkl.decide(self._state, X)


def _machines(n: int) -> dict[str, Any]:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    from mllkm_scale import MLLKMClassifier

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
    """One group of bars per data set."""
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
    "What do locally linear maps contribute, compared with Gaussian and linear maps in the same MKL?",
    _run,
    _markdown,
    _draw,
)
