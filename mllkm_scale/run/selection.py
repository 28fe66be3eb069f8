"""Settings that compete on held-out rows: what "auto" becomes where rows are few.

Every contender is trained without the rows of a fold, and errs on these, for each of its strengths. Errors on few rows
are noisy, and neighbours on a path of strengths do about the same: so a strength is judged by its own error and that of
its neighbours, half and half. With up to 2,000 rows all three folds are held out in turn; with more, one is, and at
most 10,000 rows of the others are trained on: a ridge times the rows means the same for any number of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mllkm_scale.automatic import weight_of_loss
from mllkm_scale.crew import ThreadCrew
from mllkm_scale.data import Dataset
from mllkm_scale.data.labels import encode_labels
from mllkm_scale.errors import CheckpointError
from mllkm_scale.params import Params
from mllkm_scale.run.checkpoint import ANEW
from mllkm_scale.run.choice import MKLPath, learned_mistakes
from mllkm_scale.run.events import Listener, Notice, Phase
from mllkm_scale.run.folds import Fold, Trial, folds_of, make_trial
from mllkm_scale.run.plan import Plan
from mllkm_scale.run.problem import Problem, build_problem
from mllkm_scale.run.settings import Contender
from mllkm_scale.run.wording import percent
from mllkm_scale.team import Team

__all__ = ["Selection", "Tried", "load_selection", "select", "smoothed"]

MOST_ROWS = 10_000
"""Rows that a contender is trained on, at most; half as many are held out."""

_SETTLED = ("anchors", "scaling", "metric", "ridge", "C")


@dataclass(frozen=True)
class Tried:
    """A setting, its error on held-out rows, and the error by which it was judged."""

    anchors: str
    scaling: str
    metric: str | int | None
    ridge: float | str
    C: float | str
    error: float
    judged: float

    @property
    def name(self) -> str:
        """In words."""
        if not self.anchors.startswith("learned"):
            return f"{self.anchors} samples as anchors, C = {self.C}"
        return f"{self.anchors} kernels, metric {self.metric or 'none'}, ridge {self.ridge:g}"


@dataclass(frozen=True)
class Selection:
    """The settings that were tried, and the place of the one that is taken."""

    tried: tuple[Tried, ...]
    taken: int

    def settled(self, params: Params) -> Params:
        """The parameters with the setting that is taken."""
        chosen = self.tried[self.taken]
        return replace(params, **{name: getattr(chosen, name) for name in _SETTLED})

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {"tried": [asdict(one) for one in self.tried], "taken": self.taken}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any], rivals: Sequence[Contender]) -> Selection:
        """The selection that `as_dict` was called on; a ValueError if it is none, or not one of these contenders."""
        tried, taken = tuple(Tried(**one) for one in found["tried"]), found["taken"]
        if not isinstance(taken, int) or not 0 <= taken < len(tried):
            raise ValueError(f"setting {taken!r} of {len(tried)} is none")
        chosen = tried[taken]
        known = [replace(chosen, **_setting(rival.at(s))) for rival in rivals for s in rival.strengths]
        if chosen not in known:
            raise ValueError(f"{chosen.name} is none of the settings that compete here")
        return cls(tried, taken)


def select(
    dataset: Dataset,
    rivals: Sequence[Contender],
    plan: Plan,
    team: Team,
    listener: Listener,
    poll: Callable[[], None],
    out_of_time: Callable[[], bool],
) -> Selection | None:
    """Let the contenders compete; after the time limit, only those that have been tried by then.

    None if no rows can be held out, because classes have single rows.
    """
    tryout = _Tryout(dataset, int(rivals[0].params.random_state or 0), plan, team, poll)
    if not tryout.folds:
        return None
    listener(Phase("select", f"{sum(len(rival.strengths) for rival in rivals)} settings on held-out rows"))
    tried: list[Tried] = []
    for rival in rivals:
        errors = tryout.errors(rival)
        for strength, error, judged in zip(rival.strengths, errors, smoothed(errors), strict=True):
            tried.append(Tried(**_setting(rival.at(strength)), error=error, judged=judged))
        if out_of_time():
            break
    taken = min(range(len(tried)), key=lambda at: (tried[at].judged, tried[at].error))
    listener(Notice(f"{tried[taken].name}: {percent(tried[taken].error)} error on held-out rows"))
    return Selection(tuple(tried), taken)


def _setting(params: Params) -> dict[str, Any]:
    return {name: getattr(params, name) for name in _SETTLED}


def load_selection(path: Path, rivals: Sequence[Contender]) -> Selection | None:
    """The selection that a training has made before it was interrupted, if it came so far."""
    if not path.exists():
        return None
    try:
        return Selection.from_dict(json.loads(path.read_text()), rivals)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path} is damaged, or belongs to a training with other parameters ({error}): resume it with those that"
            f" it was started with, or {ANEW}"
        ) from None


def smoothed(errors: Sequence[float]) -> list[float]:
    """Half the error of each, and a quarter of that of either neighbour; the ends are neighbours of their own.

    >>> smoothed([0.4, 0.2, 0.2])
    [0.35, 0.25, 0.2]
    """
    padded = np.pad(np.asarray(errors, np.float64), 1, mode="edge")
    return [round(float(e), 12) for e in 0.5 * padded[1:-1] + 0.25 * (padded[:-2] + padded[2:])]


class _Tryout:
    """Trains contenders without rows that are held out, one setting and fold in each thread."""

    def __init__(self, dataset: Dataset, seed: int, plan: Plan, team: Team, poll: Callable[[], None]) -> None:
        self.dataset, self.team, self.poll = dataset, team, poll
        self.plan = replace(plan, inner_bytes=plan.inner_bytes // team.size)
        _, self.codes = encode_labels(dataset.labels())
        self.folds = list(folds_of(self.codes, seed, MOST_ROWS))

    def errors(self, rival: Contender) -> list[float]:
        """Error of each strength over the folds."""
        paths = [(s,) for s in rival.strengths] if rival.learned else [rival.strengths]
        tasks = [(strengths, fold) for strengths in paths for fold in self.folds]
        wrong = self.team.run(lambda task: self.mistakes(rival, *task), tasks)
        n_folds = len(self.folds)
        by_path = [np.sum(wrong[at : at + n_folds], axis=0) for at in range(0, len(wrong), n_folds)]
        n_held = sum(len(fold.held) for fold in self.folds)
        return [float(count) / n_held for count in np.concatenate(by_path)]

    def mistakes(self, rival: Contender, strengths: tuple[float | str, ...], fold: Fold) -> list[int]:
        """Rows of a fold that are predicted wrongly, for each of these strengths."""
        own = Team()
        crew = ThreadCrew(own, self.poll)
        params = rival.at(strengths[0])

        def build(part: Dataset) -> Problem:
            return build_problem(part, params, self.plan, lambda event: None, crew, self.poll, own)

        with closing(make_trial(self.dataset, self.codes, fold, build)) as trial:
            if rival.learned:
                return [learned_mistakes(trial)]
            path = MKLPath(trial, params, self.plan, own, crew, self.poll)
            return [path.mistakes(_weight(C, trial)) for C in strengths]


def _weight(C: float | str, trial: Trial) -> float:
    return weight_of_loss(C, trial.problem.data.n_features)
