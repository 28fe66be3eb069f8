"""Rows per second of processor time for every pass over deformed digits, and the bounds set by reading and products.

    python jobs/bench/passes.py [--rows 200000] [--folder DIR] [--kernels 1500] [--threads 2]

The passes are those of a training run on many rows with its defaults, on 50 principal components: make and compress the
rows, read them, check, moments, transform and write; learn, in windows that are read ahead; and predict with the
learned machine. Reading, decompression and products use the same processors, so the bound of a pass is the sum of the
times of its parts alone: reading compressed bytes from the cache of the system, decompressing chunks, and matrix
products of the same shapes by numpy.matmul in the same precision. All are processor seconds, summed over all threads,
so other programs on the machine have little effect. Passes below 60 % of their bound are marked. Writes
results/passes.json.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from common import ROOT, set_data_folder, write
from learning_rate import products as learning_products

from mllkm_scale import Dataset
from mllkm_scale.base.executor import ThreadExecutor
from mllkm_scale.base.threads import Threads, one_blas_thread
from mllkm_scale.data import Preprocessor, check, prepare
from mllkm_scale.data.catalogue import generate
from mllkm_scale.data.catalogue.deformations import Deformation, deformed
from mllkm_scale.data.labels import encode_labels, signs_of
from mllkm_scale.data.preparation.moments import gather_moments
from mllkm_scale.errors import MLLKMError
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.predictors import rows_at_once
from mllkm_scale.learn.proposals import learn_kernels
from mllkm_scale.learn.settings import learn_settings
from mllkm_scale.learn.start import start_of
from mllkm_scale.mkl.margins import decisions, near_margin

GOAL, COMPONENTS, LIMITS = 0.6, 50, (2.0, 1.3, 1.1, 1.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--folder", type=Path, default=ROOT / "results" / "mnist8m")
    parser.add_argument("--kernels", type=int, default=1500)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    set_data_folder()
    with Threads(arguments.threads) as threads, one_blas_thread():
        found = measure(arguments, threads)
    for name, row in found.items():
        told = ", ".join(f"{part} {rate:,.0f}" for part, rate in row["alone_rows_per_s"].items())
        mark = "" if row["share"] >= GOAL else "   below the goal"
        print(f"{name:10s} {row['rows_per_s']:10,.0f} rows a second, {row['share']:4.0%} of its bound ({told}){mark}")
    setting = {name: str(value) for name, value in vars(arguments).items()}
    print(f"written: {write('passes', {'setting': setting, 'goal': GOAL, 'passes': found})}")


def measure(arguments: argparse.Namespace, threads: Threads) -> dict[str, dict[str, Any]]:
    """For each pass, its rate, the rates of its parts alone, and their share of its time."""
    rows, executor, found = arguments.rows, ThreadExecutor(threads), dict[str, dict[str, Any]]()

    def record(name: str, seconds: float, n: int, alone: dict[str, float]) -> None:
        bound = sum(alone.values())
        rates = {part: 1.0 / each for part, each in alone.items() if each > 0}
        found[name] = {"rows_per_s": n / seconds, "alone_rows_per_s": rates, "share": bound * n / seconds}

    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        try:
            generate("mnist8m", name, rows=1000, n_jobs=arguments.threads)  # compiles the functions
            seconds = timed(lambda: generate("mnist8m", name, rows=rows, n_jobs=arguments.threads))
        except MLLKMError as error:
            sys.exit(str(error))
        path = Path(name) / f"mnist8m-{rows}.h5"
        record("make", seconds, rows, making(path))
        raw, unpacked = reading(path)
        with Dataset.open(path) as data:
            classes, codes = encode_labels(data.labels())
            signs = signs_of(codes, len(classes), np.int8)
            data.chunk(0)
            alone = {"read": raw, "unpack": unpacked}
            record("read", timed(lambda: [None for _ in data.chunks()]), rows, alone)
            record("check", timed(lambda: check(data, executor)), rows, alone)
            square = product(668, data.n_features, None)
            passed = timed(lambda: gather_moments(data, to_double, cross=True, executor=executor))
            record("moments", passed, rows, alone | {"products": square})
            preprocessor = Preprocessor.fit(Dataset.from_arrays(data.part(0, 5000)), "none", COMPONENTS)
            mapped = product(668, data.n_features, COMPONENTS)
            started = time.process_time()
            ready = prepare(data, preprocessor, in_memory=False, scratch_dir=Path(name), executor=executor)
            record("prepare", time.process_time() - started, rows, alone | {"products": mapped})
        with ready:
            learn_and_decide(ready, signs, codes, arguments.kernels, threads, record)
    return found


def learn_and_decide(
    data: Dataset,
    signs: np.ndarray,
    codes: np.ndarray,
    n_kernels: int,
    threads: Threads,
    record: Callable[[str, float, int, dict[str, float]], None],
) -> None:
    """Two epochs, the second of which counts; and the prediction pass of the learned machine."""
    family, K, n = Family("gaussian", local_bias=1.0), signs.shape[1], data.n_rows
    settings = learn_settings(10**7, n_kernels, "diagonal", 0, K)
    assert settings.epochs == 2, settings.epochs
    ended: list[float] = []
    learned = learn_kernels(
        data, signs, codes, family, settings, threads, listener=lambda epoch: ended.append(time.process_time())
    )
    within = learned.epochs[-1].within
    kept = round((1.0 - settings.dropout) * n_kernels)
    multiplied = timed(lambda: learning_products(20_480, COMPONENTS, K, kept, within)) / 20_480
    record("learn", ended[1] - ended[0], n, {"products": multiplied})
    start = start_of(learned, family, None)
    executor = ThreadExecutor(threads)
    limits = sorted(LIMITS)

    def decide() -> Any:
        decided = decisions(family, data, start.kernels, start.coef, start.local_coef, executor)
        return near_margin(decided, signs, np.ones(n), data.chunk_rows, limits, 500_000)

    record("decide", timed(decide), n, {"products": deciding(K, n_kernels)})


def timed(work: Callable[[], object]) -> float:
    """Processor seconds of all threads."""
    started = time.process_time()
    work()
    return time.process_time() - started


def to_double(chunk: np.ndarray) -> np.ndarray:
    return chunk.astype(np.float64)


def making(path: Path) -> dict[str, float]:
    """Seconds per row of deforming and of compressing, on one thread."""
    with h5py.File(path) as file:
        images = file["X"][:6000].reshape(-1, 28, 28)
    numbers = np.arange(6000, 12_000)
    deform = timed(lambda: deformed(images, numbers, 0, Deformation()))
    pieces = [images[start : start + 600].tobytes() for start in range(0, 6000, 600)]
    return {"deform": deform / 6000, "compress": timed(lambda: [zlib.compress(part, 1) for part in pieces]) / 6000}


def reading(path: Path) -> tuple[float, float]:
    """Seconds per row of reading the compressed bytes, and of decompressing them on one thread."""
    with h5py.File(path) as file:
        stored = file["X"]
        starts = range(0, stored.shape[0], stored.chunks[0])
        started = time.process_time()
        packed = [stored.id.read_direct_chunk((start, 0))[1] for start in starts]
        raw = time.process_time() - started
        return raw / stored.shape[0], timed(lambda: [zlib.decompress(part) for part in packed]) / stored.shape[0]


def product(rows: int, width: int, columns: int | None, repeats: int = 20) -> float:
    """Seconds per row of a product in double precision on one thread: with a matrix, or of a block with itself."""
    X = np.random.default_rng(0).normal(size=(rows, width))
    other = None if columns is None else np.random.default_rng(1).normal(size=(width, columns))
    return timed(lambda: [X.T @ X if other is None else X @ other for _ in range(repeats)]) / (rows * repeats)


def deciding(K: int, s: int, repeats: int = 4) -> float:
    """Seconds per row of the products of a prediction: distances, and bumps times predictors."""
    n, rng = rows_at_once(K, COMPONENTS), np.random.default_rng(0)
    Z, C = rng.normal(size=(n, COMPONENTS)), rng.normal(size=(s, COMPONENTS))
    H, W = rng.normal(size=(n, s)), rng.normal(size=(s, K * (COMPONENTS + 1)))
    return timed(lambda: [(Z @ C.T, H @ W) for _ in range(repeats)]) / (n * repeats)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
