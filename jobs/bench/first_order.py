"""Large and noisy data: algorithms for the weights of learned kernels on many rows, half of them support vectors, and
their gap over time.

    python jobs/bench/first_order.py [--rows 50000] [--kernels 200] [--C 10] [--limit 60] [--ways ...] [--picture]

Covertype, class 2 against the rest. Kernels are learned once. Then each algorithm solves the same convex problem, with
only these kernels, from the weights and margins of the learned machine, to a sequence of gaps:

ascent       epochs of SDCA with closed-form updates of the weights between them: used by the package
alternation  SVMs solved by the same epochs for fixed weights, then the closed form
free         the interior point on the free samples, with the others held at their bounds
proximal     accelerated proximal gradients on P with a smoothed hinge, all samples at once, in double precision

Seconds are those of the processor, on all threads. Writes results/first_order.json, curves for every number of rows,
and with --picture docs/images/large-noisy.png.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from common import ROOT, load, write, write_hdf5
from matplotlib.figure import Figure

from mllkm_scale import Dataset, train
from mllkm_scale.base.threads import Threads, n_threads, one_blas_thread
from mllkm_scale.gram.blocks import make_block
from mllkm_scale.mkl.alternating import alternating_mkl
from mllkm_scale.mkl.certificate import Objective, primal_value, proof_of
from mllkm_scale.mkl.forms import Choice
from mllkm_scale.mkl.free_samples import free_samples_mkl
from mllkm_scale.mkl.inner import InnerMKL, clipped
from mllkm_scale.mkl.oracle import Oracle
from mllkm_scale.mkl.restricted import RestrictedProblem, WorkingSets
from mllkm_scale.report.style import BLUE, GREY, ORANGE, styled
from mllkm_scale.solver.box import Box

Curve = list[tuple[float, float]]  # seconds and gap
GAPS = (0.2, 0.1, 0.05, 0.02, 0.01)
WIDTH = 0.1  # of the margin over which the hinge is smoothed


class TimeIsUp(Exception):
    """An algorithm has reached the limit."""


@dataclass(frozen=True)
class Task:
    """The inner solver with data and threads, its initial sets, and the limit of seconds for an algorithm."""

    inner: InnerMKL
    sets: WorkingSets
    limit: float

    def clock(self) -> Callable[[], None]:
        """A function that raises when the time is up."""
        started = time.process_time()

        def poll() -> None:
            if time.process_time() - started > self.limit:
                raise TimeIsUp

        return poll


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[50_000])
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--C", type=float, default=10.0)
    parser.add_argument("--limit", type=float, default=60.0, help="most processor seconds of an algorithm for a gap")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--picture", action="store_true")
    arguments = parser.parse_args()
    known = ROOT / "results" / "first_order.json"
    found = json.loads(known.read_text())["curves"] if known.exists() else {}
    for rows in arguments.rows:
        with one_blas_thread(), Threads(n_threads(-1)) as threads:
            task = learned_task(rows, arguments, threads)
            curves = found.setdefault(str(rows), {})
            for name in arguments.ways:
                curves[name] = WAYS[name](task)
                points = list(below(curves[name]))[-len(GAPS) :]
                print(f"{rows} rows, {name}: " + ", ".join(f"{100 * gap:.1f} % {s:.1f} s" for s, gap in points))
    print(f"written: {write('first_order', {'curves': found})}")
    if arguments.picture:
        draw(found)


def learned_task(n_rows: int, arguments: argparse.Namespace, threads: Threads) -> Task:
    """The convex problem over learned kernels, and the learned machine as its start."""
    data = load("covtype")
    rows = np.random.default_rng(0).permutation(len(data["y"]))[:n_rows]
    X, y = data["X"][rows].astype(np.float64), (data["y"][rows] == 2).astype(np.int32)
    ways = {"anchors": f"learned:{arguments.kernels}", "metric": "diagonal", "scaling": "standard", "random_state": 0}
    with tempfile.TemporaryDirectory() as name:
        write_hdf5(Path(name) / "train.h5", X, y)
        with Dataset.open(Path(name) / "train.h5") as dataset:
            model = train(dataset, finish="none", C=arguments.C, **ways).model
    Z, bias = model.preprocessor.transform(X), model.family.local_bias
    kernels = replace(model.family.kernels(model.anchors, model.gammas), scales=model.kernel_scale)
    signs = np.where(y == 1, 1.0, -1.0)[:, None]
    margins = signs[:, 0] * model.decision_function(X)
    norms = np.sqrt((np.sum(model.coef[0] ** 2, axis=1) + model.local_coef[0] ** 2 / bias) / model.kernel_scale)
    box = Box.of(arguments.C, n_rows)
    duals = [np.where(margins < 1.0, box.upper, 0.0)]
    sets = WorkingSets(kernels, norms / norms.sum(), [np.arange(n_rows)], duals, box)
    return Task(InnerMKL(Dataset.from_arrays(Z), signs, 4 * 10**9, threads=threads), sets, arguments.limit)


def to_one_gap_after_the_other(task: Task, solve: Callable[[float, Callable[[], None]], Objective]) -> Curve:
    """Processor seconds to each gap, always from the start, until one takes too long."""
    curve: Curve = []
    for tol in GAPS:
        started = time.process_time()
        try:
            reached = solve(tol, task.clock())
        except TimeIsUp:
            break
        curve.append((time.process_time() - started, reached.gap))
        if reached.gap > tol:
            break
    return curve


def ascent(task: Task) -> Curve:
    def solve(tol: float, poll: Callable[[], None]) -> Objective:
        inner = replace(task.inner, poll=poll)
        return inner.ascend(Choice("features", 0, ""), task.sets, tol, np.inf).objective

    return to_one_gap_after_the_other(task, solve)


def oracle_of(inner: InnerMKL, sets: WorkingSets) -> Oracle:
    oracle = Oracle(inner.svms(sets, None, keep=True), partial(inner.forms, sets), threads=inner.threads)
    oracle.duals = clipped(sets)
    return oracle


def alternation(task: Task) -> Curve:
    def solve(tol: float, poll: Callable[[], None]) -> Objective:
        inner = replace(task.inner, poll=poll)
        return alternating_mkl(oracle_of(inner, task.sets), task.sets.weights, tol, poll=poll).objective

    return to_one_gap_after_the_other(task, solve)


def free(task: Task) -> Curve:
    def solve(tol: float, poll: Callable[[], None]) -> Objective:
        inner = replace(task.inner, poll=poll)
        oracle, joint = oracle_of(inner, task.sets), partial(inner.solve_free, task.sets)
        return free_samples_mkl(oracle, joint, task.sets.weights, tol, poll=poll).objective

    return to_one_gap_after_the_other(task, solve)


def proximal(task: Task) -> Curve:
    """FISTA with restarts on  1/2 (sum |w_m|)^2 + sum C_i h(y_i f_i)  where h is the hinge, smoothed over `WIDTH`."""
    inner, sets = task.inner, task.sets
    block = make_block(sets.kernels, inner.rows_of(sets.rows[0]), inner.signs[:, 0], np.float32)
    problem = RestrictedProblem([block], sets.box, inner.threads, lean=True)
    started, curve = time.process_time(), list[tuple[float, float]]()
    duals, best_dual, best_primal = sets.duals[0], 0.0, np.inf
    step = WIDTH / (sets.box.C * largest_eigenvalue(problem))
    w = sets.weights[:, None] * problem.vectors(duals)[0]
    ahead, momentum = w, 1.0
    for count in range(10**6):
        margins = problem.responses([ahead])
        duals = problem.upper * np.clip((1.0 - margins) / WIDTH + 0.5, 0.0, 1.0)
        V, q = problem.moments(duals)
        following = shrunk(ahead + step * V[0], step)
        if np.vdot(ahead - following, following - w) > 0:
            momentum = 1.0
        longer = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead, w, momentum = following + (momentum - 1.0) / longer * (following - w), following, longer
        if count % 10 == 0:
            norms = np.linalg.norm(w, axis=1)
            loss = problem.box.loss(problem.responses([w]))
            best_primal = min(best_primal, primal_value(np.ones(len(norms)), norms**2, loss))
            best_dual = max(best_dual, proof_of(duals, float(q.max())).dual)
            seconds, gap = time.process_time() - started, Objective(best_primal, best_dual).gap
            curve.append((seconds, gap))
            if seconds > task.limit or gap < GAPS[-1]:
                return curve
    return curve


def largest_eigenvalue(problem: RestrictedProblem, steps: int = 10) -> float:
    """The largest eigenvalue of the Gram matrix of all features, by power iteration, plus a tenth."""
    z, length = np.ones(problem.n_duals), 1.0
    for _ in range(steps):
        z = problem.responses(problem.vectors(z / np.linalg.norm(z)))
        length = float(np.linalg.norm(z))
    return 1.1 * length


def shrunk(U: np.ndarray, step: float) -> np.ndarray:
    """The minimum of  step/2 (sum |w_m|)^2 + 1/2 sum |w_m - u_m|^2:  rows of U, shortened by step * sum |w_m|."""
    norms = np.linalg.norm(U, axis=1)
    longest = np.sort(norms)[::-1]
    totals = np.cumsum(longest) / (1.0 + step * np.arange(1, len(norms) + 1))
    count = int(np.flatnonzero(longest > step * totals)[-1])
    return U * (np.maximum(norms - step * totals[count], 0.0) / np.maximum(norms, 1e-300))[:, None]


WAYS: dict[str, Callable[[Task], Curve]] = {
    "ascent": ascent,
    "alternation": alternation,
    "free": free,
    "proximal": proximal,
}


def below(curve: Curve) -> Iterator[tuple[float, float]]:
    """The points of a curve that are below all earlier ones."""
    least = np.inf
    for seconds, gap in curve:
        if gap < least:
            least = gap
            yield seconds, gap


@styled
def draw(found: dict[str, dict[str, Curve]]) -> None:
    """The gap over the seconds, with a panel for each number of rows."""
    figure = Figure(figsize=(3.6 * len(found), 2.8))
    axes = figure.subplots(1, len(found), squeeze=False)[0]
    for axis, (rows, curves) in zip(axes, sorted(found.items(), key=lambda item: int(item[0])), strict=True):
        for (name, curve), colour in zip(curves.items(), (BLUE, GREY, "#92c5de", ORANGE), strict=True):
            points = list(below(curve))
            axis.plot([s for s, _ in points], [100 * gap for _, gap in points], marker=".", label=name, color=colour)
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="processor seconds",
            ylabel="gap, %",
            title=f"Covertype, {int(rows):,} rows",
        )
        axis.legend()
    figure.savefig(ROOT / "docs" / "images" / "large-noisy.png", dpi=200)


if __name__ == "__main__":
    main()
