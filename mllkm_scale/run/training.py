"""A training run: its stages in order, its folder with checkpoints and records, and its events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from mllkm_scale.base.events import Finished, Listener, Notice, Phase, Round
from mllkm_scale.base.executor import Executor, ThreadExecutor
from mllkm_scale.base.memory import peak_bytes
from mllkm_scale.base.schemas import TrainingHeader
from mllkm_scale.base.threads import Threads
from mllkm_scale.base.version import __version__
from mllkm_scale.data import Dataset
from mllkm_scale.data.checks import DataSummary
from mllkm_scale.data.first_step import FirstStep
from mllkm_scale.errors import InterruptedTraining, MLLKMError, ParameterError
from mllkm_scale.learn.proposals import Keeper, NothingKept
from mllkm_scale.learn.start import LearnedRecord
from mllkm_scale.mkl.certificate import Certificate
from mllkm_scale.mkl.margins import NearMargin
from mllkm_scale.mkl.restricted import Objective
from mllkm_scale.model.calibration import Calibration
from mllkm_scale.model.model import Model
from mllkm_scale.params import Params
from mllkm_scale.plan.contenders import contenders
from mllkm_scale.plan.training import Plan
from mllkm_scale.run.advice import advice_on_end
from mllkm_scale.run.assembly import assemble_learned, plain_params, profile_of
from mllkm_scale.run.checkpoint import fitting, load_checkpoint, save_checkpoint
from mllkm_scale.run.folder import RunFolder
from mllkm_scale.run.learning_file import LearningFile
from mllkm_scale.run.machines import COLD, Machines
from mllkm_scale.run.problem import Problem, build_problem, check_by
from mllkm_scale.run.records import Finalizer, cluster_record, round_event
from mllkm_scale.run.result import SupportDuals, TrainResult
from mllkm_scale.run.session import Clock, Resources
from mllkm_scale.run.strategy import make_pricing
from mllkm_scale.run.tuning.calibrating import CrossFit
from mllkm_scale.run.tuning.choice import ALL_FOLDS_ROWS, Choice, choose, learned_near_margin
from mllkm_scale.run.tuning.compact import compacted, load_compacted
from mllkm_scale.run.tuning.folds import Trial, folds_of, make_trial
from mllkm_scale.run.tuning.selection import Selection, load_selection, select

__all__ = ["Training"]


class Training:
    """A training run; `run` is all of it, and `run_on` the part after the problem is built."""

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
        self.params, self.plan, self.folder = params, plan, folder
        self.listener, self.should_stop, self.finalizer = listener, should_stop, finalizer
        self.step = step  # the step that made the features of the data set
        self.clock = Clock(params.time_limit)
        own = ThreadExecutor(threads, self.poll)
        self.resources = Resources(plan, threads, own, listener, self.poll, self.clock)
        self.start = COLD
        self.machines: Machines | None = None  # set when the problem is known
        self.worker_peak_bytes = 0
        self.history: list[Round] = []
        self.finish_asked_for = params.finish  # a selection may change `params.finish`
        self.selection: Selection | None = None  # of settings that were "auto"
        self.summary: DataSummary | None = None  # of the data, after the check
        self.chosen: dict[str, int] = {}  # with `max_bytes`: the bits of the constants, and the limit
        self.choice: Choice | None = None  # of C, and whether MKL follows the descent
        self.calibrates = True
        self.calibration: Calibration | None = None
        self.calibration_of_choice: Calibration | None = None  # from the held-out rows of a choice
        self.learned: LearnedRecord | None = None
        self._n_learned = 0  # number of learned candidates, which have the first ids
        self._begun = self._keeps_descent = False

    def work_on(self, executor: Executor) -> None:
        """Use this executor for the passes, such as the workers of a cluster."""
        self.resources = replace(self.resources, executor=executor)

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
        problem = build_problem(dataset, self.params, self.resources, keeping=keeping, summary=self.summary)
        try:
            return self.run_on(problem, dataset, resume)
        finally:
            problem.close()

    def settle(self, dataset: Dataset, resume: bool) -> None:
        """Compare the settings that the parameters leave open, and continue with the best one."""
        if self.params.max_bytes is not None:
            if self.step is not None:
                raise ParameterError(
                    "max_bytes is for rows of numbers as they are, because a device has no text, missing values or"
                    ' reduction: encode these columns as numbers, give reduction="none", or train without max_bytes'
                )
            found = load_compacted(self.folder.size, self.params) if resume and self.folder is not None else None
            if found is None:
                found = compacted(dataset, self.params, self.resources)
                self.begin_folder(dataset, resume)
                if self.folder is not None:
                    self.folder.write_json(self.folder.size.name, found.as_dict())
            self.params, self.chosen, self.calibration_of_choice = found.params, asdict(found.limit), found.calibration
        sizes = dataset.n_rows, self.resources.plan.sizes.n_signs
        rivals = contenders(self.params, *sizes)
        if resume and self.folder is not None:
            unbounded = contenders(replace(self.params, max_kernels=None), *sizes)
            self.selection = load_selection(self.folder.selection, unbounded)
        if self.selection is None and len(rivals) == 1:
            self.params = rivals[0]
            return
        if self.selection is None:
            # Checked before rows are selected, so that messages have the right row numbers.
            self.listener(Phase("check", dataset.name))
            self.summary = check_by(dataset, self.resources)
            self.selection = select(dataset, rivals, self.resources)
        if self.selection is None:  # no comparison was possible: the first contender
            self.params = rivals[-1]
            return
        self.begin_folder(dataset, resume)
        if self.folder is not None:
            self.folder.write_json(self.folder.selection.name, self.selection.as_dict())
        self.params, self.calibration_of_choice = self.selection.settled(self.params), self.selection.calibration

    def begin_folder(self, dataset: Dataset, resume: bool) -> None:
        """When training begins: remove the files of an earlier run, and write the record of this one."""
        if self.folder is None or resume or self._begun:
            return
        self._begun = True
        self.folder.clear()
        self.folder.write_json("plan.json", self.plan.as_dict())
        self.folder.write_json("run.json", self.record(dataset))

    def run_on(self, problem: Problem, dataset: Dataset, resume: bool) -> TrainResult:
        """Train on a problem that was built from the data set; the problem stays open."""
        self.begin_folder(dataset, resume)
        if resume and (self.folder is None or self.folder.checkpoint.exists()):
            self.restore(problem)
        if problem.learned is not None:
            self.learned, self._n_learned = problem.learned_record, len(problem.learned.kernels)
        if problem.learned is not None and not self.start.states:
            weighed = self.choice is not None and self.choice.mkl
            near = None
            if not weighed:
                self.listener(Phase("margins", f"{problem.data.n_rows:,} rows"))
                near = learned_near_margin(problem, self.resources)
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
        machines = self.machines = self.machines or self.machines_of(problem)
        try:
            status = machines.train()
        except InterruptedTraining as error:
            error.result = self.unfinished(machines)
            raise
        model = machines.model(status)
        model = replace(model, calibration=self.calibration, profile=profile_of(problem, model))
        return self.finish(dataset, model, SupportDuals.of([proof.duals for proof in machines.proofs]), status)

    def machines_of(self, problem: Problem) -> Machines:
        """The machines of a problem, whose rounds are saved and reported."""

        def after_round(certificate: Certificate, goes_on: bool) -> None:
            self.report(machines, certificate)
            if goes_on:
                self.checkpoint(machines)

        machines = Machines(problem, self.params, self.resources, after_round, self.start)
        return machines

    def choose(self, problem: Problem, dataset: Dataset, within: float) -> Choice:
        """The choice of C, and whether MKL follows the descent; after the time limit, it does so only if requested."""
        build = partial(build_problem, params=replace(self.params, C=1.0), resources=self.resources.quiet())
        self.listener(Phase("choose", f"C={self.params.C}, finish={self.params.finish}"))
        _, codes = dataset.label_codes()

        def trials() -> Iterator[Trial]:
            return (make_trial(dataset, codes, fold, build) for fold in folds_of(codes, problem.seed, ALL_FOLDS_ROWS))

        late = self.clock.is_over() and self.params.finish == "auto" and problem.grid.family.local_bias > 0
        params = replace(self.params, finish="none") if late else self.params
        choice = choose(problem, within, trials, params, self.resources)
        if self.params.finish != self.finish_asked_for:
            best = "the best of the settings on held-out rows"
            choice = replace(choice, reason=f"weighed by MKL; {best}" if choice.mkl else best)
        if late:
            choice = replace(choice, reason="the time limit was over before MKL")
        self.listener(Notice(choice.reason))
        return choice

    def leave_as_learned(self, problem: Problem, dataset: Dataset, near: NearMargin) -> TrainResult:
        """The learned machine as the model, with its P, and the best D for duals from its margins."""
        self.listener(Phase("certify", f"{problem.grid.n_open} open kernels"))
        proof = make_pricing(problem, self.params, self.resources).proof_of_margins(near)
        model = assemble_learned(problem, near.hinge, proof.dual, self.params, self.chosen)
        calibration = self.calibrate(problem, dataset, mkl=False)
        model = replace(model, calibration=calibration, profile=profile_of(problem, model))
        return self.finish(dataset, model, SupportDuals(problem.data.n_rows, near.rows, proof.duals), "learned")

    def calibrate(self, problem: Problem, dataset: Dataset, *, mkl: bool) -> Calibration | None:
        """The calibration by the scores of rows held out for a choice, or of rows held out for the calibration only."""
        if not self.calibrates:
            return None
        if self.choice is not None and self.choice.calibration is not None:
            return self.choice.calibration
        held_by_descent = problem.learned is not None and len(problem.learned.held) > 0
        if self.calibration_of_choice is not None and not held_by_descent:
            return self.calibration_of_choice
        fit = CrossFit(problem, dataset, self.params, self.resources)
        if fit.costs and self.clock.is_over():
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

    def poll(self) -> None:
        """Called often during a round."""
        if self.should_stop is not None and self.should_stop():
            done = 0 if self.machines is None else self.machines.n_rounds
            kept = "what was learned so far is kept" if self._keeps_descent else "no round had ended"
            if self.folder and done:
                kept = f"the checkpoint of round {done} is kept"
            raise InterruptedTraining(f"training was interrupted: {kept}")

    def report(self, machines: Machines, certificate: Certificate) -> None:
        """Report a round, with the error on test rows if requested."""
        tally = self.resources.executor.tally()
        self.worker_peak_bytes = max(self.worker_peak_bytes, tally.peak_bytes)
        sizes = machines.problem.grid.n_open, self.plan.budget_bytes
        event = round_event(self.history, certificate, tally, sizes, self.clock.elapsed_s(), self.params.tol)
        if machines.complete:
            error = self.finalizer.round_error(event.number, lambda: machines.model("interrupted"))
            event = replace(event, held_error=error)
        self.history.append(event)
        self.listener(event)

    def unfinished(self, machines: Machines) -> TrainResult | None:
        """The result so far, if every machine has completed a round; its model is also written to the folder."""
        if not machines.complete:
            return None
        model = replace(machines.model("interrupted"), calibration=self.calibration)
        whole = model if self.step is None else model.behind(self.step)
        if self.folder is not None:
            whole.save(self.folder.model)
        support = SupportDuals.of([state.machine.duals for state in machines.states])
        return TrainResult(whole, support, tuple(self.history), "interrupted", self.plan, peak_bytes())

    def checkpoint(self, machines: Machines) -> None:
        """Save the states after a round."""
        if self.folder is None:
            return
        header = {
            "seed": machines.problem.seed,
            "elapsed_s": self.clock.elapsed_s(),
            "objectives": [[o.primal, o.dual] for o in machines.objectives],
            "choice": None if self.choice is None else self.choice.as_dict(),
            "calibration": None if self.calibration is None else self.calibration.as_dict(),
        }
        save_checkpoint(
            self.folder.checkpoint,
            fingerprint=machines.problem.fingerprint,
            round=len(self.history),
            header=header,
            arrays=machines.arrays(),
        )

    def restore(self, problem: Problem) -> None:
        """Continue from the states, certificates and history of the checkpoint."""
        assert self.folder is not None
        path = self.folder.checkpoint
        header, arrays = load_checkpoint(path, problem.fingerprint, TrainingHeader)
        with fitting(path):
            if header.get("choice") is not None:
                self.choice = Choice.from_dict(header["choice"])
                problem = replace(problem, C=self.choice.C)
            self.calibration = Calibration.from_dict(header.get("calibration"))
            machines = self.machines_of(problem)
            machines.restore([Objective(*pair) for pair in header["objectives"]], arrays)
        self.machines = machines
        self.history = list(self.folder.cut_history(header["round"]))
        self.clock.before_s = header["elapsed_s"]

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
            elapsed_s=self.clock.elapsed_s(),
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
        """The contents of run.json, at the beginning or at the end of a training run."""
        return {
            "version": __version__,
            "data": self.finalizer.data_record(dataset),
            "parameters": plain_params(self.params) | self.chosen,
            "C": None if model is None else model.certificate.params["C"],
            "local_bias": None if model is None else model.family.local_bias,
            "plan": self.plan.as_dict(),
            "selection": None if self.selection is None else self.selection.as_dict(),
            "choice": None if self.choice is None else self.choice.as_dict(),
            "learned": self.learned_dict(model),
            "inner": [] if self.machines is None else self.machines.inner_records,
            "cluster": cluster_record(self.history, self.worker_peak_bytes, self.plan.worker_bytes()),
            "result": None if finished is None else vars(finished),
        }

    def learned_dict(self, model: Model | None) -> dict[str, Any] | None:
        """The entry of run.json about the learned kernels, with the number of them in the model if there is one."""
        if self.learned is None:
            return None
        if model is None:
            return self.learned.as_dict(None, None)
        used = [] if self.machines is None else [state.machine.active for state in self.machines.states]
        others = int(np.count_nonzero(np.unique(np.concatenate(used)) >= self._n_learned)) if used else 0
        return self.learned.as_dict(len(model.gammas) - others, others)
