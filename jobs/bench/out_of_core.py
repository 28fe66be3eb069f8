"""Training on data of many times the memory, and on slow storage: peak memory, and the overlap of reading and learning.

    python jobs/bench/out_of_core.py [--limit 640MB] [--times 16] [--mb-s 100] [--kernels 100] [--folder DIR]

The rows are deformed digits in double precision, stored without compression; their size is a multiple of the limit
(--times). The two classes are the digits up to 4 and those from 5 on. Training runs in a control group of Linux
(version 1 or 2; this needs root). Its limit counts the memory of the process and the cached pages of its files, so
pages must be dropped after reading. The memory budget is the limit. Then an epoch is timed on slow storage (--mb-s),
and also reading and learning alone: an epoch should take about as long as the slower of the two, and not as long as
both together. Writes results/out_of_core.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from common import ROOT, load, train_file, write

from mllkm_scale import Dataset
from mllkm_scale.base.threads import Threads, one_blas_thread
from mllkm_scale.base.units import format_bytes, parse_bytes
from mllkm_scale.data.catalogue.deformations import Deformation, deformed
from mllkm_scale.data.labels import encode_labels, signs_of
from mllkm_scale.kernels.grid import Family
from mllkm_scale.learn.batches import Batches, Place, Units
from mllkm_scale.learn.descent import Descent, first_machine
from mllkm_scale.learn.settings import learn_settings

GROUPS, BLOCK = Path("/sys/fs/cgroup"), 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", default="640MB")
    parser.add_argument("--times", type=float, default=16.0, help="of the limit: size of the data")
    parser.add_argument("--mb-s", type=float, default=100.0, help="of the slow storage")
    parser.add_argument("--kernels", type=int, default=100)
    parser.add_argument("--folder", type=Path, default=ROOT / "results")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        path, out = arguments.child
        child(Path(path), Path(out), arguments)
        return
    if os.geteuid():
        sys.exit("control groups need root")
    limit = parse_bytes(arguments.limit)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        path, out = Path(name) / "digits.h5", Path(name) / "record.json"
        rows = int(limit * arguments.times / (8 * 784))
        make(path, rows)
        os.sync()
        drop_pages(path)
        with control_group(limit) as group:
            command = [sys.executable, __file__, *sys.argv[1:], "--child", str(path), str(out)]
            code = subprocess.run(command, check=False, preexec_fn=group.join).returncode
            group_peak, held_back = group.peak_bytes, group.times_at_limit
        if code:
            sys.exit(f"the training within {arguments.limit} ended with {code}")
        record = json.loads(out.read_text())
        slow = on_slow_storage(Path(name), arguments)
    record |= {
        "rows": rows,
        "data_bytes": rows * 784 * 8,
        "limit_bytes": limit,
        "group_peak_bytes": group_peak,
        "times_at_limit": held_back,
    }
    print(
        f"{format_bytes(record['data_bytes'])} within {arguments.limit}: {record['train_s']:.0f} s, peak"
        f" {record['peak']}, with the pages of files {format_bytes(group_peak)} ({held_back} times at the limit);"
        f" {record['test_error_percent']:.2f} % test error"
    )
    parts = f"reading alone {slow['read_s']:.1f} s, and learning alone {slow['learn_s']:.1f} s"
    print(f"an epoch at {arguments.mb_s:g} MB/s: {slow['epoch_s']:.1f} s; {parts}")
    setting = {key: str(value) for key, value in vars(arguments).items()}
    print(f"written: {write('out_of_core', {'setting': setting, 'training': record, 'slow': slow})}")


def child(path: Path, out: Path, arguments: argparse.Namespace) -> None:
    """The training within the limit."""
    params = {"scaling": "none", "n_components": 50, "n_jobs": 1, "random_state": 0, "ridge": 0.1, "tol": 0.02}
    params |= {"max_kernels": arguments.kernels, "scratch_dir": str(path.parent)}
    record, model = train_file(path, memory_budget=arguments.limit, **params)
    with h5py.File(path) as file:
        X, y = file["X_test"][:], file["y_test"][:]
    wrong = sum(int((model.predict(X[at : at + BLOCK]) != y[at : at + BLOCK]).sum()) for at in range(0, len(y), BLOCK))
    out.write_text(json.dumps(record | {"test_error_percent": 100.0 * wrong / len(y)}))


def make(path: Path, rows: int) -> None:
    """Deformed digits, block by block, contiguous in the file."""
    data = load("mnist")
    images = data["X"].reshape(-1, 28, 28)
    with h5py.File(path, "w") as file:
        stored = file.create_dataset("X", (rows, 784), np.float64)
        file["y"] = np.resize(data["y"] >= 5, rows).astype(np.int64)
        file["X_test"], file["y_test"] = data["X_test"], (data["y_test"] >= 5).astype(np.int64)
        for start in range(0, rows, BLOCK):
            numbers = np.arange(start, min(start + BLOCK, rows))
            stored[start : start + len(numbers)] = deformed(images, numbers, 0, Deformation()).reshape(-1, 784)


def drop_pages(path: Path) -> None:
    """Drop the cached pages of a file from the memory of the system."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@dataclass(frozen=True)
class Group:
    """A control group: `version` 1 or 2."""

    folder: Path
    version: int

    def join(self) -> None:
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    @property
    def peak_bytes(self) -> int:
        name = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
        path = self.folder / name
        return int(path.read_text()) if path.exists() else 0

    @property
    def times_at_limit(self) -> int:
        if self.version == 1:
            return int((self.folder / "memory.failcnt").read_text())
        events = dict(line.split() for line in (self.folder / "memory.events").read_text().splitlines())
        return int(events["max"])


@contextmanager
def control_group(limit: int) -> Iterator[Group]:
    version = 2 if (GROUPS / "cgroup.controllers").exists() else 1
    folder = (GROUPS if version == 2 else GROUPS / "memory") / f"mllkm-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / ("memory.max" if version == 2 else "memory.limit_in_bytes")).write_text(str(limit))
        yield Group(folder, version)
    finally:
        folder.rmdir()


class SlowRows:
    """Rows of a data set, read at a limited number of bytes per second."""

    def __init__(self, data: Dataset, bytes_s: float) -> None:
        self.data, self.bytes_s = data, bytes_s
        self.n_rows, self.n_features, self.chunk_rows = data.n_rows, data.n_features, data.chunk_rows

    def part(self, start: int, stop: int) -> np.ndarray:
        begun = time.perf_counter()
        rows = self.data.part(start, stop)
        time.sleep(max(0.0, rows.nbytes / self.bytes_s - (time.perf_counter() - begun)))
        return rows


def on_slow_storage(folder: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Seconds of an epoch over rows of a slow file, and of its parts: reading these rows, and learning them."""
    data = load("mnist")
    Z = data["X"][:, :: data["X"].shape[1] // 50][:, :50].astype(np.float64)
    with h5py.File(folder / "rows.h5", "w") as file:
        stored = file.create_dataset("X", (20 * len(Z), 50), np.float64)
        for copy in range(20):
            stored[copy * len(Z) : (copy + 1) * len(Z)] = Z + 0.01 * copy
    classes, codes = encode_labels(np.resize(data["y"], 20 * len(Z)))
    signs = signs_of(codes, len(classes), np.int8)

    def source(bytes_s: float) -> SlowRows:
        return SlowRows(Dataset.open(folder / "rows.h5", y=None), bytes_s)

    def epoch(bytes_s: float) -> float:
        rows = source(bytes_s)
        units, settings = Units.of_sample(Z[:2000]), learn_settings(rows.n_rows, arguments.kernels, None, 0, 10)
        sample, used = units.of(Z[:2000]), np.ones(rows.n_rows, dtype=bool)
        machine = first_machine(Family("gaussian"), sample[:1000], sample, 10, settings)
        with Threads() as threads, Batches(rows, signs, used, settings.batch_rows, units, 0) as batches:
            descent, begun = Descent(machine, batches, settings, threads), time.perf_counter()
            for following, X, own in batches.after(Place()):
                descent.step(X, own)
                descent.state.place = following
            return time.perf_counter() - begun

    with one_blas_thread():
        epoch(np.inf)  # compiles the functions
        learn_s, slow_s = epoch(np.inf), epoch(1e6 * arguments.mb_s)
        rows, begun = source(1e6 * arguments.mb_s), time.perf_counter()
        for start in range(0, rows.n_rows, rows.chunk_rows):
            rows.part(start, min(start + rows.chunk_rows, rows.n_rows))
        read_s = time.perf_counter() - begun
    return {"epoch_s": slow_s, "read_s": read_s, "learn_s": learn_s}


if __name__ == "__main__":
    main()
