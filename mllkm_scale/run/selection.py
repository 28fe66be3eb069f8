"""Settings that compete on held-out rows: what "auto" becomes.

Every setting is trained without the rows of a fold, and tested on these. With up to 2,000 rows all three folds are held
out in turn; settings that are clearly behind on the first leave the race. The least error wins, and of equal errors the
least log loss. With more rows one fold is held out, and at most 2,000 rows of the others are trained on, or 1,000 where
several classes have all samples as anchors. There settings are judged by the log loss of their scores, which tells more
than the error where few rows are predicted wrongly. More rows want less regularisation: so the first setting, which has
the least, is taken there unless another one is clearly better. Standard errors of differences on the same rows decide
what is clear.
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
from mllkm_scale.base.regular_files import read_regular
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
from mllkm_scale.plan.contenders import FEW_ROWS, MOST_ROWS, TRIED_AT_ONCE
from mllkm_scale.plan.sizes import DEAR_FLOPS, mkl_flops
from mllkm_scale.run.checkpoint import ANEW
from mllkm_scale.run.choice import MKLPath
from mllkm_scale.run.folds import Fold, folds_of, log_losses, make_trial, predicted
from mllkm_scale.run.problem import Problem, build_problem
from mllkm_scale.run.session import Resources

__all__ = ["Selection", "Tried", "doubted", "load_selection", "select"]


TRYOUT_TOL = 0.2
"""Gap at which a machine over samples is good enough to compare it with others."""

TRYOUT_FLOPS, TRYOUT_EPOCHS = 1e11, 0.5
"""Multiply-adds of the descents of a setting, at most, in all folds: about two seconds. And the share of the epochs
where a part of the rows stands for all of them."""

MOST_SIGNS = 100_000
"""Rows times outputs up to which all samples compete: an inner problem has some samples of every class."""

DOUBT = 2.0
"""Standard errors of the difference of two settings on the same rows, from which on one is clearly better."""

_SETTLED = ("anchors", "scaling", "metric", "ridge", "C", "finish")


@dataclass(frozen=True)
class Tried:
    """A setting, its error on so many held-out rows, and the error or loss by which it was judged."""

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
    def name(self) -> str:
        """In words."""
        wide = ", wide bumps" if self.gammas == "wide" else ""
        if not self.anchors.startswith("learned"):
            C = self.C if isinstance(self.C, str) else f"{self.C:g}"
            return f"{self.anchors} samples as anchors{wide}, C = {C}"
        weighed = f", weighed by MKL, C = {self.C}" if self.finish == "mkl" else ""
        return f"{self.anchors} kernels{wide}, metric {self.metric or 'none'}, ridge {self.ridge:g}{weighed}"


@dataclass(frozen=True)
class Selection:
    """The settings that were tried, and the place of the one that is taken."""

    tried: tuple[Tried, ...]
    taken: int
    calibration: Calibration | None = None  # of the one that is taken, by its scores of the held-out rows

    def settled(self, params: Params) -> Params:
        """The parameters with the setting that is taken."""
        chosen = self.tried[self.taken]
        settled = {name: getattr(chosen, name) for name in _SETTLED}
        return replace(params, **settled, gammas=params.gammas if chosen.gammas is None else chosen.gammas)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        calibration = None if self.calibration is None else self.calibration.as_dict()
        return {"tried": [asdict(one) for one in self.tried], "taken": self.taken, "calibration": calibration}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any], rivals: Sequence[Params]) -> Selection:
        """The selection that `as_dict` was called on; a ValueError if it is none, or not one of these contenders."""
        conform(found, Selected)
        tried, taken = tuple(Tried(**one) for one in found["tried"]), found["taken"]
        chosen = tried[taken]
        if chosen not in [replace(chosen, **_setting(rival)) for rival in rivals]:
            raise ValueError(f"{chosen.name} is none of the settings that compete here")
        return cls(tried, taken, Calibration.from_dict(found.get("calibration")))


def select(
    dataset: Dataset,
    rivals: Sequence[Params],
    resources: Resources,
) -> Selection | None:
    """Let the contenders compete; after the time limit, only the first, and those that have been tried by then.

    Settings that are too dear for MKL take no part. None if no rows can be held out, because classes have single rows.
    """
    _, codes = dataset.label_codes()
    several, few = int(codes.max()) > 1, len(codes) <= FEW_ROWS
    dear = several and not few and not all(_is_learned(rival) for rival in rivals)
    most = MOST_ROWS // 2 if dear else MOST_ROWS
    folds = list(folds_of(codes, int(rivals[0].random_state or 0), FEW_ROWS, most, MOST_ROWS))
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
    tryout = Tryout(TRYOUT_FLOPS / len(folds), 1.0 if few else TRYOUT_EPOCHS)

    def scores(task: tuple[Params, Fold]) -> Array | None:
        params, fold = task
        if resources.out_of_time() and params is not rivals[0]:
            return None
        weighed = not _is_learned(params) or params.finish != rivals[0].finish
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
            later = tested(
                _in_the_race({at: _wrong(F, held[:n_first]) for at, F in first.items()}, weights[:n_first]), folds[1:]
            )
            found = {at: np.concatenate([first[at], F]) for at, F in later.items()} or first
    tried, ranks = [], []
    for at, start in first.items():
        F = found.get(at, start)
        its_held, its_weights = held[: len(F)], weights[: len(F)]
        error = weighted_mean(_wrong(F, its_held), its_weights)
        losses = log_losses(F, its_held, its_weights)
        if few:
            ranks.append((-len(F), error, weighted_mean(losses, its_weights)))
        else:
            ranks.append((-len(F), doubted(losses, log_losses(found[0], held, weights), DOUBT, weights), error))
        tried.append(Tried(**_setting(rivals[at]), error=error, judged=ranks[-1][1], rows=len(F)))
    taken = min(range(len(tried)), key=lambda place: ranks[place])
    resources.listener(Notice(f"{tried[taken].name}: {percent(tried[taken].error)} error on held-out rows"))
    best = found.get(list(first)[taken])
    source = "rows held out to choose the setting"
    calibration = None if best is None else fit_calibration(best, held[: len(best)], source, weights[: len(best)])
    return Selection(tuple(tried), taken, calibration)


def _scores(
    dataset: Dataset,
    codes: Array,
    params: Params,
    fold: Fold,
    weighed: bool,
    resources: Resources,
    tryout: Tryout,
) -> Array | None:
    """f of the held-out rows of a fold by a machine of these parameters, `weighed` by MKL or as it is learned.

    None if MKL is too dear for a learned one.
    """

    def build(part: Dataset) -> Problem:
        return build_problem(part, params, resources, tryout=tryout)

    with closing(make_trial(dataset, codes, fold, build)) as trial:
        learned = trial.problem.learned
        if learned is not None and not weighed:
            return learned.decide(trial.rows)
        data, K = trial.problem.data, trial.problem.signs.shape[1]
        sizes = data.n_rows, K, trial.problem.grid.n_listed, data.n_features, params.componentwise
        if learned is not None and mkl_flops(*sizes) > DEAR_FLOPS:
            return None
        path = MKLPath(trial, params, resources, TRYOUT_TOL)
        return path.scores(weight_of_loss(params.C, data.n_features))


def _wrong(F: Array, codes: Array) -> Array:
    """1 for every row that is predicted wrongly, and 0 for the others."""
    return (predicted(F) != codes).astype(np.float64)


def _in_the_race(wrong: Mapping[int, Array], weights: Array) -> list[int]:
    """Settings that are not clearly behind the best one on the same rows."""
    best = min(wrong.values(), key=lambda one: weighted_mean(one, weights))
    least = weighted_mean(best, weights)
    return [at for at, one in wrong.items() if doubted(one, best, -DOUBT, weights) <= least]


def _is_learned(params: Params) -> bool:
    return anchor_spec(params.anchors).learned


def _setting(params: Params) -> dict[str, Any]:
    named = {"gammas": "wide"} if params.gammas == "wide" else {}
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
    """The selection that a training has made before it was interrupted, if it came so far."""
    if not path.exists():
        return None
    try:
        text = read_regular(path, CheckpointError, MOST_JSON_BYTES)
        return Selection.from_dict(parse_json(text), rivals)
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is damaged, or belongs to a training with other parameters ({error}): resume it with those that"
            f" it was started with, or {ANEW}"
        ) from None
