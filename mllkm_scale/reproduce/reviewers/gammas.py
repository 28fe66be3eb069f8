"""Which gammas are chosen, and would others be better (reviewer 4)? Weights by gamma, and grids of more gammas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.gammas import logspace
from mllkm_scale.report.style import BLUE, styled
from mllkm_scale.reproduce.measure import random_split
from mllkm_scale.reproduce.methods import C
from mllkm_scale.reproduce.parts import Parts, Record, markdown_table
from mllkm_scale.reproduce.reviewers.comparison import Comparison, Tell, over_small_sets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["GAMMAS"]

GRIDS = {
    "3 gammas": logspace(0.01, 10, 3),
    "10 gammas (paper)": logspace(0.01, 10, 10),
    "28 gammas": logspace(0.01, 10, 28),
    "16 gammas up to 1,000": logspace(0.01, 1000, 16),
}
PAPER = "10 gammas (paper)"


def _run(parts: Parts, tell: Tell, quick: bool) -> Record:
    return over_small_sets("gammas", _over_splits, parts, tell, quick)


def _over_splits(X: Array, y: Array, splits: int) -> Record:
    """For each grid: share of the weights at every gamma, gammas in use at once, objective and accuracy."""
    from mllkm_scale import MLLKMClassifier

    found: Record = {}
    for grid, gammas in GRIDS.items():
        shares, distinct, primal, accuracy = [], [], [], []
        for seed in range(splits):
            split = random_split(X, y, seed)
            params: dict[str, Any] = {"C": C / len(split.y), "gammas": gammas.tolist(), "scaling": "minmax"}
            machine = MLLKMClassifier(**params, tol=0.002, n_jobs=1).fit(split.X, split.y)
            share = [float(machine.weights_[np.isclose(machine.gammas_, gamma)].sum()) for gamma in gammas]
            shares.append(share)
            distinct.append(int(np.count_nonzero(share)))
            primal.append(machine.primal_)
            accuracy.append(100.0 * machine.score(split.X_test, split.y_test))
        found[grid] = {
            "gammas": gammas.tolist(),
            "shares": np.mean(shares, axis=0).tolist(),
            "distinct": distinct,
            "primal": primal,
            "accuracy": accuracy,
        }
    return found


def _markdown(record: Record) -> list[str]:
    gammas = GRIDS[PAPER]
    lines = ["Share of the weights at each of the paper's gammas, in percent, mean over the splits:", ""]
    rows = [
        [name, *(f"{100 * share:.0f}" for share in found[PAPER]["shares"]), f"{np.mean(found[PAPER]['distinct']):.1f}"]
        for name, found in record.items()
    ]
    lines += [*markdown_table(["", *(f"{gamma:.2g}" for gamma in gammas), "gammas in use"], rows), ""]
    lines += [
        "Optimal objective relative to that of the paper's grid, and accuracy:",
        "",
    ]
    rows = [
        [name]
        + [
            f"{np.mean(np.array(found[grid]['primal']) / found[PAPER]['primal']):.3f}, "
            f"{np.mean(found[grid]['accuracy']):.1f} %"
            for grid in GRIDS
        ]
        for name, found in record.items()
    ]
    return [*lines, *markdown_table(["", *GRIDS], rows), ""]


@styled
def _draw(record: Record) -> Figure:
    """One panel per data set: the share of the weights at each gamma."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.5 * len(record) + 0.5, 1.9))
    for axes, (name, found) in zip(
        figure.subplots(1, len(record), sharey=True, squeeze=False)[0], record.items(), strict=True
    ):
        places = np.arange(len(found[PAPER]["gammas"]))
        axes.bar(places, 100.0 * np.array(found[PAPER]["shares"]), color=BLUE, width=0.8)
        axes.set_xticks([0, 3, 6, 9], ["0.01", "0.1", "1", "10"])
        axes.set_title(name)
    figure.supxlabel("gamma, features in [0, 1]", fontsize=8)
    figure.axes[0].set_ylabel("share of the weights (%)")
    return figure


GAMMAS = Comparison(
    "gammas",
    "Which gammas are chosen, and are ten fixed ones a restriction?",
    _run,
    _markdown,
    _draw,
)
