"""Scores for the calibration, if no settings were compared on held-out rows. With learned kernels and many rows, these
are the scores of the rows that the descent has held out; if MKL followed the descent, it is repeated without these
rows. Otherwise three folds are held out in turn, or with more rows only one of them. At most 2,000 of the other rows
are used for training, or 1,000 if kernels are not learned.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.executor import ThreadExecutor
from mllkm_scale.data import Dataset
from mllkm_scale.learn.settings import Tryout
from mllkm_scale.model.calibration import Calibration, fit_calibration
from mllkm_scale.params import Params
from mllkm_scale.plan.contenders import MOST_ROWS
from mllkm_scale.run.problem import Problem, build_problem
from mllkm_scale.run.session import Resources
from mllkm_scale.run.tuning.choice import HELD_OUT, MKLPath, held_out_trial, learned_scores
from mllkm_scale.run.tuning.folds import Fold, Trial, folds_of, make_trial
from mllkm_scale.run.tuning.selection import TRYOUT_FLOPS, TRYOUT_TOL

__all__ = ["CrossFit"]

_EPOCHS = 0.5  # share of the epochs of a descent

_FEW_ROWS = 200
"""Largest number of rows for which all folds are held out: only one number is fitted, and a third of more rows
suffices."""


class CrossFit:
    """Machines like that of a problem, trained without the rows that they predict."""

    def __init__(self, problem: Problem, dataset: Dataset, params: Params, resources: Resources) -> None:
        self.problem, self.dataset, self.resources = problem, dataset, resources.quiet()
        self.params = replace(params, strategy="working-sets", C=problem.C)

    @property
    def costs(self) -> bool:
        """Whether the calibration needs additional training."""
        return self.problem.learned is None or not len(self.problem.learned.held)

    @property
    def rows_in_words(self) -> str:
        """A description of the held-out rows."""
        if not self.costs:
            return HELD_OUT
        folds = self._folds()
        parts = "1 fold" if len(folds) == 1 else f"{len(folds)} folds"
        return f"rows of {parts}" if folds else "no rows"

    def calibration(self, mkl: bool) -> Calibration | None:
        """The calibration by the scores of machines with MKL, or of learned machines.

        None if no rows can be held out.
        """
        scores, codes, weights = [], [], []
        for trial, resources in self._trials():
            with closing(trial):
                scores.append(self._scores(trial, resources, mkl))
                codes.append(trial.codes)
                weights.append(trial.weights)
        if not scores:
            return None
        source = self.rows_in_words
        return fit_calibration(np.concatenate(scores), np.concatenate(codes), source, np.concatenate(weights))

    def _scores(self, trial: Trial, resources: Resources, mkl: bool) -> Array:
        if not mkl:
            return learned_scores(trial)
        problem, columns = trial.problem, [slice(None)]
        if self.params.multi_class == "ovr" and problem.learned is None:
            columns = [slice(k, k + 1) for k in range(problem.signs.shape[1])]
        parts = [replace(trial, problem=replace(problem, signs=problem.signs[:, at])) for at in columns]
        paths = [MKLPath(part, self.params, resources, TRYOUT_TOL) for part in parts]
        return np.concatenate([path.scores(self.problem.C) for path in paths], axis=1)

    def _trials(self) -> Iterator[tuple[Trial, Resources]]:
        if not self.costs:
            yield held_out_trial(self.problem), self.resources
            return
        folds = self._folds()
        here = replace(self.resources, executor=ThreadExecutor(self.resources.threads, self.resources.poll))
        tryout = Tryout(TRYOUT_FLOPS / max(1, len(folds)), _EPOCHS)

        def build(part: Dataset) -> Problem:
            return build_problem(part, self.params, here, tryout=tryout)

        for fold in folds:
            yield make_trial(self.dataset, self.problem.codes, fold, build), here

    def _folds(self) -> list[Fold]:
        most = MOST_ROWS // 2 if self.problem.learned is None else MOST_ROWS  # samples as anchors are expensive
        return list(folds_of(self.problem.codes, self.problem.seed, _FEW_ROWS, most, MOST_ROWS))
