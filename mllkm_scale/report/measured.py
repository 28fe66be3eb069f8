"""How the model did on the test rows: confusion matrix, scores of the classes, and what is mistaken for what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mllkm_scale.model.evaluation import Evaluation
from mllkm_scale.report.picture import Picture, canvas, embedded
from mllkm_scale.report.prepared_space import plain
from mllkm_scale.report.style import styled

__all__ = ["ClassScore", "Measured", "Mistake", "measured"]

MOST_CLASSES = 30  # of the drawn matrix
NUMBERED = 16  # classes whose counts have room in their cells
LISTED = 10  # mistakes
LISTED_CLASSES = 60
SHORT = 16  # letters of a class on an axis


@dataclass(frozen=True)
class ClassScore:
    """A class and how it was predicted; scores in percent."""

    name: str
    rows: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Mistake:
    """Rows of one class that were predicted as another."""

    count: int
    truth: str
    predicted: str


@dataclass(frozen=True)
class Measured:
    """All that the report says of an evaluation."""

    picture: Picture
    scores: list[ClassScore]
    left_out: int
    mistakes: list[Mistake]


def measured(evaluation: Evaluation) -> Measured:
    """The picture and the tables of an evaluation; of very many classes, those with the most mistakes."""
    names = [str(label) for label in evaluation.classes.tolist()]
    rows, wrong = evaluation.confusion.sum(axis=1), _wrong(evaluation)
    worst = np.argsort(-wrong.sum(axis=1), kind="stable")[:LISTED_CLASSES]
    scores = [
        ClassScore(
            names[k],
            int(rows[k]),
            *(100 * float(s[k]) for s in (evaluation.precision, evaluation.recall, evaluation.f1)),
        )
        for k in np.sort(worst)
    ]
    pairs = np.argsort(-wrong.ravel(), kind="stable")[:LISTED]
    found = [(int(wrong.ravel()[at]), *divmod(int(at), len(names))) for at in pairs]
    mistakes = [Mistake(count, names[truth], names[predicted]) for count, truth, predicted in found if count]
    return Measured(_matrix(evaluation, names), scores, len(names) - len(scores), mistakes)


def _wrong(evaluation: Evaluation) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    wrong = evaluation.confusion.copy()
    np.fill_diagonal(wrong, 0)
    return wrong


@styled
def _matrix(evaluation: Evaluation, names: list[str]) -> Picture:
    """Rows of the matrix as shares, so that small classes are seen; counts in the cells where they have room."""
    wrong = _wrong(evaluation)
    chosen = np.sort(np.argsort(-(wrong.sum(axis=0) + wrong.sum(axis=1)), kind="stable")[:MOST_CLASSES])
    counts = evaluation.confusion[np.ix_(chosen, chosen)]
    shares = counts / np.maximum(1, evaluation.confusion.sum(axis=1)[chosen])[:, None]
    size = min(7.0, 2.4 + 0.36 * len(chosen))
    figure, axes = canvas(size + 0.4, size)
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
    caption = f"Confusion matrix: each row is a true class, each column what was predicted.{part}"
    alt = f"Confusion matrix of {len(chosen)} classes, {evaluation.n:,} rows, {100 * evaluation.error:.2f} % wrong"
    return embedded(figure, alt, caption, dpi=None if len(chosen) <= NUMBERED else 160)
