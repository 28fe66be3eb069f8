"""The first step of the preparation, fitted on the training rows: a table is encoded, and many columns are reduced."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.sparse.reduction import Reduction, fit_reduction, reduced, reduction_spec
from mllkm_scale.data.tables.encoding import Encoding
from mllkm_scale.data.tables.fitting import fit_encoding, require_numbers

__all__ = ["FirstStep", "told_of", "training_rows"]

FirstStep = Encoding | Reduction


def training_rows(
    dataset: Dataset,
    test: Dataset | None,
    budget_bytes: int,
    stack: ExitStack,
    *,
    reduction: str | None = "auto",
    seed: int = 0,
    scratch_dir: Path | None = None,
) -> tuple[Dataset, Dataset | None, FirstStep | None]:
    """Training rows and test rows as features, and the step that makes them; unchanged rows and None if rows are
    numbers.

    Rows that are reduced are made once, in memory or in a scratch file; `stack` closes them.
    """
    if dataset.columns is not None:
        encoding, folds = fit_encoding(dataset, seed=seed, budget_bytes=budget_bytes // 2)
        return encoding.dataset(dataset, folds), None if test is None else encoding.dataset(test), encoding
    if test is not None and test.columns is not None:
        require_numbers(test, "evaluated")
    step = fit_reduction(dataset, reduction_spec(reduction), seed=seed, budget_bytes=budget_bytes // 3)
    if step is None:
        return dataset, test, None
    in_memory = 8 * dataset.n_rows * step.n_features <= budget_bytes // 8
    rows = stack.enter_context(reduced(dataset, step, in_memory=in_memory, scratch_dir=scratch_dir))
    return rows, None if test is None else step.dataset(test), step


def told_of(step: FirstStep | None, verbose: int) -> list[str]:
    """Messages about the first step during training: a line per column of a table, or a single line."""
    if step is None:
        return []
    if isinstance(step, Reduction):
        return [step.describe()]
    told = step.describe() if verbose else []
    return [*told, f"{step.n_columns} columns of the table are {step.n_features} features"]
