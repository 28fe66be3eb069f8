"""Overhead of a training run: imports, compilation, BLAS threads, and reading HDF5.

    python jobs/bench/startup.py [--rows 60000] [--features 784] [--repeats 3]

Imports and compilation are measured in separate processes: a short training run with an empty cache of compiled
functions, and with a filled one. Products of the sizes of the scan run in one thread with as many BLAS threads as there
are cores, and in as many threads with one BLAS thread each, as in training. Reading is a pass over all chunks of an
HDF5 file as `mllkm convert` writes it, of one that is contiguous, and of one compressed in chunks of one row, against
reading the bytes alone; and the bytes that the process has asked for in the pass, as a multiple of the data. Writes
results/startup.json, and prints a line per figure.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
from common import write
from threadpoolctl import threadpool_limits

from mllkm_scale import Dataset

TRAINING = """
import time
from sklearn.datasets import load_digits
from mllkm_scale import Dataset, train
X, y = load_digits(return_X_y=True)
started = time.perf_counter()
train(Dataset.from_arrays(X[:400], y[:400]), anchors="all", {parameters})
print(time.perf_counter() - started)
"""
IMPORTS = {
    "python alone": "pass",
    "numpy": "import numpy",
    "mllkm_scale": "import mllkm_scale",
    "train": "from mllkm_scale import train",
    "scikit-learn": "import sklearn.svm",
    "MLLKMClassifier": "from mllkm_scale import MLLKMClassifier",
}
KINDS = {"global": "", "component-wise": "componentwise=True"}
SIZE = 2048  # rows of the products, by 512 and 51 columns: those of a part, a block of anchors and 50 features


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--features", type=int, default=784)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    result = {
        "imports_s": {name: fastest(lambda code=code: run(code), arguments.repeats) for name, code in IMPORTS.items()},
        "compilation": {name: compilation(parameters) for name, parameters in KINDS.items()},
        "products": products(arguments.repeats),
        "reading": reading((arguments.rows, arguments.features), arguments.repeats),
    }
    for name, seconds in result["imports_s"].items():
        print(f"import {name}: {seconds:.2f} s")
    for name, found in result["compilation"].items():
        print(
            f"first small training, {name}: {found['empty_s']:.1f} s, with compiled functions {found['filled_s']:.1f} s"
        )
    found = result["products"]
    print(
        f"products: {found['blas_threads_gflops']:.0f} GFlop/s by {os.cpu_count()} BLAS threads,"
        f" {found['threads_gflops']:.0f} GFlop/s by {os.cpu_count()} threads with one each ({found['ratio']:.2f} times)"
    )
    for name, found in result["reading"].items():
        asked = f", {found['bytes_asked']:.2f} times the data asked for" if "bytes_asked" in found else ""
        print(f"reading, {name}: {found['mb_s']:.0f} MB/s{asked}")
    print(f"written: {write('startup', {'setting': vars(arguments)} | result)}")


def fastest(action: Callable[[], object], repeats: int) -> float:
    """The seconds of the fastest run."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def run(code: str, **environment: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=os.environ | environment, check=True, capture_output=True, text=True).stdout


def compilation(parameters: str) -> dict[str, float]:
    """Seconds of the same training with an empty cache of compiled functions, and with a filled one."""
    code = TRAINING.format(parameters=parameters)
    with tempfile.TemporaryDirectory() as cache:
        return {f"{name}_s": float(run(code, NUMBA_CACHE_DIR=cache)) for name in ("empty", "filled")}


def products(repeats: int, count: int = 200) -> dict[str, float]:
    """The rates of products by BLAS threads, and by threads that have one BLAS thread each."""
    rng = np.random.default_rng(0)
    H, X = rng.normal(size=(SIZE, 512)).astype(np.float32), rng.normal(size=(SIZE, 51)).astype(np.float32)
    work = 2e-9 * count * H.shape[1] * X.size

    def multiply(_: int) -> None:
        np.matmul(H.T, X)

    together = fastest(lambda: list(map(multiply, range(count))), repeats)
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
        apart = fastest(lambda: list(pool.map(multiply, range(count))), repeats)
    return {"blas_threads_gflops": work / together, "threads_gflops": work / apart, "ratio": together / apart}


def reading(shape: tuple[int, int], repeats: int) -> dict[str, dict[str, float]]:
    """Rates of passes over files that are in the system's cache: this measures the package, and not the disk."""
    X = np.random.default_rng(0).integers(256, size=shape).astype(np.float32)
    layouts = {
        "contiguous": {},
        "as converted": None,
        "compressed, a row a chunk": {"chunks": (1, shape[1]), "compression": "lzf"},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        X.tofile(folder / "bytes")
        found = {"the bytes alone": {"mb_s": rate(lambda: walk_bytes(folder / "bytes"), X.nbytes, repeats)}}
        for layout, options in layouts.items():
            path = folder / f"{layout}.h5"
            if options is None:
                np.savez(folder / "arrays.npz", X=X, y=np.arange(shape[0]) % 2)
                command = [sys.executable, "-m", "mllkm_scale.cli", "convert", str(folder / "arrays.npz"), str(path)]
                subprocess.run(command, check=True, capture_output=True)
            else:
                with h5py.File(path, "w") as file:
                    file.create_dataset("X", data=X, **options)
            with Dataset.open(path, y=None) as dataset:
                before = asked_bytes()
                walk(dataset)
                asked = (asked_bytes() - before) / X.nbytes
                found[layout] = {"mb_s": rate(lambda data=dataset: walk(data), X.nbytes, repeats), "bytes_asked": asked}
    return found


def walk(dataset: Dataset) -> None:
    for _ in dataset.chunks():
        pass


def walk_bytes(path: Path) -> None:
    """The same without HDF5, a chunk's worth at a time."""
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(4 << 20)
        while file.readinto(buffer):
            pass


def rate(action: Callable[[], object], size_bytes: int, repeats: int) -> float:
    return 1e-6 * size_bytes / fastest(action, repeats)


def asked_bytes() -> int:
    """Bytes that this process has read by system calls."""
    return int(Path("/proc/self/io").read_text().split()[1])


if __name__ == "__main__":
    main()
