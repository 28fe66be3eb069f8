"""Rows per second of lazy prediction of a dask array, compared with `Model.predict` on the same blocks in one run.

    python jobs/bench/lazy_prediction.py [--rows 10000000] [--block 100000] [--kernels 40] [--workers 2] [--repeats 3]

A machine of ijcnn1 (22 features, two classes) with exactly the requested number of kernels. The blocks are one array in
the memory of each process, so only the products and the overhead of dask are measured. `Model.predict` processes block
after block with one thread per core. The threads of dask and, with --workers, worker processes of one thread each do
the same, and collect the labels of all rows. Each is run once to warm up, and then alternately. The goal is 80 % of the
rate of `Model.predict`. Writes results/lazy_prediction.json.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import dask.array as da
import numpy as np
from common import write
from serving import machine

from mllkm_scale import Model
from mllkm_scale.cluster import ClusterSpec, open_client

FEATURES = 22
GOAL = 0.8


@cache
def block(rows: int) -> np.ndarray:
    """The same rows for every block, made once in a process."""
    return np.random.default_rng(0).standard_normal((rows, FEATURES))


def collection(rows: int, height: int) -> da.Array:
    chunks = ((height,) * (rows // height), (FEATURES,))
    return da.map_blocks(block, height, chunks=chunks, dtype=np.float64, meta=np.empty((0, 0)))


def in_blocks(model: Model, rows: int, height: int, threads: int) -> np.ndarray:
    return np.concatenate([model.predict(block(height), n_jobs=threads) for _ in range(rows // height)])


def rate(rows: int, action: Callable[[], np.ndarray]) -> float:
    started = time.perf_counter()
    assert len(action()) == rows
    return rows / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--block", type=int, default=100_000)
    parser.add_argument("--kernels", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    rows = arguments.rows - arguments.rows % arguments.block
    threads, model = os.cpu_count() or 1, machine("ijcnn1", False, arguments.kernels)
    lazy = model.predict(collection(rows, arguments.block))
    ways: dict[str, Callable[[], Any]] = {
        "Model.predict in blocks": lambda: in_blocks(model, rows, arguments.block, threads),
        "dask, threads": lambda: lazy.compute(scheduler="threads", num_workers=threads),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(arguments.repeats + 1):
        for name, action in ways.items():
            rates[name] += [rate(rows, action)] * (turn > 0)
    if arguments.workers:
        spec = ClusterSpec("local", workers=arguments.workers)
        with open_client(spec, memory_budget=2_000_000_000, timeout_s=60) as client:
            ways["dask, workers"] = lambda: client.compute(lazy).result()
            rates["dask, workers"] = [rate(rows, ways["dask, workers"]) for _ in range(arguments.repeats + 1)][1:]
    reference = float(np.median(rates["Model.predict in blocks"]))
    found = {name: {"rows_s": float(np.median(each)), "each": each} for name, each in rates.items()}
    for name, figures in found.items():
        figures["share"] = figures["rows_s"] / reference
        print(
            f"{name:<24} {figures['rows_s']:>14,.0f} rows/s {100 * figures['share']:>6.1f} % (goal {100 * GOAL:.0f} %)"
        )
    print(f"written: {write('lazy_prediction', {'setting': vars(arguments), 'goal': GOAL, 'ways': found})}")


if __name__ == "__main__":
    main()
