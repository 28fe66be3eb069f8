"""Screening: how many kernels a scan could skip by a bound from the previous scan.

    python jobs/bench/screening.py [--rows 3000] [--tol 0.005]

By the triangle inequality, a change of the duals from a' to a changes the form of a kernel by at most

    |sqrt q_m(a) - sqrt q_m(a')|  <=  sum over i of |a_i - a'_i| |phi_m(x_i)|,

with the norm of a row's duals over the classes for |a_i - a'_i|. A kernel whose form therefore stays below the largest
form of the active kernels need not be scanned. But |phi_m(x_i)| takes the distances and bumps of a scan, which is
everything except the final products. The job trains with a scan of all kernels in every round, evaluates forms and
bounds of all kernels in double precision, and counts the kernels that could be skipped: USPS, 8 against the rest and
ten classes, and Covertype. Writes results/screening.json, and prints a line per training run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from common import load, write

from mllkm_scale import Dataset
from mllkm_scale.base.threads import Threads, one_blas_thread
from mllkm_scale.kernels.grid import KernelGrid
from mllkm_scale.mkl.sequential import SequentialMKL
from mllkm_scale.mkl.state import State
from mllkm_scale.params import resolve
from mllkm_scale.plan.training import make_plan
from mllkm_scale.run.problem import build_problem
from mllkm_scale.run.session import Resources
from mllkm_scale.run.strategy import make_machine

AT_ONCE = 512  # kernels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3000, help="training rows, chosen at random")
    parser.add_argument("--tol", type=float, default=0.005)
    arguments = parser.parse_args()
    found = {}
    for name, (X, y, params) in problems().items():
        rows = np.random.default_rng(0).permutation(len(y))[: arguments.rows]
        found[name] = [*spared(X[rows], y[rows], params | {"tol": arguments.tol})]
        shown = ", ".join(f"{100 * row['spared']:.0f}" for row in found[name])
        print(f"{name}: % of the kernels spared in rounds 2 to {1 + len(found[name])}: {shown}", flush=True)
    print(f"written: {write('screening', {'setting': vars(arguments), 'trainings': found})}")


def problems() -> dict[str, tuple[np.ndarray, np.ndarray, dict[str, Any]]]:
    usps, covtype = load("usps"), load("covtype")
    digits = {"C": 10.0, "scaling": "none", "n_components": 50}
    return {
        "USPS, 8 against the rest": (usps["X"], usps["y"] == 8, digits),
        "USPS, ten classes": (usps["X"], usps["y"], digits),
        "Covertype": (covtype["X"], covtype["y"] == 2, {"C": 10.0, "scaling": "minmax"}),
    }


def spared(X: np.ndarray, y: np.ndarray, given: dict[str, Any]) -> Iterator[dict[str, float]]:
    """For each round but the first: the gap, and the share of the open kernels that cannot violate by the bound."""
    params = resolve(**given, anchors="all", pricing="full", overlap="never", random_state=0)
    dataset = Dataset.from_arrays(X, y.astype(np.int32))
    plan = make_plan(dataset, params)
    with one_blas_thread(), Threads(2) as threads:
        resources = Resources.of(plan, threads)
        problem = build_problem(dataset, params, resources)
        machine = make_machine(problem, problem.signs, params, resources)
        assert isinstance(machine, SequentialMKL)
        before: np.ndarray | None = None
        signed_before = np.zeros_like(problem.signs)
        for state, certificate in machine.rounds():
            signed = problem.signs * state.duals
            rows = problem.data.rows(np.arange(problem.data.n_rows)).astype(np.float64)
            roots = np.sqrt(forms_of(problem.grid, rows, signed, threads))
            if before is not None:
                bound = before + shifts_of(problem.grid, rows, signed - signed_before)
                threshold = np.sqrt(largest_active(machine, state))
                spared = float(np.mean((bound < threshold)[problem.grid.scales.ravel() > 0]))
                if np.any(roots > (1.0 + 1e-9) * bound):
                    raise SystemExit("a form exceeds its bound")
                yield {"gap": certificate.gap, "spared": spared}
            before, signed_before = roots, signed
        problem.close()


def forms_of(grid: KernelGrid, X: np.ndarray, signed_duals: np.ndarray, threads: Threads) -> np.ndarray:
    """q of all kernels."""
    used = signed_duals.any(axis=1)
    parts = [grid.take(ids).quadratic_forms(X[used], signed_duals[used], threads) for ids in kernel_parts(grid)]
    return np.concatenate(parts)


def shifts_of(grid: KernelGrid, X: np.ndarray, change: np.ndarray) -> np.ndarray:
    """The right side of the bound, for all kernels."""
    sizes = np.linalg.norm(change, axis=1)
    used = sizes > 0
    return np.concatenate([sizes[used] @ np.sqrt(grid.take(ids).diagonals(X[used])) for ids in kernel_parts(grid)])


def kernel_parts(grid: KernelGrid) -> Iterator[np.ndarray]:
    for start in range(0, len(grid), AT_ONCE):
        yield np.arange(start, min(start + AT_ONCE, len(grid)))


def largest_active(machine: SequentialMKL, state: State) -> float:
    return float(machine.pricing.active_forms(state).max())


if __name__ == "__main__":
    main()
