"""Trains the machines of one problem one after the other, each from its start to its certificate.

With shared weights there is one machine for all columns of the signs; otherwise there is one machine for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.mkl.algorithm2 import PaperState
from mllkm_scale.mkl.certificate import Certificate, Proof
from mllkm_scale.mkl.inner import InnerMKL
from mllkm_scale.mkl.restricted import Objective
from mllkm_scale.mkl.sequential import SequentialMKL
from mllkm_scale.mkl.state import State
from mllkm_scale.model.model import Model
from mllkm_scale.params import Params
from mllkm_scale.run.assembly import assemble
from mllkm_scale.run.checked_state import StateSizes, require_objective, require_state
from mllkm_scale.run.problem import Problem
from mllkm_scale.run.session import Resources
from mllkm_scale.run.strategy import make_machine, state_arrays, state_from_arrays
from mllkm_scale.run.tuning.choice import learned_margins, machine_start

__all__ = ["COLD", "Machines", "Start", "columns_of_machines"]


@dataclass(frozen=True)
class Start:
    """The end of another training run on the same data, from which the machines of a path start.

    With the same C, the problem is the same: a smaller `max_kernels` then starts from the kernels with the largest
    weights, and the bounds remain valid.
    """

    states: tuple[Any, ...] = ()
    C: float = 0.0
    proofs: tuple[Proof, ...] = ()


COLD = Start()


def columns_of_machines(problem: Problem, multi_class: str) -> list[slice]:
    """The columns of the signs of each machine."""
    return [slice(None)] if multi_class == "shared" else [slice(k, k + 1) for k in range(problem.signs.shape[1])]


class Machines:
    """The machines of a problem: their states, their objectives, and their bounds.

    `after_round` is called after a round, with its certificate and whether the machine continues from its state.
    """

    def __init__(
        self,
        problem: Problem,
        params: Params,
        resources: Resources,
        after_round: Callable[[Certificate, bool], None],
        start: Start = COLD,
    ) -> None:
        self.problem, self.params, self.resources = problem, params, resources
        self.after_round, self.start = after_round, start
        self.columns = columns_of_machines(problem, params.multi_class)
        self.states: list[Any] = []  # the last one may be in training
        self.objectives: list[Objective] = []  # certified by the last rounds
        self.proofs: list[Proof] = []  # of the machines that have ended
        self.likely_dual = np.inf  # at most this is proved by the duals of the last round of the machine in training
        self.inner_records: list[dict[str, Any]] = []  # forms and tile statistics of each machine

    @property
    def n_rounds(self) -> int:
        """Number of rounds of all machines."""
        return sum(state.round for state in self.states)

    @property
    def complete(self) -> bool:
        """Whether every machine has completed a round."""
        return len(self.states) == len(self.columns)

    def train(self) -> str:
        """Train all machines; return the first status other than "converged", if there is one."""
        statuses = [self.train_one(number) for number in range(len(self.columns))]
        return next((status for status in statuses if status != "converged"), "converged")

    def model(self, status: str) -> Model:
        """The model of the best machines so far."""
        total = Objective(sum(o.primal for o in self.objectives), sum(o.dual for o in self.objectives))
        return assemble(self.problem, self.states, total, self.params, status)

    def train_one(self, number: int) -> str:
        """Train one machine until its stopping rule or a limit; return the status."""
        signs = self.problem.signs[:, self.columns[number]]
        machine: Any = make_machine(self.problem, signs, self.params, self.resources)
        self.likely_dual = np.inf
        known = self.start.proofs[number] if self.start.proofs else None
        status, most = self.conclude(machine, number, self.improve(machine, number), known), self.params.max_kernels
        if most is not None:
            above = np.count_nonzero(self.states[number].machine.weights) > most
            if above or status == "max_kernels":
                self.shrink(machine, number)
                status = self.conclude(machine, number, "max_kernels", self.proofs[number])
        if isinstance(machine, SequentialMKL) and isinstance(machine.inner, InnerMKL):
            self.inner_records.append(machine.inner.record())
        return status

    def improve(self, machine: Any, number: int) -> str:
        """Rounds until the gap is small enough, a limit is reached, or there is no progress; return the status."""
        status = self.limit(number)
        if status is not None:
            return status
        for state, certificate in machine.rounds(self.begin(machine, number)):
            self.remember(number, state, certificate)
            self.after_round(certificate, True)
            status = self.limit(number)
            if status is not None:
                break
        return status or ("max_kernels" if machine.budget_spent(self.states[number]) else "precision")

    def shrink(self, machine: Any, number: int) -> None:
        """Keep the `max_kernels` largest weights of the best machine, and solve for these kernels again, to the
        tolerance."""
        fewer = machine.truncated(self.states[number], self.params.max_kernels)
        state, certificate = next(machine.rounds(fewer))
        self.remember(number, state, certificate)
        self.after_round(certificate, False)

    def begin(self, machine: Any, number: int) -> Any:
        """The initial state of a machine: from its checkpoint, another run, the learned machine, or nothing."""
        problem, start = self.problem, self.start
        if number < len(self.states):
            return self.states[number]
        if start.states and start.C == problem.C:
            return machine.truncated(start.states[number], self.params.max_kernels)
        if start.states:
            return machine.warm(start.states[number], start.C)
        if problem.learned is None or not isinstance(machine, SequentialMKL):
            return None
        margins = learned_margins(problem, self.resources.executor)
        return machine_start(machine, problem, self.columns[number], margins)

    def limit(self, number: int) -> str | None:
        """The limit that ends this machine now, if any."""
        if number >= len(self.states):
            return None
        if self.objectives[number].gap <= self.params.tol:
            return "converged"
        if self.params.max_rounds is not None and self.states[number].round >= self.params.max_rounds:
            return "max_rounds"
        return "time_limit" if self.resources.clock.is_over() else None

    def remember(self, number: int, state: Any, certificate: Certificate) -> None:
        """Record the state after a round."""
        self.states[number:] = [state]
        self.objectives[number:] = [Objective(certificate.primal, certificate.dual)]
        self.likely_dual = certificate.likely_dual

    def conclude(self, machine: Any, number: int, status: str, earlier: Proof | None = None) -> str:
        """Certify the last state by its duals, or by earlier ones that prove more; return the status."""
        state, objective = self.states[number], self.objectives[number]
        proofs = [Proof(objective.dual, state.proof)]
        may_prove_more = isinstance(state, State) and not state.scanned and self.likely_dual > objective.dual
        if earlier is not None:
            proofs.append(earlier)
        elif may_prove_more and status != "converged":
            proofs.append(machine.pricing.prove(state))
        proof = max(proofs, key=lambda proof: proof.dual)
        self.proofs[number:] = [proof]
        self.objectives[number] = replace(objective, dual=proof.dual)
        return "converged" if self.objectives[number].gap <= self.params.tol else status

    def arrays(self) -> dict[str, Array]:
        """The states, for a checkpoint."""
        arrays: dict[str, Array] = {}
        for k, state in enumerate(self.states):
            arrays |= state_arrays(state, f"machine{k}_")
        return arrays

    def restore(self, objectives: Sequence[Objective], arrays: Mapping[str, Array]) -> None:
        """Continue from the states of a checkpoint; a ValueError if they cannot belong to this problem."""
        if not 1 <= len(objectives) <= len(self.columns):
            raise ValueError(f"there are {len(objectives)} objectives of {len(self.columns)} machines")
        kind: type[Any] = PaperState if self.params.strategy == "paper" else State
        for k, objective in enumerate(objectives):
            signs = self.problem.signs[:, self.columns[k]]
            require_state(kind, arrays, f"machine{k}_", StateSizes.of(self.problem, signs.shape[1]))
            self.states.append(state_from_arrays(kind, arrays, f"machine{k}_"))
            require_objective(self.states[-1], objective, self.problem, signs, self.resources.executor)
        self.objectives = list(objectives)
