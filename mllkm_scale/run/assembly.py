"""The model from the final states of the machines: folded coefficients, weights, and the certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.class_weight import class_weight_in_words
from mllkm_scale.data.weights import weights_in_numbers
from mllkm_scale.kernels.locally_linear import LocallyLinearKernels
from mllkm_scale.kernels.picked_rows import PickedRows
from mllkm_scale.mkl.restricted import Objective
from mllkm_scale.model.model import Model
from mllkm_scale.model.profile import Profile
from mllkm_scale.model.record import ModelRecord
from mllkm_scale.params import Params
from mllkm_scale.run.problem import Problem
from mllkm_scale.run.strategy import MachineState

__all__ = ["assemble", "assemble_learned", "plain_params", "profile_of"]

_MOST_ROWS, _LEAST_ROWS = 1024, 32
_MOST_BYTES = 8 << 20  # of the rows of the profile, unless these are fewer than the least number


def assemble(
    problem: Problem, states: Sequence[MachineState], objective: Objective, params: Params, status: str
) -> Model:
    """The model of the machines.

    One machine has weights (s,). Several machines (one-vs-rest) are merged over the union of their kernels, and have
    weights (K, s).
    """
    machines = [state.machine for state in states]
    duals = np.concatenate([machine.duals for machine in machines], axis=1)
    used = [machine.active[machine.weights > 0] for machine in machines]
    ids = np.unique(np.concatenate(used))
    by_machine = np.zeros((len(machines), len(ids)))
    for k, machine in enumerate(machines):
        by_machine[k, np.searchsorted(ids, used[k])] = machine.weights[machine.weights > 0]
    weights = by_machine[0] if len(machines) == 1 else by_machine
    kernels = problem.grid.take(ids)
    rows = np.flatnonzero(duals.any(axis=1))
    support = PickedRows(problem.data, rows)
    coef, local_coef = kernels.coefficients(support, duals[rows] * problem.signs[rows], weights)
    return _model(problem, kernels, weights, (coef, local_coef), objective, params, status)


def assemble_learned(
    problem: Problem, hinge: float, dual: float, params: Params, chosen: Mapping[str, int] | None = None
) -> Model:
    """The model of the learned machine without MKL; `hinge` is the sum over all samples, and `dual` the best known D.

    `chosen` are additional parameters that a search has chosen.
    """
    start = problem.learned
    assert start is not None
    norms = start.norms()
    total = max(float(norms.sum()), np.finfo(float).tiny)
    objective = Objective(0.5 * float(norms.sum()) ** 2 + problem.C * hinge, dual)
    used = norms > 0
    coefficients = start.coef[:, used], start.local_coef[:, used]
    return _model(
        problem, start.kernels.take(used), norms[used] / total, coefficients, objective, params, "learned", chosen
    )


def _model(
    problem: Problem,
    kernels: LocallyLinearKernels,
    weights: Array,
    coefficients: tuple[Array, Array],
    objective: Objective,
    params: Params,
    status: str,
    chosen: Mapping[str, int] | None = None,
) -> Model:
    """A model with its record."""
    record = ModelRecord(
        primal=objective.primal,
        dual=objective.dual,
        gap=objective.gap,
        tol=params.tol,
        status=status,
        n_open=problem.grid.n_open,
        n_train=problem.data.n_rows,
        seed=problem.seed,
        params=plain_params(params) | {"C": problem.C} | weights_in_numbers(problem.weights) | dict(chosen or {}),
    )
    return Model(
        family=problem.grid.family,
        classes=problem.classes,
        anchors=kernels.anchors,
        gammas=kernels.gammas,
        kernel_scale=kernels.scales,
        weights=weights,
        coef=coefficients[0],
        local_coef=coefficients[1],
        preprocessor=problem.preprocessor,
        certificate=record,
        feature_names=problem.feature_names,
    )


def profile_of(problem: Problem, model: Model) -> Profile:
    """The profile of random training rows; the choice of rows depends only on the seed and the sizes."""
    n, most = problem.data.n_rows, _MOST_BYTES // (8 * problem.data.n_features)
    count = min(n, max(_LEAST_ROWS, min(most, _MOST_ROWS)))
    rows = np.sort(np.random.default_rng([problem.seed, n]).choice(n, count, replace=False))
    return Profile.of(model, problem.data.rows(rows).astype(np.float64))


def plain_params(params: Params) -> dict[str, Any]:
    """Parameters as JSON holds them; an array of anchors is represented by its shape, and weights of classes by
    text."""
    plain = asdict(params)
    if not isinstance(plain["anchors"], str | int):
        plain["anchors"] = f"array {np.shape(params.anchors)}"
    plain["class_weight"] = class_weight_in_words(params.class_weight)
    for name in ("max_rounds", "time_limit", "scratch_dir", "n_jobs", "worker_timeout", "verbose", "memory_budget"):
        del plain[name]  # they affect the run, not the model
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in plain.items()} | {
        "gammas": params.gammas if isinstance(params.gammas, str) else np.ravel(params.gammas).tolist()
    }
