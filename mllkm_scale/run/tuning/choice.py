"""The end of a training run with learned kernels: the choice of C, and whether MKL follows the descent.

C is chosen along a path with warm starts, by the error on held-out rows. With few rows, each of three folds is held out
in turn, or only one fold, from learning and from MKL. The final fit uses all rows again. With many rows, the held-out
rows are those of the descent. The same rows decide whether the machine of MKL is worse than the learned one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from mllkm_scale.base import schemas
from mllkm_scale.base.arrays import Array
from mllkm_scale.base.executor import Executor
from mllkm_scale.base.schemas import conform
from mllkm_scale.data.subset import subset
from mllkm_scale.mkl.margins import NearMargin, decide_all, decisions, near_margin
from mllkm_scale.mkl.pricing import RAMPS
from mllkm_scale.mkl.sequential import SequentialMKL
from mllkm_scale.model.calibration import Calibration, fit_calibration
from mllkm_scale.params import Params
from mllkm_scale.plan.contenders import FOLD_ROWS
from mllkm_scale.plan.sizes import MOST_MKL_FLOPS, ROUNDS
from mllkm_scale.run.problem import Problem
from mllkm_scale.run.session import Resources
from mllkm_scale.run.strategy import make_machine
from mllkm_scale.run.tuning.folds import Trial, error_of

__all__ = [
    "CS",
    "HELD_OUT",
    "Choice",
    "MKLPath",
    "choose",
    "held_out_trial",
    "learned_margins",
    "learned_near_margin",
    "learned_scores",
    "machine_start",
]


CS = (0.1, 1.0, 10.0, 100.0)
"""The values of C="auto". Kernels have unit trace, so a value means the same for all data."""


HELD_OUT = "rows held out from the descent"
ALL_FOLDS_ROWS = 500  # largest number for which all folds are held out in turn

LOOSE_TOL = 0.05  # gap of the machines along the path


@dataclass(frozen=True)
class Choice:
    """C, whether MKL follows the descent, and the reason."""

    C: float
    mkl: bool
    reason: str
    Cs: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()  # on the held-out rows, for each C
    learned_error: float | None = None
    calibration: Calibration | None = None  # by the scores of the held-out rows

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Choice:
        """The choice that `as_dict` was called on; a ValueError if it cannot have been one."""
        conform(found, schemas.Choice)
        calibration = Calibration.from_dict(found.get("calibration"))
        lists = {"Cs": tuple(found["Cs"]), "errors": tuple(found["errors"])}
        return cls(**found | lists | {"calibration": calibration})


def learned_margins(problem: Problem, executor: Executor) -> Array:
    """y f(x) (n, K) of the learned machine."""
    start = problem.learned
    assert start is not None
    F = decide_all(problem.grid.family, problem.data, start.kernels, start.coef, start.local_coef, executor)
    return problem.signs * F


def learned_near_margin(problem: Problem, resources: Resources) -> NearMargin:
    """The summary of all y f(x) from which P and the duals of the learned machine are computed."""
    start = problem.learned
    assert start is not None
    machine = start.kernels, start.coef, start.local_coef
    decided = decisions(problem.grid.family, problem.data, *machine, resources.executor)
    limits, most_rows = [1.0 + width for width in RAMPS], resources.plan.near_rows
    return near_margin(decided, problem.signs, problem.row_weights, problem.data.chunk_rows, limits, most_rows)


def machine_start(machine: SequentialMKL, problem: Problem, columns: slice, margins: Array) -> Any:
    """The initial state of a machine on some columns of the signs, from the learned machine."""
    start = problem.learned
    assert start is not None
    ids = np.arange(len(start.kernels))
    norms = start.norms(columns) if problem.grid.family.local_bias > 0 else np.ones(len(ids))
    weights = norms if norms.sum() > 0 else np.ones(len(ids))
    return machine.start_at(ids, weights, margins[:, columns])


def choose(
    problem: Problem,
    within: float,
    folds: Callable[[], Iterator[Trial]],
    params: Params,
    resources: Resources,
) -> Choice:
    """The choice described above. `folds` are the trials of few rows, and `within` is as in `balancing_C`."""
    fixed = None if isinstance(params.C, str) else float(params.C)
    own = balancing_C(problem, within)
    if params.finish == "none":
        return Choice(fixed or own, False, "as asked for")
    stands = (
        problem.grid.family.local_bias > 0
    )  # whether the learned machine, which has local biases, is a feasible result
    if params.finish == "auto" and stands:
        flops = resources.plan.sizes.mkl_flops
        if flops > MOST_MKL_FLOPS:
            reason = f"MKL would take too long for {problem.data.n_rows:,} rows: about {flops:.0e} multiply-adds"
            return Choice(fixed or own, False, reason)
    if fixed is not None:
        return Choice(fixed, True, "weighed by MKL")
    with ExitStack() as stack:
        folded = problem.data.n_rows <= FOLD_ROWS
        trials = [stack.enter_context(closing(t)) for t in folds()] if folded else [held_out_trial(problem)]
        n_held = sum(len(trial.codes) for trial in trials)
        if not n_held:
            return Choice(own, True, "weighed by MKL; too few rows to hold some out")
        paths = [MKLPath(trial, params, resources) for trial in trials]
        weights, codes = (np.concatenate([getattr(trial, name) for trial in trials]) for name in ("weights", "codes"))
        errors = _search(lambda C: error_of(np.concatenate([path.scores(C) for path in paths]), codes, weights))
        learned = [learned_scores(trial) for trial in trials]
    learned_error = error_of(np.concatenate(learned), codes, weights)
    source = "rows held out to choose C" if folded else HELD_OUT
    Cs = tuple(sorted(errors))
    told, best = tuple(errors[C] for C in Cs), min(Cs, key=lambda C: errors[C])
    if params.finish == "auto" and stands and learned_error < errors[best]:
        reason = f"better on held-out rows, {100 * learned_error:.2f} % error against {100 * errors[best]:.2f} % by MKL"
        calibration = fit_calibration(np.concatenate(learned), codes, source, weights)
        return Choice(own, False, reason, Cs, told, learned_error, calibration)
    reason = f"weighed by MKL; C = {best:g} by {100 * errors[best]:.2f} % error on held-out rows"
    found = [path.found[best] for path in paths if best in path.found]
    calibration = fit_calibration(np.concatenate(found), codes, source, weights) if len(found) == len(paths) else None
    return Choice(best, True, reason, Cs, told, learned_error, calibration)


def _search(error: Callable[[float], float]) -> dict[float, float]:
    """Errors for some of `CS`: for two in the middle, and onwards from the better one while the error decreases."""
    place = len(CS) // 2
    errors = {C: error(C) for C in CS[place - 1 : place + 1]}
    step, at = (1, place) if errors[CS[place]] < errors[CS[place - 1]] else (-1, place - 1)
    while 0 <= at + step < len(CS):
        errors[CS[at + step]] = error(CS[at + step])
        if errors[CS[at + step]] >= errors[CS[at]]:
            break
        at += step
    return errors


def balancing_C(problem: Problem, within: float) -> float:
    """The C for which no multiple of the learned machine has a smaller P: (sum |w|)^2 = sum C_i y_i f_i within the
    margin.

    `within` is the weighted sum of y f over the samples within the margin. If it is not positive, there is no such C,
    and 1 is returned.
    """
    start = problem.learned
    assert start is not None
    if problem.grid.family.local_bias <= 0:
        return 1.0
    norm = float(start.norms().sum())
    return float(np.clip(norm**2 / within, CS[0], CS[-1])) if within > 0 else 1.0


class MKLPath:
    """Machines of a trial for a sequence of C, each started from the solution for the nearest earlier C.

    With learned kernels, MKL uses only these here, without any scan. Otherwise, kernels of the grid are inserted until
    the gap is below a loose tolerance.
    """

    def __init__(self, trial: Trial, params: Params, resources: Resources, tol: float = LOOSE_TOL) -> None:
        self.trial, self.params, self.resources = trial, replace(params, tol=max(params.tol, tol)), resources
        self.states: dict[float, Any] = {}
        self.found: dict[float, Array] = {}  # scores of the held-out rows

    def scores(self, C: float) -> Array:
        """f of the held-out rows (rows, K) by the machine of this C."""
        problem = replace(self.trial.problem, C=C)
        machine = make_machine(problem, problem.signs, self.params, self.resources)
        assert isinstance(machine, SequentialMKL)
        state: Any = None
        if self.states:
            nearest = min(self.states, key=lambda before: abs(np.log(before / C)))
            state = machine.warm(self.states[nearest], nearest)
        elif problem.learned is not None:
            state = machine_start(machine, problem, slice(None), learned_margins(problem, self.resources.executor))
        self.states[C] = machine.reweighed(state) if problem.learned else _loosely_solved(machine, state)
        self.resources.poll()
        self.found[C] = _scores(problem, self.states[C], self.trial.rows)
        return self.found[C]


def _loosely_solved(machine: SequentialMKL, state: Any) -> Any:
    """The state after some rounds: at most as many as a typical training run takes."""
    for number, (after, certificate) in enumerate(machine.rounds(state), start=1):
        state = after
        if certificate.gap <= machine.settings.tol or number >= ROUNDS:
            break
    return state


def _scores(problem: Problem, state: Any, rows: Array) -> Array:
    """f of some rows by the machine of a state."""
    used = state.weights > 0
    kernels, support = problem.grid.take(state.active[used]), np.flatnonzero(state.duals.any(axis=1))
    signed = state.duals[support] * problem.signs[support]
    coef, local_coef = kernels.coefficients(problem.data.rows(support), signed, state.weights[used])
    return kernels.decide(rows, coef, local_coef)


def learned_scores(trial: Trial) -> Array:
    """f (rows, K) of the held-out rows by the learned machine."""
    assert trial.problem.learned is not None
    return trial.problem.learned.decide(trial.rows)


def held_out_trial(problem: Problem) -> Trial:
    """The trial of the rows that the descent has held out, and the problem without them."""
    assert problem.learned is not None
    held = problem.learned.held
    used = np.ones(problem.data.n_rows, dtype=bool)
    used[held] = False
    rows = np.flatnonzero(used)
    smaller = replace(
        problem,
        data=subset(problem.data, rows, "rows"),
        signs=problem.signs[rows],
        codes=problem.codes[rows],
        weights=None if problem.weights is None else problem.weights[rows],
    )
    values = problem.data.rows(held).astype(np.float64)
    return Trial(smaller, values, problem.codes[held], problem.row_weights[held])
