"""The scan only: one and two dask workers with one thread each, compared with one and two threads of this process.

    python jobs/bench/workers.py [--rows 20000] [--support 3000] [--repeats 3] [--overlap]

MNIST after a projection to 50 components, all rows as anchors, five gammas, ten classes; the duals are random, because
the time of a scan does not depend on them. All four ways are timed alternately, so that disturbances affect all of
them, and must give the same bits. The possible speed-up by two processes on this machine is also measured. Writes
results/workers.json: seconds, the speed-up by the second worker, and the overhead of dask at equal cores. With
--overlap, training runs with each value of the parameter `overlap` follow.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from common import load, write

from mllkm_scale import Dataset, train
from mllkm_scale.base.executor import Executor, ThreadExecutor
from mllkm_scale.base.threads import Threads, one_blas_thread
from mllkm_scale.base.units import parse_bytes
from mllkm_scale.cluster import ClusterSpec, DaskExecutor, open_client
from mllkm_scale.data import Preprocessor, prepare
from mllkm_scale.kernels.gammas import auto_gammas
from mllkm_scale.kernels.grid import Family, KernelGrid
from mllkm_scale.scan import Scanner, ScanResult

GAMMAS, COMPONENTS, CLASSES, CANDIDATES = 5, 50, 10, 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--support", type=int, default=3_000, help="support vectors")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", default="1GB", help="budget of each process")
    parser.add_argument("--overlap", action="store_true", help="also train with overlap never, auto and always")
    arguments = parser.parse_args()
    X, y = (load("mnist")[name][: arguments.rows] for name in ("X", "y"))
    with tempfile.TemporaryDirectory() as folder, one_blas_thread():
        times = measure(X, arguments, Path(folder))
    seconds = {name: statistics.median(values) for name, values in times.items()}
    record: dict[str, Any] = {
        "setting": vars(arguments),
        "kernels": GAMMAS * len(X),
        "seconds": times,
        "median_seconds": seconds,
        "machine_speedup": machine_speedup(),
        "second_worker_speedup": seconds["1 worker"] / seconds["2 workers"],
        "dask_overhead_1": seconds["1 worker"] / seconds["1 thread"] - 1.0,
        "dask_overhead_2": seconds["2 workers"] / seconds["2 threads"] - 1.0,
    }
    for name, value in seconds.items():
        print(f"{name}: {value:.2f} s")
    print(
        f"second worker: {record['second_worker_speedup']:.2f} times as fast (two processes with small matrix products"
        f" on this machine: {record['machine_speedup']:.2f}); dask against threads:"
        f" {100 * record['dask_overhead_1']:+.1f} % on one core, {100 * record['dask_overhead_2']:+.1f} % on two"
    )
    if arguments.overlap:
        record["overlap"] = overlaps(X, y, arguments)
    print(f"written: {write('workers', record)}")


def measure(X: np.ndarray, arguments: argparse.Namespace, folder: Path) -> dict[str, list[float]]:
    """Seconds of every repeat of each way, each after a scan that is not counted.

    One cluster at a time, because idle workers use some processor time.
    """
    raw = Dataset.from_arrays(X)
    data = prepare(raw, Preprocessor.fit(raw, "none", COMPONENTS), in_memory=False, scratch_dir=folder)
    family = Family("gaussian", local_bias=1.0)
    gammas = auto_gammas(family, data.rows(np.arange(1000)))
    grid = KernelGrid(family, data, gammas, np.ones((len(X), GAMMAS)))
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(X))[: arguments.support])
    duals = rng.normal(size=(len(rows), CLASSES)) * (rng.uniform(size=(len(rows), CLASSES)) < 0.15)
    support = data.rows(rows).astype(np.float64), duals
    times: dict[str, list[float]] = {"1 thread": [], "2 threads": [], "1 worker": [], "2 workers": []}
    reference = None
    for _ in range(arguments.repeats):
        for name, seconds in times.items():
            with executor_of(name, parse_bytes(arguments.memory), folder) as executor:
                scanner = Scanner(grid, executor)
                scanner.scan(*support, count=CANDIDATES)
                started = time.perf_counter()
                result = scanner.scan(*support, count=CANDIDATES)
                seconds.append(time.perf_counter() - started)
            reference = reference or result
            require_same(reference, result, name)
    data.close()
    return times


@contextmanager
def executor_of(name: str, budget: int, folder: Path) -> Iterator[Executor]:
    """The executor by the name of its column: "2 threads", "1 worker"."""
    count, kind = int(name.split()[0]), name.split()[1]
    if kind.startswith("thread"):
        with Threads(count) as threads:
            yield ThreadExecutor(threads)
    else:
        with open_client(ClusterSpec(kind="local", workers=count), memory_budget=budget) as client:
            yield DaskExecutor(client, folder)


def machine_speedup(seconds: float = 2.0, repeats: int = 3) -> float:
    """The speed of two processes that multiply small matrices, relative to one: an upper bound of any speed-up."""
    rates = []
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(products_per_second, [0.1, 0.1]))
        for _ in range(repeats):
            one = pool.submit(products_per_second, seconds).result()
            rates.append(sum(pool.map(products_per_second, [seconds, seconds])) / one)
    return statistics.median(rates)


def products_per_second(seconds: float) -> float:
    A = np.ones((256, 256), np.float32)
    with one_blas_thread():
        started, count = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            A @ A
            count += 1
        return count / (time.perf_counter() - started)


def require_same(expected: ScanResult, found: ScanResult, name: str) -> None:
    same = np.array_equal(expected.ids, found.ids) and np.array_equal(expected.values, found.values)
    if not same or expected.maximum != found.maximum:
        raise SystemExit(f"{name}: other bits than one thread")


def overlaps(X: np.ndarray, y: np.ndarray, arguments: argparse.Namespace) -> dict[str, Any]:
    """Training runs with two workers and a master of one thread, for each value of `overlap`."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for overlap in ("never", "auto", "always"):
            with open_client(
                ClusterSpec(kind="local", workers=2), memory_budget=parse_bytes(arguments.memory)
            ) as client:
                started = time.perf_counter()
                result = train(
                    Dataset.from_arrays(X, y),
                    client=client,
                    run_dir=Path(folder) / overlap,
                    overlap=overlap,
                    C=10.0,
                    anchors="all",
                    scaling="none",
                    n_components=COMPONENTS,
                    n_jobs=1,
                    memory_budget=arguments.memory,
                )
            found[overlap] = {
                "seconds": time.perf_counter() - started,
                "rounds": len(result.history),
                "lagged_rounds": sum(event.lagged for event in result.history),
                "solve_s": sum(event.solve_s for event in result.history),
                "scan_s": sum(event.scan_s for event in result.history),
                "waited_s": sum(event.waited_s for event in result.history),
                "workers_idle": [event.workers_idle for event in result.history],
                "gap": result.model.certificate.gap,
                "kernels": result.model.n_kernels,
            }
            print(f"overlap {overlap}: {found[overlap]}")
    return found


if __name__ == "__main__":
    main()
