"""The solver of one machine: a column of signs (one-vs-rest) or all of them (shared weights), and its saved state."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.units import format_bytes
from mllkm_scale.errors import BudgetError, CheckpointError
from mllkm_scale.mkl.algorithm2 import PaperMKL, PaperState
from mllkm_scale.mkl.families import GridFamily
from mllkm_scale.mkl.inner import InnerMKL
from mllkm_scale.mkl.pricing import Pricing
from mllkm_scale.mkl.sequential import SequentialMKL
from mllkm_scale.mkl.state import Machine, Settings, State
from mllkm_scale.params import Params
from mllkm_scale.run.problem import Problem
from mllkm_scale.run.session import Resources
from mllkm_scale.scan.scanner import Scanner
from mllkm_scale.scan.work import scan_dtype

__all__ = ["MachineState", "make_machine", "make_pricing", "state_arrays", "state_from_arrays"]

INSERTIONS = 20  # of Algorithm 2 in a pass: the paper says "several", and there may be thousands of violators


class MachineState(Protocol):
    """The state that every strategy keeps between rounds, and from which the model is made."""

    @property
    def round(self) -> int: ...
    @property
    def machine(self) -> Machine: ...
    @property
    def proof(self) -> Array: ...


def make_machine(problem: Problem, signs: Array, params: Params, resources: Resources) -> SequentialMKL | PaperMKL:
    """The strategy of the parameters, on these columns of signs."""
    signs, plan, poll = signs.astype(np.float64), resources.plan, resources.poll
    if params.strategy == "paper":
        n = problem.data.n_rows
        gram_bytes = 8 * n * (2 * n + 3 * problem.data.n_features)
        if gram_bytes > plan.inner_bytes:
            raise BudgetError(
                f"strategy='paper' keeps {n} x {n} Gram matrices, {format_bytes(gram_bytes)}, and the budget leaves"
                f" {format_bytes(plan.inner_bytes)}: use strategy='working-sets', or a larger memory_budget"
            )
        X = problem.data.rows(np.arange(n)).astype(np.float64)
        family = GridFamily(problem.grid)
        return PaperMKL(family, X, signs, problem.box, params.tol, insertions=INSERTIONS, seed=problem.seed, poll=poll)
    scratch_dir = None if params.scratch_dir is None else Path(params.scratch_dir)
    inner = InnerMKL(
        problem.data,
        signs,
        plan.inner_bytes,
        plan.disk_bytes,
        scratch_dir,
        problem.seed,
        resources.threads,
        poll,
    )
    scanner, settings = _scanner(problem, params, resources), _settings(problem, params)
    return SequentialMKL(problem.data, signs, problem.grid, scanner, resources.executor, inner, settings)


def make_pricing(problem: Problem, params: Params, resources: Resources) -> Pricing:
    """The scans only, for a machine without MKL."""
    scanner = _scanner(problem, params, resources)
    return Pricing(problem.data, problem.signs, problem.grid, scanner, lambda state: 0.0, _settings(problem, params))


def _settings(problem: Problem, params: Params) -> Settings:
    return Settings(
        C=problem.C,
        weights=problem.weights,
        tol=params.tol,
        seed=problem.seed,
        overlap=params.overlap,
        pricing=params.pricing,
        max_kernels=params.max_kernels,
    )


def _scanner(problem: Problem, params: Params, resources: Resources) -> Scanner:
    dtype = scan_dtype(params.tol, params.componentwise)
    scratch_dir = None if params.scratch_dir is None else Path(params.scratch_dir)
    support_bytes, executor = resources.plan.support_bytes, resources.executor
    return Scanner(problem.grid, executor, dtype, support_bytes, scratch_dir, resources.threads)


def state_arrays(state: State | PaperState, prefix: str) -> dict[str, Array]:
    """The state as plain arrays, scalars included."""
    return {f"{prefix}{spec.name}": np.asarray(getattr(state, spec.name)) for spec in dataclasses.fields(state)}


def state_from_arrays(kind: type[Any], arrays: Mapping[str, Array], prefix: str) -> Any:
    """The state that `state_arrays` was called on, bit for bit."""
    values = {}
    names = {f"{prefix}{spec.name}" for spec in dataclasses.fields(kind)}
    if others := sorted(name for name in arrays if name.startswith(prefix) and name not in names):
        raise CheckpointError(
            f"the checkpoint has an array {others[0]!r}, which this version does not know: continue with the"
            " version that wrote it, or start again with --overwrite"
        )
    for spec in dataclasses.fields(kind):
        name = f"{prefix}{spec.name}"
        if name not in arrays and spec.default is not dataclasses.MISSING:
            continue  # a field that came later
        if name not in arrays:
            raise CheckpointError(f"the checkpoint has no array {name!r}: start again with --overwrite")
        values[spec.name] = arrays[name] if arrays[name].ndim else arrays[name].item()
    return kind(**values)
