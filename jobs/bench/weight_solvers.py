"""The weight solvers on one restricted problem: time to a relative gap of 1e-3, in one run.

    python jobs/bench/weight_solvers.py [--samples 1000] [--kernels 300] [--tol 1e-3] [--limit 600]

USPS, one digit against the rest; gaussian kernels with random anchors and widths, unit trace, local bias. Prints the
interior point (the default), the closed form with SDCA, and SimpleMKL (the reference), and writes
results/weight_solvers.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from common import load, write

from mllkm_scale.base.threads import Threads, n_threads, one_blas_thread
from mllkm_scale.gram.blocks import GlobalBlock
from mllkm_scale.kernels.gammas import auto_gammas
from mllkm_scale.kernels.grid import Family
from mllkm_scale.mkl.alternating import alternating_mkl
from mllkm_scale.mkl.interior.interior_point import interior_point
from mllkm_scale.mkl.oracle import Oracle
from mllkm_scale.mkl.restricted import RestrictedProblem, Solution
from mllkm_scale.mkl.simple import simple_mkl
from mllkm_scale.solver.svm import DenseSVM


class TimeIsUp(Exception):
    """A solver has used up its limit."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--kernels", type=int, default=300)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that a solver may take")
    parser.add_argument("--digit", type=int, default=8)
    parser.add_argument("--C", type=float, default=10.0)
    arguments = parser.parse_args()
    with one_blas_thread(), Threads(n_threads(-1)) as threads:
        block, problem = restricted_problem(arguments, threads)
        uniform = np.full(arguments.kernels, 1.0 / arguments.kernels)

        def oracle() -> Oracle:
            signs = np.ones(len(block.signs))  # the labels are part of the block
            svm = DenseSVM(block.gram, signs, arguments.C)
            return Oracle([svm], lambda _, duals: block.forms(duals))

        solvers: dict[str, Callable[[Callable[[], None]], Solution]] = {
            "interior point": lambda poll: interior_point(problem, arguments.tol, poll=poll),
            "closed form": lambda poll: alternating_mkl(oracle(), uniform, arguments.tol, max_steps=10**4, poll=poll),
            "SimpleMKL": lambda poll: simple_mkl(oracle(), uniform, arguments.tol, max_steps=10**4, poll=poll),
        }
        interior_point(problem, 0.5)  # warms up libraries and threads
        rows = {name: timed(solve, arguments.limit) for name, solve in solvers.items()}
    fastest = rows["interior point"]["seconds"]
    for name, row in rows.items():
        row["times_the_interior_point"] = row["seconds"] / fastest
        reached = "limit reached" if row["gap"] is None else f"gap {row['gap']:.1e} in {row['steps']} steps"
        print(f"{name:15s} {row['seconds']:8.2f} s  {row['times_the_interior_point']:7.1f} x   {reached}")
    print(f"written: {write('weight_solvers', {'setting': vars(arguments), 'rows': rows})}")


def restricted_problem(arguments: argparse.Namespace, threads: Threads) -> tuple[GlobalBlock, RestrictedProblem]:
    data = load("usps")
    rng = np.random.default_rng(0)
    labels = data["y"]
    positive = rng.permutation(np.flatnonzero(labels == arguments.digit))[: arguments.samples // 2]
    negative = rng.permutation(np.flatnonzero(labels != arguments.digit))[: arguments.samples - len(positive)]
    X = data["X"][np.concatenate([positive, negative])].astype(np.float64)
    signs = np.repeat([1.0, -1.0], [len(positive), len(negative)])
    family = Family("gaussian", local_bias=0.2 * float(X.var(axis=0).sum()))
    gammas = rng.choice(auto_gammas(family, rng.permutation(X)), arguments.kernels)
    anchors = data["X"][rng.choice(len(labels), arguments.kernels, replace=False)].astype(np.float64)
    plain = family.kernels(anchors, gammas)
    kernels = family.kernels(anchors, gammas, 1.0 / plain.diagonals(X).mean(axis=0))
    block = GlobalBlock(kernels, X, signs)
    return block, RestrictedProblem([block], arguments.C, threads)


def timed(solve: Callable[[Callable[[], None]], Solution], limit_s: float) -> dict[str, float | int | None]:
    started = time.perf_counter()

    def poll() -> None:
        if time.perf_counter() - started > limit_s:
            raise TimeIsUp

    try:
        solution = solve(poll)
    except TimeIsUp:
        return {"seconds": time.perf_counter() - started, "gap": None, "steps": None}
    return {"seconds": time.perf_counter() - started, "gap": solution.objective.gap, "steps": solution.steps}


if __name__ == "__main__":
    main()
