"""Prediction times: single rows, small batches, and many rows compared with matrix products alone.

    python jobs/bench/serving.py [--kernels 400] [--rows 10000] [--repeats 5] [--page docs/serving.md]

MNIST after a projection to 50 components (ten classes), by global and by component-wise gaussian kernels, and ijcnn1
(22 features, two classes). The machines have exactly the requested number of kernels (a tenth on ijcnn1), with anchors
and gammas from the data; the duals are random, because the times do not depend on them.

Latencies are those of calls in Python, one row after another, as percentiles. Batches are timed with one thread, and
with one per core; the products alone are projection, distances and sums of the same sizes and precisions by
`numpy.matmul` on all rows at once, with the same number of BLAS threads. Compilation is measured in separate processes,
with an empty cache of compiled functions and with a filled one. Other methods (`serving_rivals.py`) predict the same
rows in the same run. Writes results/serving.json, and with --page the tables between the marks <!-- serving --> and
<!-- rivals --> of the page.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import load, write
from scale_page import figure, filled, table
from serving_rivals import compiled_us, rivals_of
from threadpoolctl import threadpool_limits

from mllkm_scale import Dataset, Model
from mllkm_scale.data import Preprocessor
from mllkm_scale.kernels.gammas import auto_gammas
from mllkm_scale.kernels.grid import Family
from mllkm_scale.model import ModelRecord

COMPONENTS = {"mnist": 50, "ijcnn1": None}
SCALING = {"mnist": "none", "ijcnn1": "standard"}
SUPPORT = 1000
PERCENTILES = (50, 90, 99, 99.9)
BATCHES = (1, 2, 5, 10, 20, 50, 100, 200)
STARTING = """
import sys, time
from mllkm_scale import Model
model = Model.load(sys.argv[1])
started = time.perf_counter()
model.server()
print(time.perf_counter() - started)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=400)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--page", type=Path, help="page whose tables are also written")
    arguments = parser.parse_args()
    setting = {name: value for name, value in vars(arguments).items() if name != "page"}
    result: dict[str, Any] = {"setting": setting, "machines": {}}
    for title, name, componentwise, n_kernels in (
        ("mnist global", "mnist", False, arguments.kernels),
        ("mnist component-wise", "mnist", True, arguments.kernels),
        ("ijcnn1 global", "ijcnn1", False, max(1, arguments.kernels // 10)),
    ):
        model = machine(name, componentwise, n_kernels)
        data = load(name)
        X = data["X_test"][: arguments.rows].astype(np.float64)
        found = result["machines"][title] = {
            "kernels": n_kernels,
            "starting": starting(model),
            "latency_us": latencies(model, X),
            "batches_us_a_row": small_batches(model, X),
            "many": [many(model, X, n_jobs, arguments.repeats) for n_jobs in sorted({1, os.cpu_count() or 1})],
            "agreement": agreement(model, X),
            "rivals": rivals(model, data, X, arguments.repeats),
            "compiled_us": compiled_us(model, X, arguments.repeats),
        }
        show(title, found)
    print(f"written: {write('serving', result)}")
    if arguments.page is not None:
        text = filled(arguments.page.read_text(encoding="utf-8"), "serving", page_lines(result["machines"]))
        arguments.page.write_text(filled(text, "rivals", rival_lines(result["machines"])), encoding="utf-8")


def machine(name: str, componentwise: bool, n_kernels: int) -> Model:
    """A gaussian machine with this number of kernels, whose decision values have a mean square of 1."""
    data, rng = load(name), np.random.default_rng(0)
    order = rng.permutation(len(data["y"]))[: SUPPORT + n_kernels]
    X, y = data["X"][order].astype(np.float64), data["y"][order]
    preprocessor = Preprocessor.fit(Dataset.from_arrays(X, y), SCALING[name], COMPONENTS[name])
    Z, classes = preprocessor.transform(X), np.unique(data["y"])
    positive = classes[1:] if len(classes) == 2 else classes
    family = Family("gaussian", componentwise, 0.2 * float(Z.var(axis=0).mean()))
    gammas = rng.choice(auto_gammas(Family("gaussian", componentwise), Z), n_kernels)
    support, anchors = Z[:SUPPORT], Z[SUPPORT:]
    scales = 1.0 / family.kernels(anchors, gammas).diagonals(support).mean(axis=0)
    kernels = family.kernels(anchors, gammas, scales)
    signs = np.where(y[:SUPPORT, None] == positive, 1.0, -1.0)
    weights = rng.dirichlet(np.ones(n_kernels))
    coef, local_coef = kernels.coefficients(support, signs * rng.uniform(size=signs.shape), weights)
    size = float(np.sqrt(np.mean(kernels.decide(Z[:200], coef, local_coef) ** 2)))
    record = ModelRecord(1.0, 1.0, 0.0, 0.01, "converged", len(X), len(X), 0)
    return Model(
        family, classes, anchors, gammas, scales, weights, coef / size, local_coef / size, preprocessor, record
    )


def starting(model: Model) -> dict[str, float]:
    """Seconds of making a server, with an empty cache of compiled functions and with a filled one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.mllkm")
        model.save(path)
        command, environment = [sys.executable, "-c", STARTING, str(path)], os.environ | {"NUMBA_CACHE_DIR": folder}
        runs = [subprocess.run(command, env=environment, check=True, capture_output=True, text=True) for _ in range(2)]
    return {f"{name}_s": float(run.stdout) for name, run in zip(("empty", "filled"), runs, strict=True)}


def latencies(model: Model, X: np.ndarray) -> dict[str, dict[str, float]]:
    """Percentiles of the time of one call for one row."""
    server, lists = model.server(), X[:1000].tolist()
    calls: dict[str, tuple[Callable[[Any], object], Any]] = {
        "label": (server.label, X),
        "scores": (server.scores, X),
        "label of float32": (server.label, X.astype(np.float32)),
        "label of a list": (server.label, lists),
        "Model.predict": (model.predict, X[:500, None]),
    }
    return {name: percentiles(call, rows) for name, (call, rows) in calls.items()}


def percentiles(call: Callable[[Any], object], rows: Any) -> dict[str, float]:
    for row in rows[:100]:
        call(row)
    us = np.empty(len(rows))
    for i, row in enumerate(rows):
        started = time.perf_counter_ns()
        call(row)
        us[i] = 1e-3 * (time.perf_counter_ns() - started)
    return {f"p{p}": float(np.percentile(us, p)) for p in PERCENTILES}


def small_batches(model: Model, X: np.ndarray) -> dict[str, dict[str, float]]:
    """Median microseconds per row for a few rows at a time."""
    server = model.server()
    found: dict[str, dict[str, float]] = {}
    for n in BATCHES:
        batches = [X[start : start + n] for start in range(0, min(len(X), 50 * n) - n, n)]
        found[str(n)] = {
            "server": percentiles(server.predict, batches)["p50"] / n,
            "model": percentiles(model.predict, batches)["p50"] / n,
        }
    return found


def many(model: Model, X: np.ndarray, n_jobs: int, repeats: int) -> dict[str, Any]:
    """Rows per second for all rows, and the share of the time that the products alone take."""
    work: dict[str, Callable[[], object]] = {
        "predict": lambda: model.predict(X, n_jobs=n_jobs),
        "decision_function": lambda: model.decision_function(X, n_jobs=n_jobs),
    }
    with threadpool_limits(limits=n_jobs, user_api="blas"):
        if not model.family.componentwise:
            single, double = products(model, X, np.float32), products(model, X, np.float64)
            work |= {"products of predict": single, "products of decision_function": double}
        seconds = {name: fastest(action, repeats) for name, action in work.items()}
    rates = {name: len(X) / found for name, found in seconds.items()}
    ratios = {
        f"{name} over its products": seconds[name] / seconds[f"products of {name}"]
        for name in ("predict", "decision_function")
        if f"products of {name}" in seconds
    }
    return {"threads": n_jobs, "rows_s": rates, "ratios": ratios}


def rivals(model: Model, data: dict[str, np.ndarray], X: np.ndarray, repeats: int) -> dict[str, dict[str, float]]:
    """Percentiles of one call for one row, and rows per second of one call for 1,000 rows, on one thread."""
    found = {}
    with threadpool_limits(limits=1, user_api="blas"):
        for rival in rivals_of(model, data, X[:2000]):
            us, rows = percentiles(rival.one, rival.rows), rival.rows[:1000]
            found[rival.name] = us | {"rows_s": len(rows) / fastest(partial(rival.many, rows), 10 * repeats)}
    return found


def products(model: Model, X: np.ndarray, dtype: type) -> Callable[[], None]:
    """Only the products: projection in double precision, distances and sums in the given one."""
    rng = np.random.default_rng(0)
    s, d = model.anchors.shape
    P = rng.normal(size=(X.shape[1], d)) if model.preprocessor.projection is not None else None
    Z, C = rng.normal(size=(len(X), d)).astype(dtype), rng.normal(size=(s, d)).astype(dtype)
    H, W = rng.random((len(X), s)).astype(dtype), rng.normal(size=(s, model.n_machines * (d + 1))).astype(dtype)

    def multiply() -> None:
        if P is not None:
            X @ P
        Z @ C.T
        H @ W

    return multiply


def fastest(action: Callable[[], object], repeats: int) -> float:
    action()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def agreement(model: Model, X: np.ndarray) -> dict[str, float]:
    """The largest difference between the scores of server and model, and the number of labels that differ."""
    server = model.server()
    scores, expected = server.decision_function(X), model.decision_function(X)
    return {
        "largest_difference": float(np.abs(scores - expected).max()),
        "largest_score": float(np.abs(expected).max()),
        "labels_that_differ": int(np.count_nonzero(server.predict(X) != model.predict(X))),
    }


def show(title: str, found: dict[str, Any]) -> None:
    starting_s = found["starting"]
    print(f"{title}, {found['kernels']} kernels")
    print(f"  made in {starting_s['empty_s']:.1f} s, with compiled functions {starting_s['filled_s']:.2f} s")
    for name, us in found["latency_us"].items():
        print(f"  {name:18s}" + "  ".join(f"{p} {value:7.1f} us" for p, value in us.items()))
    shown = ", ".join(f"{n}: {us['server']:.1f} / {us['model']:.1f}" for n, us in found["batches_us_a_row"].items())
    print(f"  us per row of batches, by server / by model: {shown}")
    for batch in found["many"]:
        rates = ", ".join(f"{name} {rate:,.0f}" for name, rate in batch["rows_s"].items())
        ratios = ", ".join(f"{name} {ratio:.2f}" for name, ratio in batch["ratios"].items())
        print(f"  {batch['threads']} thread(s): rows/s {rates}" + (f"; {ratios}" if ratios else ""))
    for name, us in found["rivals"].items():
        print(f"  {name:34s}{us['p50']:8.1f} us, 99 % {us['p99']:8.1f} us, {us['rows_s']:12,.0f} rows/s")
    for flags, us in found["compiled_us"].items():
        print(f"  C header, gcc {flags}: {us:.2f} us a row")
    off = found["agreement"]
    print(f"  off by {off['largest_difference']:.1e} of {off['largest_score']:.1f}, {off['labels_that_differ']} labels")


def page_lines(machines: dict[str, Any]) -> list[str]:
    """A line per machine."""
    head = ["", "kernels", "`Server.label`: median", "99 %", "10 rows", "many rows, `Model.predict`", "of products"]
    rows = []
    for title, found in machines.items():
        us, batch = found["latency_us"]["label"], found["many"][-1]
        ratio = batch["ratios"].get("predict over its products")
        rows.append(
            [
                title,
                str(found["kernels"]),
                f"{figure(us['p50'])} us",
                f"{figure(us['p99'])} us",
                f"{figure(found['batches_us_a_row']['10']['server'])} us a row",
                f"{batch['rows_s']['predict']:,.0f} rows/s",
                "" if ratio is None else f"{figure(ratio)} times their time",
            ]
        )
    made = [found["starting"] for found in machines.values()]
    return [
        *table(head, rows),
        "",
        f"Making a server takes up to {max(found['empty_s'] for found in made):.1f} s when its loops are compiled for"
        f" the first time on a machine, and {max(found['filled_s'] for found in made):.1f} s afterwards. Many rows are"
        f" predicted by {batch_threads(machines)}.",
    ]


def rival_lines(machines: dict[str, Any]) -> list[str]:
    """A line for the machine, its header in C, and each rival."""
    rows = []
    for title, found in machines.items():
        in_c = {
            f"C header, `gcc {flags}`": {"p50": us, "rows_s": 1e6 / us} for flags, us in found["compiled_us"].items()
        }
        own, *others = found["rivals"].items()
        for name, answer in (own, *in_c.items(), *others):
            worst = f"{figure(answer['p99'])} us" if "p99" in answer else ""
            rows.append([title, name, f"{figure(answer['p50'])} us", worst, f"{answer['rows_s']:,.0f} rows/s"])
            title = ""
    return table(["", "", "one row: median", "99 %", "1,000 rows"], rows)


def batch_threads(machines: dict[str, Any]) -> str:
    threads = next(iter(machines.values()))["many"][-1]["threads"]
    return "one thread" if threads == 1 else f"{threads} threads"


if __name__ == "__main__":
    main()
