"""Compares settings on held-out rows, to choose the values of "auto".

Every setting is trained without the rows of a fold, and tested on them. Three folds are held out in turn; settings that
are clearly worse on the first fold are not tried on the others. With up to 1,000 rows, the lowest error wins, and the
log loss decides between equal errors. But machines of MKL, which are sparse and certified, win if one of them is within
a third of a standard error of the lowest error. With more rows, settings are compared by the squared loss of the
probabilities of their scores, which is more informative than the error if few rows are misclassified, and less
sensitive than the log loss to single rows.

A setting is trained on at most 6,000 rows, or 2,000 with several classes or many features. If the other folds have
more, only one fold is held out. The final training then has more rows and needs less regularisation, so the first
setting, which has the least, wins unless another one is clearly better. A difference is clear if it exceeds two
standard errors of the difference on the same rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.events import Notice, Phase
from mllkm_scale.base.files.regular import read_regular
from mllkm_scale.base.schemas import MOST_JSON_BYTES, Selected, conform, parse_json
from mllkm_scale.base.weighted import effective_rows, weighted_mean
from mllkm_scale.base.wording import percent
from mllkm_scale.data import Dataset
from mllkm_scale.errors import CheckpointError
from mllkm_scale.kernels.anchors import anchor_spec
from mllkm_scale.kernels.automatic import weight_of_loss
from mllkm_scale.learn.settings import Tryout
from mllkm_scale.model.calibration import Calibration, fit_calibration
from mllkm_scale.params import Params
from mllkm_scale.plan.contenders import FEW_ROWS, MOST_ROWS, TRIED_AT_ONCE, tried_rows
from mllkm_scale.plan.sizes import MOST_MKL_FLOPS, mkl_flops
from mllkm_scale.run.checkpoint import START_AGAIN
from mllkm_scale.run.problem import Problem, build_problem
from mllkm_scale.run.session import Resources
from mllkm_scale.run.tuning.choice import MKLPath
from mllkm_scale.run.tuning.folds import FOLDS, Fold, folds_of, log_losses, make_trial, predicted, squared_losses

__all__ = ["Selection", "Tried", "certified_if_as_good", "doubted", "load_selection", "select"]


TRYOUT_TOL = 0.2
"""Gap of machines with samples as anchors in the comparison."""

TRYOUT_FLOPS = 1e11
"""Largest number of multiply-adds of the descents of a setting in all folds: about two seconds."""

MOST_SIGNS = 100_000
"""Largest number of rows times outputs for which all samples as anchors are tried: the inner problem has samples of
every class."""

DOUBT = 2.0
"""Number of standard errors of the difference on the same rows above which one setting is clearly better."""

SPARED = 1.0 / 3.0
"""Number of standard errors of the lowest error by which a machine of MKL may exceed it."""

_SETTLED = ("anchors", "scaling", "metric", "ridge", "C", "finish")


@dataclass(frozen=True)
class Tried:
    """A setting, its error on a number of held-out rows, and the error or loss by which it was compared."""

    anchors: str
    scaling: str
    metric: str | int | None
    ridge: float | str
    C: float | str
    error: float
    judged: float
    gammas: str | None = None  # by name, or None as in the parameters
    finish: str = "auto"
    rows: int = 0

    @property
    def by_mkl(self) -> bool:
        """Whether MKL makes the machine of this setting: sparse, and with a certificate."""
        return self.finish == "mkl" or not self.anchors.startswith("learned")

    @property
    def name(self) -> str:
        """A description of the setting."""
        bumps = f", {self.gammas} bumps" if self.gammas else ""
        if not self.anchors.startswith("learned"):
            C = self.C if isinstance(self.C, str) else f"{self.C:g}"
            return f"{self.anchors} samples as anchors{bumps}, C = {C}"
        weighed = f", weighed by MKL, C = {self.C}" if self.finish == "mkl" else ""
        return f"{self.anchors} kernels{bumps}, metric {self.metric or 'none'}, ridge {self.ridge:g}{weighed}"


@dataclass(frozen=True)
class Selection:
    """The settings that were tried, and the index of the chosen one."""

    tried: tuple[Tried, ...]
    taken: int
    calibration: Calibration | None = None  # of the chosen setting, by its scores on the held-out rows

    def settled(self, params: Params) -> Params:
        """The parameters with the chosen setting."""
        chosen = self.tried[self.taken]
        settled = {name: getattr(chosen, name) for name in _SETTLED}
        return replace(params, **settled, gammas=params.gammas if chosen.gammas is None else chosen.gammas)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        calibration = None if self.calibration is None else self.calibration.as_dict()
        return {"tried": [asdict(one) for one in self.tried], "taken": self.taken, "calibration": calibration}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any], rivals: Sequence[Params]) -> Selection:
        """The selection that `as_dict` was called on; a ValueError if it is invalid, or not among these contenders."""
        conform(found, Selected)
        tried, taken = tuple(Tried(**one) for one in found["tried"]), found["taken"]
        chosen = tried[taken]
        if chosen not in [replace(chosen, **{"gammas": None} | _setting(rival)) for rival in rivals]:
            raise ValueError(f"{chosen.name} is none of the settings that compete here")
        return cls(tried, taken, Calibration.from_dict(found.get("calibration")))


def select(
    dataset: Dataset,
    rivals: Sequence[Params],
    resources: Resources,
) -> Selection | None:
    """Compare the contenders; after the time limit, only the first one and those that have already been tried.

    Settings for which MKL would take too long are left out. None if no rows can be held out, because classes have
    single rows.
    """
    _, codes = dataset.label_codes()
    several, few = int(codes.max()) > 1, len(codes) <= FEW_ROWS
    most = tried_rows(dataset.n_features, int(codes.max()) + 1 if several else 1)
    folds = list(folds_of(codes, int(rivals[0].random_state or 0), most * FOLDS // (FOLDS - 1), most, MOST_ROWS))
    if not folds:
        return None
    if several and len(codes) * int(codes.max() + 1) > MOST_SIGNS:
        rivals = [rival for rival in rivals if _is_learned(rival)]
    at_held = np.concatenate([fold.held for fold in folds])
    given = dataset.weights()
    held, weights = codes[at_held], np.ones(len(at_held)) if given is None else given[at_held]
    resources.listener(Phase("select", f"{len(rivals)} settings, {len(held):,} held-out rows"))
    plan = resources.plan
    share = replace(resources, plan=replace(plan, inner_bytes=plan.inner_bytes // TRIED_AT_ONCE))
    tryout = Tryout(TRYOUT_FLOPS / len(folds))

    def scores(task: tuple[Params, Fold]) -> Array | None:
        params, fold = task
        if resources.clock.is_over() and params is not rivals[0]:
            return None
        weighed = not _is_learned(params) or (params.finish == "mkl" and rivals[0].finish != "mkl")
        return _scores(dataset, codes, params, fold, weighed, share.single(), tryout)

    def tested(places: Sequence[int], on: Sequence[Fold]) -> dict[int, Array]:
        parts = iter(small.run(scores, [(rivals[at], fold) for at in places for fold in on]))
        found = {at: [F for F in itertools.islice(parts, len(on)) if F is not None] for at in places}
        return {at: np.concatenate(F) for at, F in found.items() if len(F) == len(on)}

    with resources.threads.at_most(plan.tried_at_once) as small:
        first = tested(range(len(rivals)), folds[:1])
        found = first
        if len(folds) > 1:
            n_first = len(folds[0].held)
            codes_first, weights_first = held[:n_first], weights[:n_first]
            losses = {at: _losses(F, codes_first, weights_first, few) for at, F in first.items()}
            later = tested(_in_the_race(losses, weights_first), folds[1:])
            found = {at: np.concatenate([first[at], F]) for at, F in later.items()} or first
    of_first = _losses(first[0], held, weights, few) if len(folds) == 1 else None
    judged = [_judged(rivals[at], found.get(at, F), held, weights, few, of_first) for at, F in first.items()]
    tried, ranks = tuple(setting for setting, _ in judged), [rank for _, rank in judged]
    taken = min(range(len(ranks)), key=lambda place: ranks[place])
    if few:
        taken = min(certified_if_as_good(tried, taken, effective_rows(weights)), key=lambda place: ranks[place])
    resources.listener(Notice(f"{tried[taken].name}: {percent(tried[taken].error)} error on held-out rows"))
    best = found.get(list(first)[taken])
    source = "rows held out to choose the setting"
    calibration = None if best is None else fit_calibration(best, held[: len(best)], source, weights[: len(best)])
    return Selection(tried, taken, calibration)


def _judged(
    params: Params, F: Array, held: Array, weights: Array, few: bool, of_first: Array | None
) -> tuple[Tried, tuple[int, float, float]]:
    """A setting with its error on held-out rows, and its rank: the lowest is the best.

    Settings with scores of more rows come first. The next criterion is the error, if there are `few` rows, and
    otherwise the squared loss. If the losses `of_first`, those of the first setting, are given, the doubt about the
    difference from them is added. The log loss decides between equal ones.
    """
    held, own = held[: len(F)], weights[: len(F)]
    losses = _losses(F, held, own, few)
    judged = weighted_mean(losses, own) if of_first is None else doubted(losses, of_first, DOUBT, own)
    tried = Tried(**_setting(params), error=weighted_mean(_wrong(F, held), own), judged=judged, rows=len(F))
    return tried, (-len(F), judged, weighted_mean(log_losses(F, held, own), own))


def _losses(F: Array, codes: Array, weights: Array, few: bool) -> Array:
    """The losses by which settings are compared: with `few` rows 1 for every misclassified row."""
    return _wrong(F, codes) if few else squared_losses(F, codes, weights)


def certified_if_as_good(tried: Sequence[Tried], best: int, n_held: float) -> list[int]:
    """The machines of MKL whose error is about the lowest one, or the best setting alone if there are none."""
    lowest, n_rows = tried[best].error, tried[best].rows
    error = max(lowest, 1.0 / n_held)  # no wrong row among these does not mean that there are none
    allowed = lowest + SPARED * float(np.sqrt(error * (1.0 - error) / n_held))
    mkl = [at for at, one in enumerate(tried) if one.by_mkl and one.rows == n_rows and one.error <= allowed]
    return mkl or [best]


def _scores(
    dataset: Dataset,
    codes: Array,
    params: Params,
    fold: Fold,
    weighed: bool,
    resources: Resources,
    tryout: Tryout,
) -> Array | None:
    """f of the held-out rows of a fold by a machine with these parameters, with MKL if `weighed`.

    None if MKL would take too long for learned kernels.
    """

    def build(part: Dataset) -> Problem:
        return build_problem(part, params, resources, tryout=tryout)

    with closing(make_trial(dataset, codes, fold, build)) as trial:
        learned = trial.problem.learned
        if learned is not None and not weighed:
            return learned.decide(trial.rows)
        data, K = trial.problem.data, trial.problem.signs.shape[1]
        sizes = data.n_rows, K, trial.problem.grid.n_listed, data.n_features, params.componentwise
        if learned is not None and mkl_flops(*sizes) > MOST_MKL_FLOPS:
            return None
        path = MKLPath(trial, params, resources, TRYOUT_TOL)
        return path.scores(weight_of_loss(params.C, data.n_features))


def _wrong(F: Array, codes: Array) -> Array:
    """1 for every misclassified row, and 0 for the others."""
    return (predicted(F) != codes).astype(np.float64)


def _in_the_race(losses: Mapping[int, Array], weights: Array) -> list[int]:
    """Settings that are not clearly worse than the best one on the same rows."""
    best = min(losses.values(), key=lambda one: weighted_mean(one, weights))
    least = weighted_mean(best, weights)
    return [at for at, one in losses.items() if doubted(one, best, -DOUBT, weights) <= least]


def _is_learned(params: Params) -> bool:
    return anchor_spec(params.anchors).learned


def _setting(params: Params) -> dict[str, Any]:
    named = {} if params.bumps == "auto" else {"gammas": params.bumps}
    return {name: getattr(params, name) for name in _SETTLED} | named


def doubted(losses: Array, others: Array, doubt: float, weights: Array) -> float:
    """The weighted mean of losses, and some standard errors of their differences to others on the same rows.

    >>> losses = np.array([0.0, 1.0, 0.0, 1.0])
    >>> doubted(losses, losses, 2.0, np.ones(4)), doubted(losses, np.ones(4), 2.0, np.ones(4))
    (0.5, 1.0)
    """
    differences = losses - others
    variance = weighted_mean(np.square(differences - weighted_mean(differences, weights)), weights)
    return float(weighted_mean(losses, weights) + doubt * np.sqrt(variance) / np.sqrt(effective_rows(weights)))


def load_selection(path: Path, rivals: Sequence[Params]) -> Selection | None:
    """The selection of an interrupted training run, if it had made one."""
    if not path.exists():
        return None
    try:
        text = read_regular(path, CheckpointError, MOST_JSON_BYTES)
        return Selection.from_dict(parse_json(text), rivals)
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is damaged, or belongs to a training run with other parameters ({error}): resume it with those"
            f" that it was started with, or {START_AGAIN}"
        ) from None
