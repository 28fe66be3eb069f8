"""Probabilities of the classes from scores f, fitted on rows that the machine was not trained on.

    temperature   p_k = exp(t f_k) / sum_j exp(t f_j);  of two classes  p = 1 / (1 + exp(-t f))
    isotonic      two classes: p is a rising function of f, linear between knots and constant beyond them

Scores of a hinge loss concentrate near the margins, so their log odds need not be linear in the score; but it takes
many rows to tell. So the temperature is always fitted, and the isotonic function is used if its log loss is clearly
lower on parts of the rows on which neither was fitted. Targets are smoothed as in Platt's method, because a finite
number of rows never gives certainty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.weighted import effective_rows, weighted_mean
from mllkm_scale.errors import ParameterError

__all__ = ["ISOTONIC", "TEMPERATURE", "Calibration", "fit_calibration"]


TEMPERATURE, ISOTONIC = "temperature", "isotonic"
_PARTS, _DRAWS = 5, 4  # of the rows, for the comparison of the two methods, and number of draws
_LEAST_ROWS = 1000  # for which an isotonic function is fitted
_MOST_LEVELS = 10_000
_STEPS, _NEAR = 100, 1e-13  # steps of Newton's method; size of the last one, relative to the slope
_RANGE = 1e-6, 1e6  # of the temperature times the usual size of a score


@dataclass(frozen=True)
class Calibration:
    """How scores become probabilities.

    Attributes
    ----------
    method : {"temperature", "isotonic"}
    slope : float
        The factor t of the scores; for "isotonic", that of the temperature method that it was compared with.
    knots, levels : tuples of float
        Isotonic: the score of each knot, and the probability of the second class there.
    n_rows : int
        Number of rows that it was fitted on.
    source : str
        Which rows these are.
    log_loss : float
        Mean log loss on them.

    Examples
    --------
    >>> fitted = Calibration("temperature", 2.0, n_rows=100, source="held-out rows", log_loss=0.3)
    >>> fitted.probabilities(np.array([0.0, 1.0])).round(3).tolist()
    [[0.5, 0.5], [0.119, 0.881]]
    >>> fitted.probabilities(np.array([[1.0, 0.0, 0.0]])).round(3).tolist()
    [[0.787, 0.107, 0.107]]
    """

    method: str
    slope: float
    knots: tuple[float, ...] = ()
    levels: tuple[float, ...] = ()
    n_rows: int = 0
    source: str = ""
    log_loss: float = math.nan

    def __post_init__(self) -> None:
        for name in ("knots", "levels"):
            object.__setattr__(self, name, tuple(float(value) for value in getattr(self, name)))
        for name, kind in (("slope", float), ("n_rows", int), ("log_loss", float)):
            object.__setattr__(self, name, kind(getattr(self, name)))
        problem = self._problem()
        if problem:
            raise ParameterError(f"a calibration has {problem}: calibrate again")

    def _problem(self) -> str:
        knots, levels = np.array(self.knots), np.array(self.levels)
        if self.method not in (TEMPERATURE, ISOTONIC):
            return f"the method {self.method!r}"
        if not 0 < self.slope < math.inf:
            return f"the slope {self.slope}"
        if self.method == TEMPERATURE:
            return "knots that a temperature does not have" if len(knots) or len(levels) else ""
        if not 1 <= len(knots) == len(levels) <= _MOST_LEVELS:
            return f"{len(knots)} knots and {len(levels)} levels"
        rise = np.isfinite(knots).all() and (np.diff(knots) > 0).all() and (np.diff(levels) >= 0).all()
        return "" if rise and levels[0] > 0 and levels[-1] < 1 else "levels that do not rise from above 0 to below 1"

    def log_probabilities(self, scores: Array) -> Array:
        """log p (n, c) for decision functions: (n,) for two classes, or (n, K)."""
        if self.method == ISOTONIC:
            return np.asarray(np.log(self.probabilities(scores)))
        F = self.slope * (np.stack([-0.5 * scores, 0.5 * scores], axis=1) if scores.ndim == 1 else scores)
        F = F - F.max(axis=1, keepdims=True)
        return np.asarray(F - np.log(np.exp(F).sum(axis=1, keepdims=True)))

    def probabilities(self, scores: Array) -> Array:
        """p (n, c); every row sums to one."""
        if self.method == TEMPERATURE:
            return np.asarray(np.exp(self.log_probabilities(scores)))
        if scores.ndim != 1:
            raise ParameterError("an isotonic calibration is for two classes: calibrate again")
        p = np.interp(scores, self.knots, self.levels)
        return np.stack([1.0 - p, p], axis=1)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return vars(self) | {"knots": list(self.knots), "levels": list(self.levels)}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any] | None) -> Self | None:
        """The calibration that `as_dict` was called on; None for None."""
        return None if found is None else cls(**found)


def fit_calibration(scores: Array, codes: Array, source: str, weights: Array | None = None) -> Calibration | None:
    """The calibration of decision functions by the classes of their rows; None if the rows do not determine it.

    Parameters
    ----------
    scores : array (n, 1) or (n,) for two classes, otherwise (n, K)
        Scores of rows that the machine was not trained on.
    codes : int array (n,)
        Positions of the true classes.
    source : str
        Which rows these are.
    weights : array (n,), optional
        Weights of the rows; only their ratios matter.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> f = rng.normal(size=4000)
    >>> fitted = fit_calibration(f, (rng.random(4000) < 1 / (1 + np.exp(-3 * f))).astype(int), "an example")
    >>> fitted.method, abs(fitted.slope - 3) < 0.3
    ('temperature', True)
    """
    F = scores[:, 0] if scores.ndim == 2 and scores.shape[1] == 1 else scores
    if len(F) < 2 or len(np.unique(codes)) < 2 or not np.isfinite(F).all() or not np.abs(F).max() > 0:
        return None
    w = np.ones(len(F)) if weights is None else weights / weights.mean()
    fitted = _temperature(F, codes, w)
    if F.ndim == 1 and len(F) >= _LEAST_ROWS and _is_clearly_better(_isotonic, _temperature, F, codes, w):
        fitted = _isotonic(F, codes, w)
    loss = weighted_mean(_losses(fitted, F, codes), w)
    return Calibration(fitted.method, fitted.slope, fitted.knots, fitted.levels, len(F), source, loss)


def _targets(codes: Array, weights: Array, n_classes: int) -> Array:
    """Targets (n, c): (m + 1) / (m + c) for the class of a row, where m is the weight of the class; the others share
    the rest."""
    counts = np.bincount(codes, weights, minlength=n_classes)
    own = (counts + 1.0) / (counts + n_classes)
    targets = np.repeat(((1.0 - own) / (n_classes - 1))[codes][:, None], n_classes, axis=1)
    targets[np.arange(len(codes)), codes] = own[codes]
    return targets


def _temperature(F: Array, codes: Array, weights: Array) -> Calibration:
    """The slope of smallest log loss: the derivative sum w (p - target) f is increasing, so it has one zero.

    Newton's method finds it; a step out of the bracketing interval is replaced by a bisection.
    """
    scores = np.stack([-0.5 * F, 0.5 * F], axis=1) if F.ndim == 1 else F
    targets = _targets(codes, weights, scores.shape[1])

    usual = float(np.sqrt(np.mean(np.square(F))))
    (low, high), slope = (bound / usual for bound in _RANGE), 1.0 / usual
    for _ in range(_STEPS):
        p = Calibration(TEMPERATURE, slope).probabilities(F)
        mean = np.einsum("ik,ik->i", p, scores)
        derivative = float((weights * (mean - np.einsum("ik,ik->i", targets, scores))).sum())
        curvature = float((weights * (np.einsum("ik,ik,ik->i", p, scores, scores) - mean * mean)).sum())
        low, high = (slope, high) if derivative < 0 else (low, slope)
        following = slope - derivative / curvature if curvature > 0 else math.nan
        following = following if low < following < high else math.sqrt(low * high)
        slope, before = following, slope
        if abs(slope - before) <= _NEAR * slope:
            break
    return Calibration(TEMPERATURE, slope)


def _isotonic(F: Array, codes: Array, weights: Array) -> Calibration:
    """Least squares over rising functions, by pooling adjacent violators; levels keep 1 / (n + 2) from 0 and 1."""
    values, inverse = np.unique(F, return_inverse=True)
    counts, hits = (np.bincount(inverse, each, minlength=len(values)) for each in (weights, weights * codes))
    blocks: list[tuple[float, float, int, int]] = []  # weight of the second class and of all rows, first and last value
    for at, (hit, count) in enumerate(zip(hits.tolist(), counts.tolist(), strict=True)):
        block = (hit, count, at, at)
        while blocks and blocks[-1][0] * block[1] >= block[0] * blocks[-1][1]:
            before = blocks.pop()
            block = (before[0] + block[0], before[1] + block[1], before[2], at)
        blocks.append(block)
    least = 1.0 / (len(F) + 2.0)
    knots, levels = [], []
    for hit, rows, first, last in blocks:
        level = min(max(hit / rows, least), 1.0 - least)
        ends = (first,) if first == last else (first, last)
        knots += [float(values[end]) for end in ends]
        levels += [level for _ in ends]
    return Calibration(ISOTONIC, _temperature(F, codes, weights).slope, tuple(knots), tuple(levels))


def _losses(fitted: Calibration, F: Array, codes: Array) -> Array:
    return np.asarray(-fitted.log_probabilities(F)[np.arange(len(codes)), codes])


def _is_clearly_better(
    one: Callable[[Array, Array, Array], Calibration],
    other: Callable[[Array, Array, Array], Calibration],
    F: Array,
    codes: Array,
    weights: Array,
) -> bool:
    """Whether one method has a lower log loss on parts of the rows on which it is not fitted, by two standard errors.

    Runs of one class at the ends of the scores make an isotonic function overconfident, which this comparison
    penalises.
    """
    gain = np.zeros(len(F))
    for draw in range(_DRAWS):
        part = np.random.default_rng([len(F), draw]).permutation(len(F)) % _PARTS
        for number in range(_PARTS):
            rest, held = part != number, part == number
            if len(np.unique(codes[rest])) < 2:
                return False
            gain[held] += _losses(other(F[rest], codes[rest], weights[rest]), F[held], codes[held]) / _DRAWS
            gain[held] -= _losses(one(F[rest], codes[rest], weights[rest]), F[held], codes[held]) / _DRAWS
    mean = weighted_mean(gain, weights)
    spread = math.sqrt(weighted_mean(np.square(gain - mean), weights))
    return mean > 2.0 * spread / math.sqrt(effective_rows(weights))
