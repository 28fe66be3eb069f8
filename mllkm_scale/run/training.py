"""One training under way: its machines in turn, from where they start to what is proved of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.events import Finished, Listener, Notice, Phase, Round
from mllkm_scale.base.executor import Executor, ThreadExecutor
from mllkm_scale.base.memory import peak_bytes
from mllkm_scale.base.schemas import TrainingHeader
from mllkm_scale.base.threads import Threads
from mllkm_scale.base.units import format_bytes
from mllkm_scale.base.version import __version__
from mllkm_scale.base.wording import percent
from mllkm_scale.data import Dataset, check
from mllkm_scale.data.first_step import FirstStep
from mllkm_scale.errors import InterruptedTraining, MLLKMError, ParameterError
from mllkm_scale.learn.proposals import Keeper, NothingKept
from mllkm_scale.learn.start import LearnedRecord
from mllkm_scale.mkl.algorithm2 import PaperState
from mllkm_scale.mkl.certificate import Certificate, Proof
from mllkm_scale.mkl.inner import InnerMKL
from mllkm_scale.mkl.margins import NearMargin
from mllkm_scale.mkl.restricted import Objective
from mllkm_scale.mkl.sequential import SequentialMKL
from mllkm_scale.mkl.state import State
from mllkm_scale.model.calibration import Calibration
from mllkm_scale.model.model import Model
from mllkm_scale.params import Params
from mllkm_scale.plan.contenders import contenders
from mllkm_scale.plan.training import Plan
from mllkm_scale.run.advice import advice_on_end
from mllkm_scale.run.assembly import assemble, assemble_learned, plain_params, profile_of
from mllkm_scale.run.calibrating import CrossFit
from mllkm_scale.run.checked_state import StateSizes, require_objective, require_state
from mllkm_scale.run.checkpoint import fitting, load_checkpoint, save_checkpoint
from mllkm_scale.run.choice import ALL_FOLDS_ROWS, Choice, choose, learned_margins, learned_near_margin, machine_start
from mllkm_scale.run.compact import compacted
from mllkm_scale.run.folder import RunFolder
from mllkm_scale.run.folds import Trial, folds_of, make_trial
from mllkm_scale.run.learning_file import LearningFile
from mllkm_scale.run.problem import Problem, build_problem
from mllkm_scale.run.records import Finalizer, cluster_record, round_event
from mllkm_scale.run.selection import Selection, load_selection, select
from mllkm_scale.run.strategy import make_machine, make_pricing, state_arrays, state_from_arrays

if TYPE_CHECKING:
    from mllkm_scale.model.evaluation import Evaluation

__all__ = ["COLD", "Proof", "Start", "TrainResult", "Training"]


@dataclass(frozen=True)
class Start:
    """The end of another training on the same data, from which the machines of a path begin.

    With the same C the problem is the same: a smaller `max_kernels` then keeps the heaviest kernels to begin with, and
    what was proved before holds on.
    """

    states: tuple[Any, ...] = ()
    C: float = 0.0
    proofs: tuple[Proof, ...] = ()


COLD = Start()


@dataclass(frozen=True)
class SupportDuals:
    """Duals (n, K) that are zero but in some rows."""

    n_rows: int
    rows: Array
    values: Array  # (len(rows), K)

    def among(self, n_rows: int, kept: Array | None) -> SupportDuals:
        """As duals of more rows, of which these rows have the numbers `kept`; None for the same rows."""
        return self if kept is None else SupportDuals(n_rows, kept[self.rows], self.values)

    def dense(self) -> Array:
        """All of them."""
        duals = np.zeros((self.n_rows, self.values.shape[1]))
        duals[self.rows] = self.values
        return duals


@dataclass(frozen=True, repr=False)
class TrainResult:
    """A model, the duals whose value is the D of its certificate, and how it came about.

    `evaluation` is that on the test rows, None if none were given.
    """

    model: Model
    support_duals: SupportDuals
    history: tuple[Round, ...]
    status: str
    plan: Plan
    peak_bytes: int
    evaluation: Evaluation | None = None

    @property
    def duals(self) -> Array:
        """The duals (n, K), from 0 to C_i."""
        return self.support_duals.dense()

    def __repr__(self) -> str:
        error = "" if self.evaluation is None else f", test error {percent(self.evaluation.error)}"
        memory = f"peak memory {format_bytes(self.peak_bytes)} of {format_bytes(self.plan.budget_bytes)}"
        return f"TrainResult({self.model!r}, {len(self.history)} rounds, {memory}{error})"


class Training:
    """One training under way: its machines in turn, their limits, checkpoints and events."""

    def __init__(
        self,
        params: Params,
        plan: Plan,
        threads: Threads,
        listener: Listener,
        folder: RunFolder | None,
        should_stop: Callable[[], bool] | None,
        finalizer: Finalizer,
        step: FirstStep | None = None,
    ) -> None:
        self.params, self.plan, self.threads, self.folder = params, plan, threads, folder
        self.listener, self.should_stop, self.finalizer = listener, should_stop, finalizer
        self.step = step  # that made the features of the data set
        self.executor: Executor = ThreadExecutor(threads, self.poll)
        self.start = COLD
        self.worker_peak_bytes = 0
        self.started = time.perf_counter()
        self.elapsed_before = 0.0
        self.history: list[Round] = []
        self.states: list[Any] = []  # of the machines, the last one perhaps under way
        self.inner_records: list[dict[str, Any]] = []  # forms and tile statistics of each machine
        self.objectives: list[Objective] = []  # certified by their last rounds
        self.proofs: list[Proof] = []  # of the machines that have ended
        self.finish_asked_for = params.finish  # a selection may settle it
        self.selection: Selection | None = None  # of settings that were left open
        self.choice: Choice | None = None  # how learned kernels are gone on with
        self.calibrates = True
        self.calibration: Calibration | None = None
        self.learned: LearnedRecord | None = None
        self._n_learned = 0  # candidates that were learned; theirs are the first ids
        self._begun = self._keeps_descent = False

    def run(self, dataset: Dataset, resume: bool) -> TrainResult:
        def keeping(fingerprint: str, seed: int) -> Keeper:
            self.begin_folder(dataset, resume)
            if self.folder is None:
                return NothingKept()
            self._keeps_descent = True
            file = LearningFile(self.folder.learning, fingerprint, seed, resume)
            state = file.load()
            self.folder.epochs.cut(0 if state is None else state.place.epoch)
            return file

        self.settle(dataset, resume)
        problem = build_problem(
            dataset,
            self.params,
            self.plan,
            self.listener,
            self.executor,
            self.poll,
            self.threads,
            keeping,
            self.out_of_time,
        )
        try:
            return self.run_on(problem, dataset, resume)
        finally:
            problem.close()

    def settle(self, dataset: Dataset, resume: bool) -> None:
        """Let settings compete that the parameters leave open, and go on with the one that wins."""
        if self.params.max_bytes is not None:
            if self.step is not None:
                raise ParameterError(
                    "max_bytes is for rows of numbers as they are, because a device has no text, missing values or"
                    ' reduction: encode these columns as numbers, give reduction="none", or train without max_bytes'
                )
            compact = compacted(dataset, self.params, self.plan, self.threads, self.listener, self.poll)
            self.params = replace(compact, max_bytes=None)
        rivals = contenders(self.params, dataset.n_rows)
        if resume and self.folder is not None:
            unbounded = contenders(replace(self.params, max_kernels=None), dataset.n_rows)
            self.selection = load_selection(self.folder.selection, unbounded)
        if self.selection is None and len(rivals) == 1:
            self.params = rivals[0]
            return
        if self.selection is None:
            check(dataset)  # whole, so that rows are named by their numbers in it
            self.selection = select(
                dataset, rivals, self.plan, self.threads, self.listener, self.poll, self.out_of_time
            )
        if self.selection is None:  # nothing to go by: the plainest contender
            self.params = rivals[-1]
            return
        self.begin_folder(dataset, resume)
        if self.folder is not None:
            self.folder.write_json(self.folder.selection.name, self.selection.as_dict())
        self.params = self.selection.settled(self.params)

    def begin_folder(self, dataset: Dataset, resume: bool) -> None:
        """Once the training is sure to begin: remove what an earlier one has left, and say what this one is."""
        if self.folder is None or resume or self._begun:
            return
        self._begun = True
        self.folder.clear()
        self.folder.write_json("plan.json", self.plan.as_dict())
        self.folder.write_json("run.json", self.record(dataset))

    def run_on(self, problem: Problem, dataset: Dataset, resume: bool) -> TrainResult:
        """Train on a problem that was built of the data set, and which stays open."""
        self.begin_folder(dataset, resume)
        if resume and (self.folder is None or self.folder.checkpoint.exists()):
            self.restore(problem)
        if problem.learned is not None:
            self.learned, self._n_learned = problem.learned_record, len(problem.learned.kernels)
        if problem.learned is not None and not self.start.states:
            weighed = self.choice is not None and self.choice.mkl
            near = None if weighed else learned_near_margin(problem, self.plan, self.executor)
            if self.choice is None:
                assert near is not None
                self.choice = self.choose(problem, dataset, near.within)
                if self.folder is not None:
                    self.folder.write_json("run.json", self.record(dataset))
            problem = replace(problem, C=self.choice.C)
            if not self.choice.mkl:
                assert near is not None
                return self.leave_as_learned(problem, dataset, near)
        if self.calibration is None:
            self.calibration = self.calibrate(problem, dataset, mkl=True)
        self.listener(Phase("train", f"{problem.grid.n_open} open kernels, {problem.signs.shape[1]} outputs"))
        try:
            statuses = [self.train_machine(problem, k) for k in range(len(self.columns(problem)))]
        except InterruptedTraining as error:
            error.result = self.unfinished(problem)
            raise
        status = next((s for s in statuses if s != "converged"), "converged")
        model = self.machine(problem, status)
        model = replace(model, calibration=self.calibration, profile=profile_of(problem, model))
        duals = np.concatenate([proof.duals for proof in self.proofs], axis=1)
        rows = np.flatnonzero(duals.any(axis=1))
        return self.finish(dataset, model, SupportDuals(len(duals), rows, duals[rows]), status)

    def choose(self, problem: Problem, dataset: Dataset, within: float) -> Choice:
        """With which C the learned kernels are weighed, if they are; after the time limit, only if it was asked for."""
        quiet = partial(
            build_problem,
            params=replace(self.params, C=1.0),
            plan=self.plan,
            listener=lambda event: None,
            executor=self.executor,
            poll=self.poll,
            threads=self.threads,
        )
        self.listener(Phase("choose", f"C={self.params.C}, finish={self.params.finish}"))
        _, codes = dataset.label_codes()

        def trials() -> Iterator[Trial]:
            return (make_trial(dataset, codes, fold, quiet) for fold in folds_of(codes, problem.seed, ALL_FOLDS_ROWS))

        late = self.out_of_time() and self.params.finish == "auto" and problem.grid.family.local_bias > 0
        params = replace(self.params, finish="none") if late else self.params
        choice = choose(problem, within, trials, params, self.plan, self.threads, self.executor, self.poll)
        if self.params.finish != self.finish_asked_for:
            best = "the best of the settings on held-out rows"
            choice = replace(choice, reason=f"weighed by MKL; {best}" if choice.mkl else best)
        if late:
            choice = replace(choice, reason="the time limit was over before MKL")
        self.listener(Notice(choice.reason))
        return choice

    def leave_as_learned(self, problem: Problem, dataset: Dataset, near: NearMargin) -> TrainResult:
        """The learned machine as the model, with its P, and the best D of duals that its margins give."""
        self.listener(Phase("certify", f"{problem.grid.n_open} open kernels"))
        pricing = make_pricing(problem, self.params, self.plan, self.threads, self.executor)
        proof = pricing.proof_of_margins(near)
        model = assemble_learned(problem, near.hinge, proof.dual, self.params)
        calibration = self.calibrate(problem, dataset, mkl=False)
        model = replace(model, calibration=calibration, profile=profile_of(problem, model))
        return self.finish(dataset, model, SupportDuals(problem.data.n_rows, near.rows, proof.duals), "learned")

    def calibrate(self, problem: Problem, dataset: Dataset, *, mkl: bool) -> Calibration | None:
        """By the scores of rows that were held out to choose by, or else of rows that are held out for it alone."""
        if not self.calibrates:
            return None
        if self.choice is not None and self.choice.calibration is not None:
            return self.choice.calibration
        held_by_descent = problem.learned is not None and len(problem.learned.held) > 0
        if self.selection is not None and self.selection.calibration is not None and not held_by_descent:
            return self.selection.calibration
        fit = CrossFit(problem, dataset, self.params, self.plan, self.threads, self.executor, self.poll)
        if fit.costs and self.out_of_time():
            self.listener(Notice("no probabilities: the time limit was over before the calibration"))
            return None
        self.listener(Phase("calibrate", fit.rows_in_words))
        try:
            found = fit.calibration(mkl)
        except InterruptedTraining:
            raise
        except MLLKMError as error:  # a model without probabilities is better than none
            self.listener(Notice(f"no probabilities: a part of the rows could not be trained on ({error})"))
            return None
        if found is None:
            self.listener(Notice("no probabilities: there are too few rows to hold some out"))
        return found

    def columns(self, problem: Problem) -> list[Array]:
        """Signs of each machine: all columns together (shared weights), or one machine a column."""
        if self.params.multi_class == "shared":
            return [problem.signs]
        return [problem.signs[:, [k]] for k in range(problem.signs.shape[1])]

    def train_machine(self, problem: Problem, number: int) -> str:
        """Rounds of one machine until its stopping rule or a limit; returns by which it ended."""
        signs = self.columns(problem)[number]
        machine: Any = make_machine(problem, signs, self.params, self.plan, self.threads, self.executor, self.poll)
        known = self.start.proofs[number] if self.start.proofs else None
        status, most = (
            self.conclude(machine, number, self.improve(machine, number, problem), known),
            self.params.max_kernels,
        )
        if most is not None and (
            status == "max_kernels" or np.count_nonzero(self.states[number].machine.weights) > most
        ):
            self.shrink(machine, number, self.states[number], problem)
            status = self.conclude(machine, number, "max_kernels", self.proofs[number])
        if isinstance(machine, SequentialMKL) and isinstance(machine.inner, InnerMKL):
            self.inner_records.append(machine.inner.record())
        return status

    def improve(self, machine: Any, number: int, problem: Problem) -> str:
        """Rounds until the gap is small enough, a limit, or nothing helps any more; returns by which they ended."""
        status = self.limit(number)
        if status is not None:
            return status
        for after, certificate in machine.rounds(self.begin(machine, number, problem)):
            self.remember(number, after, certificate)
            self.report(problem, certificate)
            self.checkpoint(problem)
            status = self.limit(number)
            if status is not None:
                break
        return status or ("max_kernels" if machine.budget_spent(self.states[number]) else "precision")

    def shrink(self, machine: Any, number: int, state: Any, problem: Problem) -> None:
        """Keep the heaviest `max_kernels` of the best machine, and solve for them once more, to the tolerance."""
        after, certificate = next(machine.rounds(machine.truncated(state, self.params.max_kernels)))
        self.remember(number, after, certificate)
        self.report(problem, certificate)

    def begin(self, machine: Any, number: int, problem: Problem) -> Any:
        """Where a machine goes on from: its checkpoint, the end of another, the learned machine, or nothing."""
        if number < len(self.states):
            return self.states[number]
        if self.start.states and self.start.C == problem.C:
            return machine.truncated(self.start.states[number], self.params.max_kernels)
        if self.start.states:
            return machine.warm(self.start.states[number], self.start.C)
        if problem.learned is None or not isinstance(machine, SequentialMKL):
            return None
        shared = self.params.multi_class == "shared"
        columns = slice(None) if shared else slice(number, number + 1)
        return machine_start(machine, problem, columns, learned_margins(problem, self.executor))

    def conclude(self, machine: Any, number: int, status: str, earlier: Proof | None = None) -> str:
        """Certify the last state by the duals that it knows, or by earlier ones that prove more; returns its status."""
        state, objective = self.states[number], self.objectives[number]
        proofs = [Proof(objective.dual, state.proof)]
        if earlier is not None:
            proofs.append(earlier)
        elif isinstance(state, State) and not state.scanned and status != "converged":
            proofs.append(machine.pricing.prove(state))
        proof = max(proofs, key=lambda proof: proof.dual)
        self.proofs[number:] = [proof]
        self.objectives[number] = replace(objective, dual=proof.dual)
        return "converged" if self.objectives[number].gap <= self.params.tol else status

    def limit(self, number: int) -> str | None:
        """The rule by which this machine is to end now, if any."""
        if number >= len(self.states):
            return None
        if self.objectives[number].gap <= self.params.tol:
            return "converged"
        if self.params.max_rounds is not None and self.states[number].round >= self.params.max_rounds:
            return "max_rounds"
        return "time_limit" if self.out_of_time() else None

    def out_of_time(self) -> bool:
        """Whether the time limit is over."""
        return self.params.time_limit is not None and self.elapsed_s() >= self.params.time_limit

    def remember(self, number: int, state: Any, certificate: Objective) -> None:
        self.states[number:] = [state]
        self.objectives[number:] = [Objective(certificate.primal, certificate.dual)]

    def elapsed_s(self) -> float:
        return self.elapsed_before + time.perf_counter() - self.started

    def poll(self) -> None:
        """Called often while a round is under way."""
        if self.should_stop is not None and self.should_stop():
            done = sum(state.round for state in self.states)
            kept = "what was learned so far is kept" if self._keeps_descent else "no round had ended"
            if self.folder and done:
                kept = f"the checkpoint of round {done} is kept"
            raise InterruptedTraining(f"training was interrupted: {kept}")

    def report(self, problem: Problem, certificate: Certificate) -> None:
        tally = self.executor.tally()
        self.worker_peak_bytes = max(self.worker_peak_bytes, tally.peak_bytes)
        sizes = problem.grid.n_open, self.plan.budget_bytes
        event = round_event(self.history, certificate, tally, sizes, self.elapsed_s(), self.params.tol)
        if len(self.states) == len(self.columns(problem)):  # all machines are there
            error = self.finalizer.round_error(event.number, lambda: self.machine(problem, "interrupted"))
            event = replace(event, held_error=error)
        self.history.append(event)
        self.listener(self.history[-1])

    def unfinished(self, problem: Problem) -> TrainResult | None:
        """The machines as far as they are, once each has ended a round; their model is in the folder, too."""
        if len(self.states) < len(self.columns(problem)):
            return None
        model = replace(self.machine(problem, "interrupted"), calibration=self.calibration)
        whole = model if self.step is None else model.behind(self.step)
        if self.folder is not None:
            whole.save(self.folder.model)
        duals = np.concatenate([state.machine.duals for state in self.states], axis=1)
        rows = np.flatnonzero(duals.any(axis=1))
        support = SupportDuals(len(duals), rows, duals[rows])
        return TrainResult(whole, support, tuple(self.history), "interrupted", self.plan, peak_bytes())

    def machine(self, problem: Problem, status: str) -> Model:
        """The model of the best machines so far."""
        total = Objective(sum(o.primal for o in self.objectives), sum(o.dual for o in self.objectives))
        return assemble(problem, self.states, total, self.params, status)

    def checkpoint(self, problem: Problem) -> None:
        if self.folder is None:
            return
        arrays: dict[str, Array] = {}
        for k, state in enumerate(self.states):
            arrays |= state_arrays(state, f"machine{k}_")
        header = {
            "seed": problem.seed,
            "elapsed_s": self.elapsed_s(),
            "objectives": [[o.primal, o.dual] for o in self.objectives],
            "choice": None if self.choice is None else self.choice.as_dict(),
            "calibration": None if self.calibration is None else self.calibration.as_dict(),
        }
        save_checkpoint(
            self.folder.checkpoint,
            fingerprint=problem.fingerprint,
            round=len(self.history),
            header=header,
            arrays=arrays,
        )

    def restore(self, problem: Problem) -> None:
        """Take up the states, certificates and history of the checkpoint."""
        assert self.folder is not None
        path = self.folder.checkpoint
        header, arrays = load_checkpoint(path, problem.fingerprint, TrainingHeader)
        kind = PaperState if self.params.strategy == "paper" else State
        self.objectives = [Objective(*pair) for pair in header["objectives"]]
        with fitting(path):
            if header.get("choice") is not None:
                self.choice = Choice.from_dict(header["choice"])
            self.calibration = Calibration.from_dict(header.get("calibration"))
            self.states = self.checked_states(problem, kind, arrays)
        self.history = list(self.folder.cut_history(header["round"]))
        self.elapsed_before = header["elapsed_s"]

    def checked_states(self, problem: Problem, kind: type[Any], arrays: Mapping[str, Array]) -> list[Any]:
        """The states of a checkpoint, once they are known to be such of this problem; a ValueError if they are not."""
        columns = self.columns(problem)
        if not 1 <= len(self.objectives) <= len(columns):
            raise ValueError(f"there are {len(self.objectives)} objectives of {len(columns)} machines")
        problem = problem if self.choice is None else replace(problem, C=self.choice.C)
        states = []
        for k, (objective, signs) in enumerate(zip(self.objectives, columns, strict=False)):
            require_state(kind, arrays, f"machine{k}_", StateSizes.of(problem, signs.shape[1]))
            states.append(state_from_arrays(kind, arrays, f"machine{k}_"))
            require_objective(states[-1], objective, problem, signs, self.executor)
        return states

    def finish(self, dataset: Dataset, model: Model, duals: SupportDuals, status: str) -> TrainResult:
        peak = peak_bytes()
        finished = Finished(
            status=status,
            gap=model.certificate.gap,
            tol=self.params.tol,
            n_kernels=len(model.gammas),
            n_rounds=len(self.history),
            peak_bytes=peak,
            budget_bytes=self.plan.budget_bytes,
            elapsed_s=self.elapsed_s(),
            reason="" if self.choice is None else self.choice.reason,
        )
        whole = model if self.step is None else model.behind(self.step)
        if self.folder is not None:
            whole.save(self.folder.model)
            self.folder.write_json("run.json", self.record(dataset, model, finished))
        evaluation = self.finalizer.measure(model, self.folder, self.listener, self.params.n_jobs, self.step)
        self.finalizer.draw(whole, self.folder, self.listener)
        for advice in advice_on_end(status, finished.gap, finished.tol):
            self.listener(advice)
        self.listener(finished)
        return TrainResult(whole, duals, tuple(self.history), status, self.plan, peak, evaluation)

    def record(self, dataset: Dataset, model: Model | None = None, finished: Finished | None = None) -> dict[str, Any]:
        """What run.json holds, of a training that begins or of one that has ended."""
        return {
            "version": __version__,
            "data": self.finalizer.data_record(dataset),
            "parameters": plain_params(self.params),
            "C": None if model is None else model.certificate.params["C"],
            "local_bias": None if model is None else model.family.local_bias,
            "plan": self.plan.as_dict(),
            "selection": None if self.selection is None else self.selection.as_dict(),
            "choice": None if self.choice is None else self.choice.as_dict(),
            "learned": self.learned_dict(model),
            "inner": self.inner_records,
            "cluster": cluster_record(self.history, self.worker_peak_bytes, self.plan.worker_bytes()),
            "result": None if finished is None else vars(finished),
        }

    def learned_dict(self, model: Model | None) -> dict[str, Any] | None:
        """What run.json says of the learned kernels; how many the model has of them, once there is one."""
        if self.learned is None:
            return None
        if model is None:
            return self.learned.as_dict(None, None)
        used = [state.machine.active for state in self.states]
        others = int(np.count_nonzero(np.unique(np.concatenate(used)) >= self._n_learned)) if used else 0
        return self.learned.as_dict(len(model.gammas) - others, others)
