"""Costs and times of passes by dask workers on this machine, for jobs/simulate.py."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import write_hdf5
from distributed import Client
from network_hosts import NETWORK, network_hosts
from workers import machine_speedup

from mllkm_scale import Dataset
from mllkm_scale.base.executor import Work
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.cluster import ClusterSpec, DaskExecutor, open_client
from mllkm_scale.data import Preprocessor
from mllkm_scale.data.checks import RangesWork
from mllkm_scale.data.preparation.moments import ROWS_A_FEATURE, Moments, MomentsWork
from mllkm_scale.data.preparation.written_rows import WritingWork, WrittenRows
from mllkm_scale.kernels.grid import Family
from mllkm_scale.mkl.margins import Coefficients, DecisionWork

MEMORY, KERNELS, COMPONENTS, CLASSES = 1_000_000_000, 1500, 50, 10
EMPTY, LARGE, LARGE_BYTES = 200, 16, 5_000_000  # tasks that do nothing, and that send bytes
PASSES = ("check", "moments", "prepare", "decide")
COMPARED = ("moments", "decide")


@dataclass(frozen=True)
class Nothing:
    """Work whose tasks only send a number of bytes; each has one unit."""

    size: int = 0
    unit_work: float = 1e12
    paths: tuple[Path, ...] = ()

    def __call__(self, units: range) -> bytes:
        return bytes(self.size)

    def describe(self, units: range) -> str:
        return "tasks that do nothing"


@dataclass(frozen=True)
class Measured:
    """Measurements of a pass: seconds here and in the workers, bytes of the results, and tasks."""

    seconds: float
    busy_s: float
    result_bytes: int
    tasks: int


def measure(
    path: Path,
    rows: int,
    counts: list[int],
    link_mbit: float | None,
) -> dict[str, Any]:
    """Costs by one worker, and seconds of passes by several."""
    checked: list[dict[str, Any]] = []
    costs: dict[str, Any] = {}
    two = machine_speedup(1.0)
    with tempfile.TemporaryDirectory() as name, Dataset.open(path, y=None) as data, one_blas_thread():
        folder = Path(name)
        rows = min(rows, data.n_rows) // data.chunk_rows * data.chunk_rows
        prepared = prepared_rows(data, folder, rows)
        for count in sorted({1, *counts}):
            with workers(count, link_mbit, folder) as client:
                executor = DaskExecutor(client, folder)
                executor.wait_for_workers()
                found = {name: timed(executor, *work_of(name, executor, data, prepared, rows)) for name in PASSES}
                if count == 1:
                    costs = costs_of(executor, found, data, rows)
                for name in COMPARED:
                    told = {"work": name, "workers": count, "rows": rows, "tasks": found[name].tasks}
                    checked.append(told | {"measured_s": found[name].seconds})
    return {"costs": costs | {"two_processes": two, "link_mbit": link_mbit}, "checked": checked}


def prepared_rows(data: Dataset, folder: Path, rows: int) -> Dataset:
    """The first rows on 50 components, in a file."""
    X = data.part(0, rows)
    preprocessor = Preprocessor.fit(Dataset.from_arrays(X[:4000]), "none", COMPONENTS)
    write_hdf5(folder / "prepared.h5", preprocessor.transform(X), np.zeros(rows))
    return Dataset.open(folder / "prepared.h5", y=None)


def work_of(
    name: str, executor: DaskExecutor, data: Dataset, prepared: Dataset, rows: int
) -> tuple[Work[Any], int, int]:
    """A pass over the first rows: its work, its number of units, and the rows of a unit."""
    height, d = data.chunk_rows, data.n_features
    if name == "check":
        return RangesWork(data), rows // height, height
    if name == "moments":
        group = max(1, ROWS_A_FEATURE * d // height)
        return MomentsWork(data, None, True, group, d), -(-rows // (group * height)), group * height
    Z = prepared.part(0, 2 * KERNELS)
    if name == "prepare":
        preprocessor = Preprocessor.fit(Dataset.from_arrays(data.part(0, 4000)), "none", COMPONENTS)
        written = WrittenRows(executor.folder, "written", 16 * height, (rows, COMPONENTS), Z.dtype, "rows")
        return WritingWork(data, preprocessor, written, 16), -(-rows // (16 * height)), 16 * height
    gamma = 1.0 / np.median(np.square(Z[:KERNELS] - Z[KERNELS:]).sum(axis=1))
    rng = np.random.default_rng(0)
    coef, local = rng.normal(size=(CLASSES, KERNELS, COMPONENTS)), rng.normal(size=(CLASSES, KERNELS))
    machine = Coefficients(Z[:KERNELS].astype(np.float64), np.full(KERNELS, gamma), coef, local)
    flops = float(prepared.chunk_rows * KERNELS * (20 + (1 + CLASSES) * COMPONENTS))
    shared = executor.share("predictors", machine)
    return DecisionWork(Family("gaussian"), prepared, shared, flops), prepared.n_chunks, prepared.chunk_rows


def timed(executor: DaskExecutor, work: Work[Any], n_units: int, unit_rows: int) -> Measured:
    """A pass, after one that is not counted, in which workers open the files and the size of the tasks is adapted."""
    for _ in executor.start(work, n_units):
        pass
    executor.tally()
    started = time.perf_counter()
    results = list(executor.start(work, n_units))
    seconds = time.perf_counter() - started
    sizes = sum(len(pickle.dumps(result)) for result in results)
    return Measured(seconds, executor.tally().busy_s, sizes, len(results))


def costs_of(executor: DaskExecutor, found: dict[str, Measured], data: Dataset, rows: int) -> dict[str, Any]:
    """The costs of a row, a task and a byte, with one worker."""
    one, empty = timed(executor, Nothing(), 1, 1).seconds, timed(executor, Nothing(), EMPTY, 1).seconds
    task_s = max(1e-4, (empty - one) / EMPTY)
    large = timed(executor, Nothing(LARGE_BYTES), LARGE, 1).seconds - one - LARGE * task_s
    read = os.stat(data.path).st_size / data.n_rows if data.path is not None else 0.0
    d, height = data.n_features, data.chunk_rows
    group = max(1, ROWS_A_FEATURE * d // height)
    per_row = {name: found[name].busy_s / rows for name in PASSES}
    started = time.perf_counter()
    hashlib.blake2b(bytes(1 << 26)).digest()
    return {
        "task_s": task_s,
        "latency_s": one,
        "link_bytes_s": LARGE * LARGE_BYTES / max(1e-3, large),
        "hash_byte_s": (time.perf_counter() - started) / (1 << 26),
        "check": {"row_s": per_row["check"], "unit_rows": height, "read_bytes": read, "task_bytes": 8 * d},
        "moments": {
            "row_s": per_row["moments"],
            "unit_rows": group * height,
            "read_bytes": read,
            "node_bytes": 8.0 * d * (d + 3),
            "node_s": node_seconds(d),
        },
        "prepare": {"row_s": per_row["prepare"], "unit_rows": 480 * height, "read_bytes": read},
        "decide": {
            "row_s": per_row["decide"],
            "unit_rows": 10_485,
            "read_bytes": 4.0 * COMPONENTS,
            "row_bytes": 8.0 * CLASSES,
        },
    }


def node_seconds(d: int) -> float:
    """Seconds to deserialise the moments of d features with their products, and to merge them."""
    nodes = [Moments(d, cross=True) for _ in range(6)]
    for node in nodes:
        node.update(np.random.default_rng(0).normal(size=(4, d)))
    packed = [pickle.dumps(node) for node in nodes[1:]]
    started = time.perf_counter()
    for node in packed:
        nodes[0].merge(pickle.loads(node))
    return (time.perf_counter() - started) / len(packed)


@contextmanager
def workers(count: int, link_mbit: float | None, folder: Path) -> Iterator[Client]:
    """Workers with one thread each; with a limit, each has its own network link."""
    if link_mbit is None:
        with open_client(ClusterSpec(kind="local", workers=count), memory_budget=MEMORY) as client:
            yield client
        return
    with ExitStack() as stack:
        hosts = stack.enter_context(network_hosts(count, folder / f"hosts-{count}"))
        shape = f"root tbf rate {link_mbit:g}mbit burst 512kb latency 200ms"
        for number in range(1, count + 1):
            tc(f"qdisc add dev {hosts.prefix}v{number} {shape}")
            tc(f"-n {hosts.prefix}{number} qdisc add dev {hosts.interface} {shape}")
        file = folder / f"scheduler-{count}.json"
        dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", f"{NETWORK}.254", "--no-dashboard"]
        stack.callback(stop, started([*dask, "--port", "0", "--scheduler-file", str(file)]))
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--no-dashboard"]
        worker += ["--nthreads", "1", "--no-nanny", "--memory-limit", str(MEMORY)]
        for number in range(1, count + 1):
            stack.callback(stop, started(["ip", "netns", "exec", f"{hosts.prefix}{number}", *worker]))
        client = stack.enter_context(Client(scheduler_file=str(file), timeout=60))
        client.wait_for_workers(count, timeout=120)
        yield client


def started(command: list[str]) -> subprocess.Popen[bytes]:
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    return subprocess.Popen(command, env=os.environ | single, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(30)


def tc(command: str) -> None:
    subprocess.run(["tc", *command.split()], check=True, timeout=20)
