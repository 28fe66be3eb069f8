"""Results on the test rows: confusion matrix, scores of the classes, the most frequent mistakes, ranking of the rows by
the scores, and calibration of the probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mllkm_scale.model.curves import Curve
from mllkm_scale.model.evaluation import Evaluation
from mllkm_scale.report.picture import Picture, canvas, embedded
from mllkm_scale.report.prepared_space import plain
from mllkm_scale.report.regions import class_colours
from mllkm_scale.report.style import BLUE, GREY, styled

__all__ = ["ClassScore", "Measured", "Mistake", "measured"]

MOST_CLASSES = 30  # of the matrix that is drawn
NUMBERED = 16  # largest number of classes with counts in the cells
LISTED = 10  # mistakes
LISTED_CLASSES = 60
MOST_CURVES = 10
SHORT = 16  # characters of a class on an axis


@dataclass(frozen=True)
class ClassScore:
    """The scores of a class, in percent."""

    name: str
    rows: int
    precision: float
    recall: float
    f1: float
    roc_area: str
    average_precision: str


@dataclass(frozen=True)
class Mistake:
    """Rows of one class that were predicted as another."""

    count: int
    truth: str
    predicted: str


@dataclass(frozen=True)
class Measured:
    """The contents of the section on an evaluation."""

    picture: Picture
    curves: list[Picture]
    scores: list[ClassScore]
    left_out: int
    mistakes: list[Mistake]
    has_areas: bool  # whether there are areas for each class; with two classes the caption states them


def measured(evaluation: Evaluation) -> Measured:
    """The pictures and tables of an evaluation; with very many classes, only those with the most mistakes."""
    names = [str(label) for label in evaluation.classes.tolist()]
    rows, wrong = evaluation.confusion.sum(axis=1), _wrong(evaluation)
    worst = np.argsort(-wrong.sum(axis=1), kind="stable")[:LISTED_CLASSES]
    areas = {curve.label: (f"{curve.roc_area:.4f}", f"{curve.average_precision:.4f}") for curve in evaluation.curves}
    scores = [
        ClassScore(
            names[k],
            int(rows[k]),
            100 * float(evaluation.precision[k]),
            100 * float(evaluation.recall[k]),
            100 * float(evaluation.f1[k]),
            *areas.get(evaluation.classes[k].item(), ("", "")),
        )
        for k in np.sort(worst)
    ]
    pairs = np.argsort(-wrong.ravel(), kind="stable")[:LISTED]
    found = [(int(wrong.ravel()[at]), *divmod(int(at), len(names))) for at in pairs]
    mistakes = [Mistake(count, names[truth], names[predicted]) for count, truth, predicted in found if count]
    drawn = [curve for curve in evaluation.curves if curve.recall][:MOST_CURVES]
    curves = [_curves(drawn)] if drawn else []
    if evaluation.bins is not None:
        curves.append(_reliability(evaluation))
    return Measured(_matrix(evaluation, names), curves, scores, len(names) - len(scores), mistakes, len(areas) > 1)


@styled
def _curves(curves: list[Curve]) -> Picture:
    """ROC and precision-recall curves side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, 3.2))
    left, right = figure.subplots(1, 2)
    colours = class_colours(len(curves)) if len(curves) > 1 else [BLUE]
    for curve, colour in zip(curves, colours, strict=True):
        left.plot(curve.false_rate, curve.recall, color=colour, lw=1.0)
        right.plot(curve.recall, curve.precision, color=colour, lw=1.0, label=plain(curve.label, SHORT))
    left.plot([0, 1], [0, 1], ":", color=GREY, lw=0.8)
    left.set(xlabel="false positive rate", ylabel="true positive rate")
    right.set(xlabel="recall", ylabel="precision")
    for axes in (left, right):
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.03), aspect="equal")
        axes.grid(True, linewidth=0.4, alpha=0.4)
    if len(curves) > 1:
        right.legend(loc="lower left", fontsize=6.5, ncols=1 + len(curves) // 8)
    worst = min(curves, key=lambda curve: curve.roc_area)
    areas = f"area {worst.roc_area:.4f}, average precision {worst.average_precision:.4f}"
    of = f"{worst.label} against the other class" if len(curves) == 1 else "each class against the others"
    least = areas if len(curves) == 1 else f"the smallest is that of {worst.label}: {areas}"
    return embedded(figure, f"ROC and precision-recall curves: {least}", f"ROC and precision-recall of {of}; {least}.")


@styled
def _reliability(evaluation: Evaluation) -> Picture:
    """The frequency with which the most probable class is true, over its probability; bars for the rows."""
    assert evaluation.bins is not None
    rows, probabilities, true = np.asarray(evaluation.bins)
    there = rows > 0
    figure, axes = canvas(3.3, 3.2)
    least = float(np.floor(20 * (probabilities[there] / rows[there]).min()) / 20)
    axes.plot([least, 1], [least, 1], ":", color=GREY, lw=0.8)
    shares, means = true[there] / rows[there], probabilities[there] / rows[there]
    noise = np.sqrt(np.maximum(shares * (1 - shares), 0.0) / rows[there])
    axes.errorbar(means, shares, yerr=noise, fmt="o-", ms=3, color=BLUE, lw=1.0, elinewidth=0.6)
    axes.bar(means, 0.2 * rows[there] / rows.max(), 0.02, color=GREY, alpha=0.3, transform=axes.get_xaxis_transform())
    axes.set(xlabel="probability of the most probable class", ylabel="share of rows where it is true")
    error = f"calibration error {evaluation.calibration_error:.4f}"
    caption = (
        "Calibration: on the dotted line, predicted probabilities equal observed frequencies. Vertical lines are"
        f" standard errors, and bars are the rows; {error}."
    )
    return embedded(figure, f"Calibration plot: {error}", caption)


def _wrong(evaluation: Evaluation) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    wrong = evaluation.confusion.copy()
    np.fill_diagonal(wrong, 0)
    return wrong


@styled
def _matrix(evaluation: Evaluation, names: list[str]) -> Picture:
    """The matrix with rows as shares, so that small classes are visible, and counts in the cells if they fit."""
    wrong = _wrong(evaluation)
    chosen = np.sort(np.argsort(-(wrong.sum(axis=0) + wrong.sum(axis=1)), kind="stable")[:MOST_CLASSES])
    counts = evaluation.confusion[np.ix_(chosen, chosen)]
    shares = counts / np.maximum(1, evaluation.confusion.sum(axis=1)[chosen])[:, None]
    size = min(7.0, 2.4 + 0.36 * len(chosen))
    figure, axes = canvas(size + 0.4, size, fitted=True)
    axes.grid(False)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    labels = [plain(names[k], SHORT) for k in chosen]
    small = 7.0 if len(chosen) <= NUMBERED else 5.5
    axes.set_xticks(range(len(chosen)), labels, rotation=90 if max(map(len, labels)) > 3 else 0, fontsize=small)
    axes.set_yticks(range(len(chosen)), labels, fontsize=small)
    axes.set(xlabel="predicted", ylabel="true class")
    if len(chosen) <= NUMBERED:
        for (truth, predicted), count in np.ndenumerate(counts):
            if count:
                colour = "white" if shares[truth, predicted] > 0.55 else "#333333"
                axes.text(predicted, truth, f"{count}", ha="center", va="center", color=colour, fontsize=6.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
    figure.colorbar(image, ax=axes, shrink=0.8, aspect=30, label="share of the true class")
    part = "" if len(chosen) == len(names) else f" The {len(chosen)} of {len(names)} classes with the most mistakes."
    caption = f"Confusion matrix: each row is a true class, and each column a predicted class.{part}"
    alt = f"Confusion matrix of {len(chosen)} classes, {evaluation.n:,} rows, {100 * evaluation.error:.2f} % wrong"
    return embedded(figure, alt, caption, dpi=None if len(chosen) <= NUMBERED else 160)
