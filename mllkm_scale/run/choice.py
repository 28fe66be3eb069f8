"""How a training with learned kernels is finished: with which C, and whether MKL weighs them at all.

C is chosen along a warm path, from the smallest on, by the error on rows that are held out. With few rows these are the
rows of three folds, each learned and trained on without them; with more, those that the descent has held out. The same
rows say whether the convex machine is worse than the learned one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.crew import Crew
from mllkm_scale.data import Dataset
from mllkm_scale.data.subset import subset
from mllkm_scale.mkl.margins import decide_all
from mllkm_scale.mkl.sequential import SequentialMKL
from mllkm_scale.params import Params
from mllkm_scale.run.machine import make_machine
from mllkm_scale.run.plan import Plan
from mllkm_scale.run.problem import Problem
from mllkm_scale.team import Team

__all__ = ["CS", "Choice", "Trial", "choose", "fold_trials", "learned_margins", "machine_start", "mkl_flops"]

Array = NDArray[Any]

CS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""The values of C="auto": kernels have unit trace, so that they mean the same for all data."""

FOLDS, FOLD_ROWS = 3, 2000
"""So many folds for so few rows; with more rows, one part is held out."""

LOOSE_TOL, MOST_ROUNDS = 0.05, 6  # of the machines along the path
DEAR_FLOPS = 4e12  # multiply-adds of all solving, above which MKL is too dear for "auto": about a minute of a core
ROUNDS = 8  # that a training takes, about


@dataclass(frozen=True)
class Choice:
    """C, whether MKL finishes the training, and why."""

    C: float
    mkl: bool
    reason: str
    Cs: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()  # on the held-out rows, of each C
    learned_error: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Choice:
        """The choice that `as_dict` was called on."""
        return cls(**found | {"Cs": tuple(found["Cs"]), "errors": tuple(found["errors"])})


@dataclass(frozen=True)
class Trial:
    """A problem to train on, and prepared rows that it does not have, with the numbers of their classes."""

    problem: Problem
    rows: Array
    codes: Array


def learned_margins(problem: Problem, crew: Crew) -> Array:
    """y f(x) (n, K) of the learned machine."""
    start = problem.learned
    assert start is not None
    F = decide_all(problem.grid.family, problem.data, start.kernels, start.coef, start.local_coef, crew)
    return problem.signs * F


def machine_start(machine: SequentialMKL, problem: Problem, columns: slice, margins: Array) -> Any:
    """The state in which a machine on some columns of the signs begins: that of the learned machine."""
    start = problem.learned
    assert start is not None
    ids = np.arange(len(start.kernels))
    norms = start.norms(columns) if problem.grid.family.local_bias > 0 else np.ones(len(ids))
    weights = norms if norms.sum() > 0 else np.ones(len(ids))
    return machine.start_at(ids, weights, margins[:, columns])


def mkl_flops(machine: SequentialMKL, state: Any) -> float:
    """Multiply-adds of all solving that is to come, about: the working sets are those of the learned machine."""
    return ROUNDS * machine.inner.flops(machine.sets(state))


def choose(
    problem: Problem,
    folds: Callable[[], Iterator[Trial]],
    params: Params,
    plan: Plan,
    team: Team,
    crew: Crew,
    poll: Callable[[], None],
) -> Choice:
    """How to finish: see the module. `folds` are the trials of few rows."""
    margins = learned_margins(problem, crew)
    fixed = None if isinstance(params.C, str) else float(params.C)
    own = balancing_C(problem, margins)
    if params.finish == "none":
        return Choice(fixed or own, False, "as asked for")
    if params.finish == "auto":
        tried = replace(problem, C=own if fixed is None else fixed)
        machine = make_machine(tried, problem.signs, params, plan, team, crew, poll)
        assert isinstance(machine, SequentialMKL)
        flops = mkl_flops(machine, machine_start(machine, problem, slice(None), margins))
        if flops > DEAR_FLOPS:
            within = float(np.mean(margins < 1.0))
            reason = f"MKL is too dear: {flops:.1e} multiply-adds, {100 * within:.0f} % of the samples within the margin"
            return Choice(fixed or own, False, reason)
    if fixed is not None:
        return Choice(fixed, True, "weighed by MKL")
    trials = folds() if problem.data.n_rows <= FOLD_ROWS else iter([_held_out(problem)])
    wrong, learned_wrong, n_held = np.zeros(len(CS)), 0.0, 0
    tried_all = len(CS)
    for trial in trials:
        counts = list(_path(trial, params, plan, team, crew, poll))
        tried_all = min(tried_all, len(counts))
        wrong[: len(counts)] += counts
        learned_wrong += _learned_mistakes(trial)
        n_held += len(trial.codes)
        poll()
    if not n_held:
        return Choice(own, True, "weighed by MKL; too few rows to hold some out")
    errors = wrong[:tried_all] / n_held
    best = int(np.argmin(errors))
    learned_error = learned_wrong / n_held
    told = tuple(float(e) for e in errors)
    spread = float(np.sqrt(max(errors[best] * (1.0 - errors[best]), 0.0) / n_held))
    if params.finish == "auto" and learned_error < errors[best] - spread:
        reason = f"better on held-out rows, {100 * learned_error:.2f} % error against {100 * errors[best]:.2f} % by MKL"
        return Choice(own, False, reason, CS[:tried_all], told, learned_error)
    reason = f"weighed by MKL; C = {CS[best]:g} by {100 * errors[best]:.2f} % error on held-out rows"
    return Choice(CS[best], True, reason, CS[:tried_all], told, learned_error)


def balancing_C(problem: Problem, margins: Array) -> float:
    """The C for which no other length of the learned machine has a smaller P: (sum |w|)^2 = C sum of y f within.

    Where the samples within the margin are on the wrong side on the whole, there is none; then it is 1.
    """
    start = problem.learned
    assert start is not None
    if problem.grid.family.local_bias <= 0:
        return 1.0
    within = float(margins[margins < 1.0].sum())
    norm = float(start.norms().sum())
    return float(np.clip(norm**2 / within, CS[0], CS[-1])) if within > 0 else 1.0


def _path(trial: Trial, params: Params, plan: Plan, team: Team, crew: Crew, poll: Callable[[], None]) -> Iterator[float]:
    """Mistakes on the held-out rows for each C, each begun where the one before has ended; until they grow."""
    loose = replace(params, tol=max(params.tol, LOOSE_TOL))
    margins = learned_margins(trial.problem, crew)
    state, before, least, worse = None, 0.0, np.inf, 0
    for C in CS:
        problem = replace(trial.problem, C=C)
        machine = make_machine(problem, problem.signs, loose, plan, team, crew, poll)
        assert isinstance(machine, SequentialMKL)
        state = machine_start(machine, problem, slice(None), margins) if state is None else machine.warm(state, before)
        for after, certificate in machine.rounds(state):
            state = after
            poll()
            if certificate.gap <= loose.tol or state.round >= MOST_ROUNDS:
                break
        mistakes = _mistakes(problem, state, trial)
        yield mistakes
        before, worse = C, worse + 1 if mistakes > least else 0
        least = min(least, mistakes)
        if worse == 2:
            return


def _mistakes(problem: Problem, state: Any, trial: Trial) -> float:
    """Held-out rows that the machine of a state predicts wrongly."""
    used = state.weights > 0
    kernels, rows = problem.grid.take(state.active[used]), np.flatnonzero(state.duals.any(axis=1))
    signed = state.duals[rows] * problem.signs[rows]
    coef, local_coef = kernels.coefficients(problem.data.rows(rows), signed, state.weights[used])
    return _wrong(kernels.decide(trial.rows, coef, local_coef), trial.codes)


def _learned_mistakes(trial: Trial) -> float:
    assert trial.problem.learned is not None
    return _wrong(trial.problem.learned.decide(trial.rows), trial.codes)


def _wrong(F: Array, codes: Array) -> float:
    said = (F[:, 0] > 0).astype(np.int64) if F.shape[1] == 1 else F.argmax(axis=1)
    return float(np.count_nonzero(said != codes))


def _held_out(problem: Problem) -> Trial:
    """The rows that the descent has held out, and the problem without them."""
    assert problem.learned is not None
    held = problem.learned.held
    used = np.ones(problem.data.n_rows, dtype=bool)
    used[held] = False
    rows = np.flatnonzero(used)
    smaller = replace(
        problem, data=subset(problem.data, rows, "rows"), signs=problem.signs[rows], codes=problem.codes[rows]
    )
    return Trial(smaller, problem.data.rows(held).astype(np.float64), problem.codes[held])


def fold_trials(
    dataset: Dataset, codes: Array, seed: int, build: Callable[[Dataset], Problem], n_folds: int = FOLDS
) -> Iterator[Trial]:
    """A trial for each fold: `build` makes the problem of the rows of the others. Folds have all classes in them.

    A class with a single row is in all problems and in no fold.
    """
    fold = np.full(len(codes), -1)
    rng = np.random.default_rng([seed, 16])
    place = 0
    for code in range(int(codes.max()) + 1):
        rows = rng.permutation(np.flatnonzero(codes == code))
        if len(rows) > 1:
            fold[rows] = (place + np.arange(len(rows))) % n_folds
            place += len(rows)
    for number in range(n_folds):
        held = np.flatnonzero(fold == number)
        rest = np.flatnonzero(fold != number)
        if not len(held) or len(np.unique(codes[rest])) != len(np.unique(codes)):
            continue
        problem = build(subset(dataset, rest, "rows"))
        try:
            rows = problem.preprocessor.transform(dataset.rows(held), np.float64)
            yield Trial(problem, rows, codes[held])
        finally:
            problem.close()
