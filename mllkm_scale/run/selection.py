"""Settings that compete on held-out rows: what "auto" becomes where rows are few.

Every contender is trained without the rows of a fold, and errs on these, for one of its strengths after the other,
until its error gets clearly worse; one that is far behind another is left alone. The least of many noisy errors
flatters: so a kind that is a part of another one, as wide bumps are, must be better by half a standard error. With up
to 2,000 rows all three folds are held out in turn. With more, one is, and at most 2,000 rows of the others are trained
on, or 1,000 where several classes have all samples as anchors. More rows want less regularisation: so the first
strength, which has the least, is taken there unless another one is better by a standard error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.events import Listener, Notice, Phase
from mllkm_scale.base.executor import ThreadExecutor
from mllkm_scale.base.threads import Threads
from mllkm_scale.base.wording import percent
from mllkm_scale.data import Dataset
from mllkm_scale.data.labels import encode_labels
from mllkm_scale.errors import CheckpointError
from mllkm_scale.kernels.automatic import weight_of_loss
from mllkm_scale.model.calibration import Calibration, fit_calibration
from mllkm_scale.params import Params
from mllkm_scale.plan.contenders import FEW_ROWS, MOST_ROWS, TRIED_AT_ONCE, Contender
from mllkm_scale.plan.training import Plan
from mllkm_scale.run.checkpoint import ANEW
from mllkm_scale.run.choice import MKLPath, learned_scores
from mllkm_scale.run.folds import Fold, Trial, folds_of, make_trial, mistakes
from mllkm_scale.run.problem import Problem, build_problem

__all__ = ["Selection", "Tried", "judged_by", "load_selection", "select"]


TRYOUT_TOL = 0.2
"""Gap at which a machine over samples is good enough to compare it with others."""

TRYOUT_FLOPS = 1e11
"""Multiply-adds of the descents of a setting, at most, in all folds: about two seconds."""

DOUBT = 0.5
"""Standard errors of a held-out error by which another one is clearly better."""

BEATEN = 2.0
"""Standard errors by which a kind of candidates may be behind another one, and still be tried with other strengths."""

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
    gammas: str | None = None  # by name, or None as in the parameters

    @property
    def name(self) -> str:
        """In words."""
        if not self.anchors.startswith("learned"):
            wide = ", wide bumps" if self.gammas == "wide" else ""
            return f"{self.anchors} samples as anchors{wide}, C = {self.C:g}"
        return f"{self.anchors} kernels, metric {self.metric or 'none'}, ridge {self.ridge:g}"


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
    def from_dict(cls, found: Mapping[str, Any], rivals: Sequence[Contender]) -> Selection:
        """The selection that `as_dict` was called on; a ValueError if it is none, or not one of these contenders."""
        tried, taken = tuple(Tried(**one) for one in found["tried"]), found["taken"]
        if not isinstance(taken, int) or not 0 <= taken < len(tried):
            raise ValueError(f"setting {taken!r} of {len(tried)} is none")
        chosen = tried[taken]
        known = [replace(chosen, **_setting(rival.at(s))) for rival in rivals for s in rival.strengths]
        if chosen not in known:
            raise ValueError(f"{chosen.name} is none of the settings that compete here")
        return cls(tried, taken, Calibration.from_dict(found.get("calibration")))


def select(
    dataset: Dataset,
    rivals: Sequence[Contender],
    plan: Plan,
    threads: Threads,
    listener: Listener,
    poll: Callable[[], None],
    out_of_time: Callable[[], bool],
) -> Selection | None:
    """Let the contenders compete; after the time limit, only with what has been tried by then.

    None if no rows can be held out, because classes have single rows.
    """
    seed = int(rivals[0].params.random_state or 0)
    _, codes = encode_labels(dataset.labels())
    dear = int(codes.max()) > 1 and not all(rival.learned for rival in rivals)  # many classes of many samples
    most = MOST_ROWS // 2 if dear and len(codes) > FEW_ROWS else MOST_ROWS
    folds = list(folds_of(codes, seed, FEW_ROWS, most, MOST_ROWS))
    if not folds:
        return None
    n_held = sum(len(fold.held) for fold in folds)
    listener(Phase("select", f"{len(rivals)} kinds of candidates, {n_held:,} held-out rows"))
    with ExitStack() as stack:
        walks = [stack.enter_context(_Walk(rival, dataset, codes, folds, plan, poll)) for rival in rivals]
        small = stack.enter_context(threads.at_most(TRIED_AT_ONCE))
        best = 1.0
        while under_way := [walk for walk in walks if walk.goes_on(n_held, best)]:
            tasks = [(walk, fold) for walk in under_way for fold in range(len(folds))]
            wrong = small.run(lambda task: task[0].mistakes(task[1]), tasks)
            for at, walk in enumerate(under_way):
                walk.errors[walk.place] = sum(wrong[at * len(folds) : (at + 1) * len(folds)]) / n_held
            best = min(min(walk.errors.values()) for walk in walks)
            if out_of_time():
                break
    tried = [one for walk in walks for one in walk.tried(n_held)]
    taken = min(range(len(tried)), key=lambda at: (tried[at].judged, tried[at].error))
    listener(Notice(f"{tried[taken].name}: {percent(tried[taken].error)} error on held-out rows"))
    walk, place = [(walk, place) for walk in walks for place in sorted(walk.errors)][taken]
    return Selection(tuple(tried), taken, walk.calibration(place))


class _Walk:
    """A contender on its way along its strengths: from the first to either side, until its error gets clearly worse."""

    def __init__(
        self,
        rival: Contender,
        dataset: Dataset,
        codes: Array,
        folds: Sequence[Fold],
        plan: Plan,
        poll: Callable[[], None],
    ) -> None:
        self.rival, self.dataset, self.codes, self.folds = rival, dataset, codes, folds
        self.plan, self.poll = replace(plan, inner_bytes=plan.inner_bytes // TRIED_AT_ONCE), poll
        self.errors: dict[int, float] = {}  # by the place on the path
        self.found: dict[tuple[int, int], Array] = {}  # scores of the held-out rows, by the fold too
        self.place = rival.first
        self._paths: dict[int, MKLPath] = {}  # of the folds, for candidates that are not learned
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def goes_on(self, n_held: int, best_of_all: float) -> bool:
        """Whether another strength is worth trying, and if so, which: it is at `place` then."""
        if not self.errors:
            return True
        best = min(self.errors.values())
        if best > judged_by(best_of_all, n_held, BEATEN):
            return False
        enough = judged_by(best, n_held)
        for end, following in ((max(self.errors), max(self.errors) + 1), (min(self.errors), min(self.errors) - 1)):
            if 0 <= following < len(self.rival.strengths) and self.errors[end] <= enough:
                self.place = following
                return True
        return False

    def mistakes(self, fold: int) -> int:
        """Rows of a fold that the machine of the next strength predicts wrongly."""
        scores = self.scores(fold)
        self.found[self.place, fold] = scores
        return mistakes(scores, self.codes[self.folds[fold].held])

    def calibration(self, place: int) -> Calibration | None:
        """By the held-out rows of all folds."""
        scores = [self.found[key] for key in sorted(self.found) if key[0] == place]
        codes = np.concatenate([self.codes[fold.held] for fold in self.folds])
        if sum(map(len, scores)) != len(codes):
            return None
        return fit_calibration(np.concatenate(scores), codes, "rows held out to choose the setting")

    def scores(self, fold: int) -> Array:
        """f (rows, K) of the rows of a fold by the machine of the next strength."""
        own, strength = Threads(), self.rival.strengths[self.place]
        executor, params = ThreadExecutor(own, self.poll), self.rival.at(strength)

        def build(part: Dataset) -> Problem:
            flops = TRYOUT_FLOPS / len(self.folds)
            return build_problem(
                part, params, self.plan, lambda event: None, executor, self.poll, own, tryout_flops=flops
            )

        def trial() -> Trial:
            return make_trial(self.dataset, self.codes, self.folds[fold], build)

        if self.rival.learned:
            with closing(trial()) as found:
                return learned_scores(found)
        if fold not in self._paths:
            found = self._stack.enter_context(closing(trial()))
            self._paths[fold] = MKLPath(found, params, self.plan, own, executor, self.poll, TRYOUT_TOL)
        path = self._paths[fold]
        return path.scores(weight_of_loss(strength, path.trial.problem.data.n_features))

    def tried(self, n_held: int) -> list[Tried]:
        """The strengths that were tried, with their errors on so many rows."""
        return [
            Tried(**_setting(self.rival.at(self.rival.strengths[at])), error=error, judged=self.judged(at, n_held))
            for at, error in sorted(self.errors.items())
        ]

    def judged(self, place: int, n_held: int) -> float:
        """The error of a strength, with what speaks against it."""
        doubt = DOUBT if self.rival.doubted else 0.0
        on_fewer_rows = len(self.codes) > FEW_ROWS
        return judged_by(self.errors[place], n_held, doubt + (place != self.rival.first and on_fewer_rows))


def _setting(params: Params) -> dict[str, Any]:
    named = {"gammas": "wide"} if params.gammas == "wide" else {}
    return {name: getattr(params, name) for name in _SETTLED} | named


def judged_by(error: float, n_held: int, doubt: float = DOUBT) -> float:
    """An error on so many rows, and some standard errors of it.

    >>> round(judged_by(0.1, 100), 3), judged_by(0.0, 100)
    (0.115, 0.0)
    """
    return error + doubt * math.sqrt(error * (1.0 - error) / n_held)


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
