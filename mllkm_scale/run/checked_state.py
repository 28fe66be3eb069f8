"""Checks of the state of a checkpoint against its problem: an impossible state is refused.

Sizes, ids, the box of the duals and the simplex of the weights are checked for every state. The bounds of the best
machine are computed again once. P takes a pass over the samples. D itself would take a scan of all kernels, so it is
compared with the bound from the active kernels:

    D <= sum alpha - 1/2 max over the active m of q_m(alpha)

A new field of the state needs a line in `_SEQUENTIAL` or `_PAPER`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.executor import Executor
from mllkm_scale.base.schemas import conform_array
from mllkm_scale.kernels.picked_rows import PickedRows
from mllkm_scale.mkl.algorithm2 import PaperState
from mllkm_scale.mkl.certificate import Objective, Proof
from mllkm_scale.mkl.margins import decide_all
from mllkm_scale.mkl.state import Machine, State
from mllkm_scale.run.problem import Problem
from mllkm_scale.solver.box import Box

__all__ = ["StateSizes", "conform_duals", "require_end", "require_objective", "require_state"]


_ROUNDING = 1e-6  # allowed relative difference of recomputed values
_UNIT = 1e-6  # allowed difference of the sum of weights from 1


@dataclass(frozen=True)
class StateSizes:
    """The sizes that bound the fields of a state: samples, outputs, kernel ids and the box."""

    n: int
    K: int
    n_ids: int
    box: Box

    @classmethod
    def of(cls, problem: Problem, K: int) -> StateSizes:
        """The sizes of a machine on K columns of the signs."""
        return cls(problem.data.n_rows, K, len(problem.grid), problem.box)


Check = Callable[[Mapping[str, Array], str, StateSizes], object]


def _number(kind: str, least: float, most: float | None = None) -> Check:
    return lambda arrays, name, sizes: conform_array(arrays, name, kind, (), least=least, most=most)


def _flag(arrays: Mapping[str, Array], name: str, sizes: StateSizes) -> None:
    conform_array(arrays, name, "b", ())


def _bound(arrays: Mapping[str, Array], name: str, sizes: StateSizes) -> None:
    """A number that may be infinite."""
    value = arrays.get(name)
    if value is None or value.shape or value.dtype.kind != "f" or np.isnan(value):
        raise ValueError(f"the array {name} is no number")


def _ids(arrays: Mapping[str, Array], name: str, sizes: StateSizes) -> None:
    ids = conform_array(arrays, name, "i", (None,), least=0, most=sizes.n_ids - 1)
    if len(np.unique(ids)) < len(ids):
        raise ValueError(f"the array {name} names a kernel twice")


def _weights_of(ids: str) -> Check:
    def check(arrays: Mapping[str, Array], name: str, sizes: StateSizes) -> None:
        shape = arrays[name.rpartition("_")[0] + f"_{ids}" if "_" in name else ids].shape
        weights = conform_array(arrays, name, "f", shape, least=0.0)
        if len(weights) and abs(float(weights.sum()) - 1.0) > _UNIT:
            raise ValueError(f"the array {name} sums to {float(weights.sum()):g}, not to 1")

    return check


def _mask(arrays: Mapping[str, Array], name: str, sizes: StateSizes) -> None:
    conform_array(arrays, name, "b", (sizes.n, sizes.K))


def conform_duals(arrays: Mapping[str, Array], name: str, sizes: StateSizes) -> Array:
    """Duals (n, K) within their box, or a ValueError that names the array."""
    duals = conform_array(arrays, name, "f", (sizes.n, sizes.K), least=0.0)
    beyond = np.argwhere(duals > sizes.box.upper[:, None] * (1.0 + 1e-9))
    if len(beyond):
        row, column = beyond[0]
        raise ValueError(f"the array {name} holds {duals[row, column]:g}, more than {sizes.box.upper[row]:g}")
    return duals


_SEQUENTIAL: dict[str, Check] = {
    "round": _number("i", 0),
    "active": _ids,
    "weights": _weights_of("active"),
    "working": _mask,
    "duals": conform_duals,
    "inner_tol": _number("f", 0.0),
    "pool": _ids,
    "priced": _flag,
    "scanned": _flag,
    "left": _ids,
    "proof": conform_duals,
    "best_active": _ids,
    "best_weights": _weights_of("active"),
    "best_duals": conform_duals,
    "bound": _number("f", -np.finfo(float).max),
    "best_primal": _bound,
    "idle": _number("i", 0),
    "over_budget": _flag,
}

_PAPER: dict[str, Check] = {
    "round": _number("i", 0),
    "active": _ids,
    "weights": _weights_of("active"),
    "duals": conform_duals,
    "violators": _ids,
    "inner_tol": _number("f", 0.0),
    "value": _bound,
    "stalled": _flag,
}


def require_state(kind: type[Any], arrays: Mapping[str, Array], prefix: str, sizes: StateSizes) -> None:
    """Refuse wrong arrays of a state, whose names begin with `prefix`, by a ValueError that names the array.

    Missing fields with a default are accepted.
    """
    own = {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}
    try:
        for name, check in (_PAPER if kind is PaperState else _SEQUENTIAL).items():
            if name in own or not hasattr(kind, name):  # a field with a default is an attribute of its class
                check(own, name, sizes)
    except KeyError as error:
        raise ValueError(f"the array {error.args[0]} is missing") from None


def require_objective(state: Any, objective: Objective, problem: Problem, signs: Array, executor: Executor) -> None:
    """Refuse, by a ValueError, a P that differs from that of the machine, or a D that the duals cannot prove."""
    machine: Machine = state.machine
    if not np.isfinite(objective.primal):  # then D would be unbounded, too
        raise ValueError(f"P is said to be {objective.primal:g}")
    size = max(abs(objective.primal), 1e-300)
    if isinstance(state, State) and not (objective.primal == state.best_primal and objective.dual >= state.bound):
        raise ValueError(f"P {objective.primal:g} and D {objective.dual:g} are not those of its state")
    primal = _primal(machine, problem, signs, executor, shared_norm=isinstance(state, State))
    if not abs(primal - objective.primal) <= _ROUNDING * size:
        raise ValueError(f"P is said to be {objective.primal:g}, and is {primal:g}")
    most = _provable(state.proof, machine, problem, signs)
    if objective.dual > most + _ROUNDING * size and isinstance(state, State):
        most = max(most, _provable(state.duals, machine, problem, signs))
    if not objective.dual <= min(most, primal) + _ROUNDING * size:
        raise ValueError(f"D is said to be {objective.dual:g}, and its duals prove {min(most, primal):g} at most")


def require_end(state: Any, proof: Proof | None, problem: Problem, signs: Array, executor: Executor) -> None:
    """Refuse, by a ValueError, wrong values in the end of a training run from which another one starts."""
    if isinstance(state, State):
        require_objective(state, Objective(state.best_primal, state.bound), problem, signs, executor)
    if proof is not None:
        most = _provable(proof.duals, state.machine, problem, signs)
        if not proof.dual <= most + _ROUNDING * max(abs(most), 1e-300):
            raise ValueError(f"a proof is said to bound by {proof.dual:g}, and its duals prove {most:g} at most")


def _primal(machine: Machine, problem: Problem, signs: Array, executor: Executor, *, shared_norm: bool) -> float:
    """P over all samples: 1/2 (sum_m |w_m|)^2 + sum C_i hinge_i, or 1/2 sum_m |w_m|^2 / beta_m for given beta."""
    used = machine.weights > 0
    kernels, weights = problem.grid.take(machine.active[used]), machine.weights[used]
    rows = np.flatnonzero(machine.duals.any(axis=1))
    support, signed = PickedRows(problem.data, rows), machine.duals[rows] * signs[rows]
    forms = kernels.quadratic_forms(support, signed)
    coef, local_coef = kernels.coefficients(support, signed, weights)
    margins = signs * decide_all(problem.grid.family, problem.data, kernels, coef, local_coef, executor)
    norm = float(weights @ np.sqrt(forms)) ** 2 if shared_norm else float(weights @ forms)
    return 0.5 * norm + problem.box.loss(margins)


def _provable(duals: Array, machine: Machine, problem: Problem, signs: Array) -> float:
    """The largest D that duals (n, K) can prove, given the active kernels only."""
    rows = np.flatnonzero(duals.any(axis=1))
    if not len(rows) or not len(machine.active):
        return float(duals.sum())
    kernels = problem.grid.take(machine.active)
    forms = kernels.quadratic_forms(PickedRows(problem.data, rows), duals[rows] * signs[rows])
    return float(duals.sum() - 0.5 * forms.max())
