"""Streamed kernels compared with training on all of them at once: time, insertions, certified gap, distance from the
optimum.

    python jobs/bench/online_kernels.py [ionosphere] [usps] [--tol 1e-3] [--batch 100]

The grid of all samples x the default gammas arrives in three orders, one by one and in batches; then in batches with a
budget, where discarded kernels are forgotten and there are several passes. USPS is 3 against 8, on the training rows.
Prints a line per stream, and writes results/online_kernels.json.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from common import load, write

from mllkm_scale import Dataset, train
from mllkm_scale.kernels.gammas import auto_gammas
from mllkm_scale.kernels.grid import Family, KernelGrid
from mllkm_scale.kernels.normalisation import trace_scales
from mllkm_scale.mkl.restricted import Objective
from mllkm_scale.online import OnlineKernelMKL

DIGITS = (3, 8)
BUDGETS = (0, 50, 500)
PASSES = 15


@dataclass(frozen=True)
class Problem:
    """Samples, labels, and the grid of kernels that arrive."""

    X: np.ndarray
    y: np.ndarray
    C: float
    grid: KernelGrid

    def orders(self) -> dict[str, np.ndarray]:
        ids = np.flatnonzero(self.grid.scales.ravel())
        return {"grid": ids, "reversed": ids[::-1], "random": np.random.default_rng(0).permutation(ids)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", default=["ionosphere", "usps"])
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--batch", type=int, default=100)
    arguments = parser.parse_args()
    result = {name: streams(problem_of(name), arguments.tol, arguments.batch) for name in arguments.data}
    print(f"written: {write('online_kernels', {'setting': vars(arguments), 'data': result})}")


def problem_of(name: str) -> Problem:
    data = load(name)
    X, y = data["X"].astype(np.float64), data["y"]
    if name == "usps":
        X, y = X[np.isin(y, DIGITS)], y[np.isin(y, DIGITS)]
    X = X[:, X.std(axis=0) > 0]
    X = np.ascontiguousarray((X - X.mean(axis=0)) / X.std(axis=0))
    family = Family("gaussian", local_bias=0.2 * X.shape[1])
    gammas = np.sort(auto_gammas(family, np.random.default_rng(0).permutation(X)[:1000]))
    rows = Dataset.from_arrays(X)
    grid = KernelGrid(family, rows, gammas, trace_scales(family, rows, gammas, X))
    return Problem(X, y, max(0.5, X.shape[1] / 20), grid)


def streams(problem: Problem, tol: float, batch: int) -> dict[str, Any]:
    n_kernels = problem.grid.n_open
    print(f"{problem.X.shape[0]} samples, {problem.X.shape[1]} features, {n_kernels} kernels, C = {problem.C:g}")
    optimum, train_s = batch_optimum(problem, tol)
    print(f"  all at once: P {optimum.primal:.4f}, D {optimum.dual:.4f}; to a gap of {tol:g} in {train_s:.1f} s")
    rows = []
    for order, ids in problem.orders().items():
        for size in (1, batch):
            rows.append(streamed(problem, ids, tol, size, None, 1, optimum) | {"order": order})
            show(rows[-1])
    for remember in BUDGETS:
        for passes in (1, PASSES):
            ids = problem.orders()["random"]
            rows.append(streamed(problem, ids, tol, batch, remember, passes, optimum) | {"order": "random"})
            show(rows[-1])
    sizes = {"samples": len(problem.X), "features": problem.X.shape[1], "kernels": n_kernels, "C": problem.C}
    return sizes | {"optimum": asdict(optimum), "train_s": train_s, "streams": rows}


def batch_optimum(problem: Problem, tol: float) -> tuple[Objective, float]:
    """P and D of a training run on all kernels at once, with a gap far below `tol`; and the seconds of one to `tol`."""
    settings = {"C": problem.C, "gammas": problem.grid.gammas, "local_bias": problem.grid.family.local_bias}
    data = Dataset.from_arrays(problem.X, problem.y)
    started = time.perf_counter()
    train(data, tol=tol, scaling="none", n_jobs=1, **settings)
    seconds = time.perf_counter() - started
    record = train(data, tol=0.01 * tol, scaling="none", n_jobs=1, **settings).model.certificate
    return Objective(record.primal, record.dual), seconds


def streamed(
    problem: Problem, ids: np.ndarray, tol: float, size: int, remember: int | None, passes: int, optimum: Objective
) -> dict[str, Any]:
    mkl = OnlineKernelMKL(problem.X, problem.y, family=problem.grid, C=problem.C, tol=tol, remember=remember)
    n_passes = 0

    def stream() -> list[np.ndarray]:
        nonlocal n_passes
        n_passes += 1
        return [ids[start : start + size] for start in range(0, len(ids), size)]

    started = time.perf_counter()
    certificate = mkl.learn(stream, passes)
    return {
        "batch": size,
        "remember": remember,
        "passes": n_passes,
        "seconds": time.perf_counter() - started,
        "insertions": mkl.stream.n_inserted,
        "solutions": mkl.stream.n_rounds,
        "kernels": certificate.n_active,
        "primal": certificate.primal,
        "dual": certificate.dual,
        "gap": certificate.gap,
        "from_optimum": certificate.primal / optimum.dual - 1.0,  # at most: the optimum is not below the dual value
        "n_forgotten": certificate.n_forgotten,
    }


def show(row: dict[str, Any]) -> None:
    kept = "all" if row["remember"] is None else row["remember"]
    print(
        f"  {row['order']:8s} {row['batch']:4d} at a time, {kept!s:>4s} remembered, {row['passes']:2d} passes:"
        f" {row['seconds']:6.1f} s, {row['insertions']:4d} inserted, {row['kernels']:3d} kernels,"
        f" gap {row['gap']:.1e}, from the optimum {row['from_optimum']:.1e}",
        flush=True,
    )


if __name__ == "__main__":
    main()
