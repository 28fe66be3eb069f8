"""The part of the report on learned kernels: the epochs of the descent, the importance of features, and the choice of C
and `finish`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.events import Epoch
from mllkm_scale.base.wording import percent, seconds
from mllkm_scale.data.image_shape import ImageShape
from mllkm_scale.report.picture import Picture, canvas, embedded, log_axis, thinned
from mllkm_scale.report.prepared_space import plain
from mllkm_scale.report.run_files import Record, Run
from mllkm_scale.report.style import BLUE, GREY, ORANGE, styled
from mllkm_scale.run.tuning.selection import Tried as Setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Learning", "Tried", "learning_section"]

MOST_BARS = 25
MARKED = 40  # largest number of epochs whose points can be distinguished
NAME = 32  # characters of a feature name


@dataclass(frozen=True)
class Tried:
    """A machine and its error on held-out rows, in percent."""

    name: str
    error: float
    chosen: bool


@dataclass(frozen=True)
class Learning:
    """The contents of the section on learned kernels."""

    sentence: str
    facts: dict[str, str]
    tried: list[Tried]
    pictures: list[Picture]


def learning_section(run: Run, shape: ImageShape | None = None) -> Learning | None:
    """The section on learned kernels and on compared settings; None if there were neither."""
    if not run.epochs and not run.learned and not run.selection:
        return None
    pictures = [_descent(run.epochs)] if run.epochs else []
    columns = _columns(run)
    if columns is not None:
        drawn = _pixels(columns, shape) if shape is not None else None
        pictures.append(drawn or _importance(columns))
    return Learning(_sentence(run), _facts(run), _competed(run.selection) + _tried(run.choice), pictures)


def _sentence(run: Run) -> str:
    reason = str(run.choice.get("reason") or "")
    if not run.epochs and not run.learned:
        return "All samples are anchors: their error on held-out rows was lower than that of learned kernels."
    if not run.choice and not run.result:
        return "The training ended before it was decided whether MKL follows the gradient descent."
    if _by_mkl(run):
        return f"The learned kernels were {reason or 'weighed by MKL'}."
    return f"Gradient descent alone made the machine, without MKL{reason and ': ' + reason}."


def _by_mkl(run: Run) -> bool:
    """Whether MKL followed the descent; for later models of a path, there was no choice."""
    return bool(run.choice.get("mkl", run.status != "learned"))


def _facts(run: Run) -> dict[str, str]:
    found, learned = {}, run.learned
    n_kernels, kept, others = (learned.get(name) for name in ("n_kernels", "kept_kernels", "other_kernels"))
    if n_kernels is not None:
        found["kernels learned"] = f"{n_kernels:,}"
    if n_kernels is not None and kept is not None:
        beside = f"; {others:,} candidates beside them" if _by_mkl(run) else ""
        found["in the model"] = f"{kept:,} of these, {n_kernels - kept:,} dropped{beside}"
    if learned:
        found["metric"] = _metric_in_words(learned)
    if run.epochs:
        last = run.epochs[-1]
        found["epochs"] = f"{last.number:,} of {last.n_epochs:,} in {seconds(last.elapsed_s)}"
        found["loss"] = f"{last.loss:.4g} in the last epoch, {percent(last.within)} of the rows within the margin"
    return found


def _metric_in_words(learned: Record) -> str:
    metric, count = learned.get("metric"), len(learned.get("importance") or ())
    if metric is None:
        return "none"
    if metric != "diagonal":
        return f"linear map of {count:,} features" + (f" to {metric:,}" if isinstance(metric, int) else "")
    columns, features = learned.get("dropped_columns") or 0, learned.get("dropped_features") or 0
    if not columns:
        return f"scaling of {count:,} columns"
    return f"scaling of {count:,} columns, of which {columns:,} are dropped; {features:,} features are no longer read"


def _competed(selection: Record) -> list[Tried]:
    """The settings that were compared, with their errors on held-out rows."""
    taken = selection.get("taken")
    try:
        settings = [Setting(**one) for one in selection.get("tried") or ()]
        return [Tried(one.name, 100 * one.error, at == taken) for at, one in enumerate(settings)]
    except (TypeError, ValueError, AttributeError):  # not in the form in which it was written
        return []


def _tried(choice: Record) -> list[Tried]:
    """Errors on held-out rows for each C that was tried, and for the learned machine without MKL."""
    Cs, errors, own = choice.get("Cs") or (), choice.get("errors") or (), choice.get("learned_error")
    by_mkl = bool(choice.get("mkl"))
    rows = [
        Tried(f"weighed by MKL, C = {C:g}", 100 * error, by_mkl and choice["C"] == C)
        for C, error in zip(Cs, errors, strict=False)
    ]
    return rows if own is None else [*rows, Tried("as learned", 100 * own, not by_mkl)]


@styled
def _descent(epochs: Sequence[Epoch]) -> Picture:
    """Loss over epochs, and below it the error on held-out rows, if there are any."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    kept = [epochs[i] for i in thinned(len(epochs))]
    held = [epoch for epoch in kept if epoch.held_error is not None]
    figure = Figure(figsize=(5.0, 3.6 if held else 3.0))
    panels: NDArray[Any] = figure.subplots(2 if held else 1, 1, sharex=True, squeeze=False)[:, 0]
    marker = {"marker": "o", "ms": 2.5} if len(kept) <= MARKED else {}
    losses = [epoch.loss if epoch.loss > 0 else float("nan") for epoch in kept]
    panels[0].plot([epoch.number for epoch in kept], losses, color=BLUE, **marker)
    panels[0].set_ylabel("loss (mean hinge)")
    log_axis(panels[0], "y")
    last = epochs[-1]
    caption = "The mean loss over the rows of an epoch, each measured before the step that learns it."
    alt = f"Loss over {last.number:,} epochs, {last.loss:.3g} in the last"
    if held:
        errors = [100 * float(epoch.held_error or 0.0) for epoch in held]
        _errors(panels[1], [epoch.number for epoch in held], errors, marker)
        caption += "  Below, the share of held-out rows that the machine misclassifies."
        alt += f"; error on held-out rows {errors[-1]:.3g} % in the last"
    for axes in panels:
        axes.grid(True, linewidth=0.4, alpha=0.4)
        axes.set_axisbelow(True)
    panels[-1].set(xlabel="epoch", xlim=(0, max(2, last.number) * 1.01))
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    return embedded(figure, alt, caption)


def _errors(axes: Axes, numbers: list[int], errors: list[float], marker: dict[str, Any]) -> None:
    axes.plot(numbers, errors, color=ORANGE, **marker)
    best = int(np.argmin(errors))
    axes.plot(numbers[best], errors[best], "o", ms=4.5, mfc="none", color=GREY)
    axes.annotate(
        f"{errors[best]:.3g} %", (numbers[best], errors[best]), (0, -5), textcoords="offset points",
        ha="right" if best > len(numbers) / 2 else "left", va="top", fontsize=6.5, color=GREY,
    )  # fmt: skip
    axes.set_ylabel("held-out error, %")
    axes.margins(y=0.18)


@dataclass(frozen=True)
class _Columns:
    """Prepared columns: importance, name, and feature (-1 for principal components)."""

    importance: NDArray[np.float64]
    names: list[str]
    features: NDArray[np.int64]
    linear: bool


def _columns(run: Run) -> _Columns | None:
    """The columns of run.json; None if no metric was learned, or the file has another form."""
    learned = run.learned
    importance, quantile = learned.get("importance") or [], learned.get("quantile") or []
    features = learned.get("features")
    numbers = [-1] * len(importance) if features is None else features
    if learned.get("metric") is None or not importance or not len(importance) == len(quantile) == len(numbers):
        return None
    given = run.feature_names
    names = [
        f"principal component {column + 1}"
        if feature < 0
        else _name(feature, given) + (" (quantile)" if quantile[column] else "")
        for column, feature in enumerate(numbers)
    ]
    return _Columns(np.array(importance), names, np.array(numbers), learned.get("metric") != "diagonal")


def _name(feature: int, given: tuple[str, ...] | None) -> str:
    if given is not None and feature < len(given) and given[feature].strip():
        return plain(given[feature], NAME)
    return f"feature {feature}"


_WHAT = "the spread of a feature in the learned metric, as a share of the largest"


def _how(columns: _Columns) -> str:
    return "; of a linear map, the norm of its column times the spread of the feature." if columns.linear else "."


@styled
def _importance(columns: _Columns) -> Picture:
    """Bars of the most important columns."""
    order = np.argsort(-columns.importance, kind="stable")[:MOST_BARS]
    figure, axes = canvas(5.0, 0.7 + 0.165 * max(5, len(order)), fitted=True)
    places = np.arange(len(order))
    axes.barh(places, columns.importance[order], 0.72, color=BLUE)
    axes.set_yticks(places, [columns.names[column] for column in order], fontsize=6.5)
    axes.set_ylim(max(5, len(order)) - 0.4, -0.6)
    axes.set(xlabel="importance", xlim=(0, 1.04))
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    count = len(columns.names)
    part = "" if count <= MOST_BARS else f" The {MOST_BARS} largest of {count:,}."
    caption = f"Importance: {_WHAT}{_how(columns)}{part}"
    return embedded(
        figure, f"Importance of {len(order)} features, the largest that of {columns.names[order[0]]}", caption
    )


@styled
def _pixels(columns: _Columns, shape: ImageShape) -> Picture | None:
    """The importance of each pixel as an image; None if columns are not made of pixels."""
    if (columns.features < 0).any():
        return None
    pixels = np.zeros(int(np.prod(shape)))
    np.maximum.at(pixels, columns.features, columns.importance)
    figure, axes = canvas(3.6, 3.0, fitted=True)
    axes.grid(False)
    image = pixels.reshape(shape[0], shape[1], -1).max(axis=2)
    drawn = axes.imshow(image, cmap="Blues", vmin=0.0, vmax=1.0, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(True)
    figure.colorbar(drawn, ax=axes, shrink=0.85, aspect=30, label="importance")
    caption = f"Importance of each pixel: {_WHAT}{_how(columns)}"
    return embedded(figure, f"Importance of the pixels of images of {'x'.join(map(str, shape))}", caption)
