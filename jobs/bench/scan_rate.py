"""Scan efficiency: the floating-point rate of the global scan, relative to numpy.matmul on its blocks.

    python jobs/bench/scan_rate.py [--rows 4096] [--support 4096] [--repeats 5]

MNIST, all 784 pixels and 50 principal components; gaussian bumps of five gammas; one class, and ten classes, each with
a dual for 15 % of the support. The duals are random, because the time of a scan does not depend on them. Only the
matrix products of the scan are counted (distances, and bumps times rows for each gamma and class), over the whole time
of a pass over the anchors. numpy.matmul multiplies operands of the same shapes, block by block, with the same number of
threads, each with one BLAS thread. Scan and products are timed alternately, and the median of the shares of the repeats
counts. Writes results/scan_rate.json, and prints a table beside the goal.
"""

from __future__ import annotations

import argparse
import math
import statistics
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import load, write

from mllkm_scale import Dataset
from mllkm_scale.base.block_grid import BlockGrid
from mllkm_scale.base.executor import ThreadExecutor
from mllkm_scale.base.threads import Threads, one_blas_thread
from mllkm_scale.data import Preprocessor, prepare
from mllkm_scale.kernels.gammas import auto_gammas
from mllkm_scale.kernels.grid import Family, KernelGrid
from mllkm_scale.scan import Scanner
from mllkm_scale.scan.support import PART_ROWS, Support
from mllkm_scale.scan.work import block_height

GOAL = 0.6
COMPONENTS = (None, 50)
CLASSES = ((1, 1.0), (10, 0.15))  # and the share of the support with a dual in each of them
THREADS = (1, 2)
CANDIDATES = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4096, help="anchors")
    parser.add_argument("--support", type=int, default=4096, help="support vectors")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    X = load("mnist")["X"][: max(arguments.rows, arguments.support)].astype(np.float32) / np.float32(255)
    found: list[dict[str, Any]] = []
    print(f"{'features':>8s} {'classes':>7s} {'threads':>7s} {'scan':>13s} {'matmul':>13s} {'share':>6s}  goal")
    with one_blas_thread():
        for components in COMPONENTS:
            grid, rows = anchors_and_support(X, components, arguments)
            for n_classes, density in CLASSES:
                duals = random_duals(len(rows), n_classes, density)
                for threads in THREADS:
                    record = measure(grid, rows, duals, threads, arguments.repeats)
                    found.append(record)
                    print(line(record), flush=True)
    least = min(record["share"] for record in found)
    print(f"least share {100 * least:.0f} %, goal {100 * GOAL:.0f} %: {'reached' if least >= GOAL else 'MISSED'}")
    result = {"setting": vars(arguments), "goal": GOAL, "least_share": least, "rows": found}
    print(f"written: {write('scan_rate', result)}")


def anchors_and_support(
    X: np.ndarray, components: int | None, arguments: argparse.Namespace
) -> tuple[KernelGrid, np.ndarray]:
    """All kernels of the first rows, and the rows of the support."""
    raw = Dataset.from_arrays(X)
    data = prepare(raw, Preprocessor.fit(raw, "none", components), in_memory=True)
    rows = data.rows(np.arange(len(X)))
    family = Family("gaussian", local_bias=1.0)
    gammas = auto_gammas(family, rows[:1000])
    anchors = Dataset.from_arrays(rows[: arguments.rows])
    scales = np.ones((anchors.n_rows, len(gammas)))
    return KernelGrid(family, anchors, gammas, scales), rows[: arguments.support].astype(np.float64)


def random_duals(n: int, n_classes: int, density: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, n_classes)) * (rng.uniform(size=(n, n_classes)) < density)


def measure(grid: KernelGrid, X: np.ndarray, duals: np.ndarray, threads: int, repeats: int) -> dict[str, Any]:
    """Rates of scan and products in every repeat, after one that is not counted."""
    products = Products.of_scan(grid, Support.of(X, duals, np.dtype(np.float32)))
    scan_s, matmul_s = [], []
    with Threads(threads) as threads:
        scanner = Scanner(grid, ThreadExecutor(threads))
        for _ in range(1 + repeats):
            scan_s.append(scanner.scan(X, duals, CANDIDATES).seconds)
            matmul_s.append(products.seconds(threads))
    shares = [matmul / scan for matmul, scan in zip(matmul_s[1:], scan_s[1:], strict=True)]
    return {
        "features": grid.anchors.n_features,
        "classes": duals.shape[1],
        "threads": threads,
        "block_height": products.heights[0],
        "gflop": 1e-9 * products.flop,
        "scan_gflop_a_s": 1e-9 * products.flop / statistics.median(scan_s[1:]),
        "matmul_gflop_a_s": 1e-9 * products.flop / statistics.median(matmul_s[1:]),
        "share": statistics.median(shares),
        "shares": shares,
    }


class Operands(threading.local):
    """Matrices of a thread, by name, in memory that is reused; filled with random numbers."""

    def __init__(self, sizes: dict[str, int]) -> None:
        rng = np.random.default_rng(0)
        self._flat = {name: rng.standard_normal(size, np.float32) for name, size in sizes.items()}

    def get(self, name: str, *shape: int) -> np.ndarray:
        return self._flat[name][: math.prod(shape)].reshape(shape)


@dataclass(frozen=True)
class Products:
    """The matrix products of a scan: its blocks of anchors, its parts of the support, and the duals of each part."""

    heights: list[int]  # anchors of each block
    parts: list[tuple[int, list[int]]]  # rows of each part, and how many of them each class multiplies
    n_features: int
    n_gammas: int
    operands: Operands

    @classmethod
    def of_scan(cls, grid: KernelGrid, support: Support) -> Products:
        d, n_gammas = grid.anchors.n_features, len(grid.gammas)
        height = block_height(d, support.signed_duals.shape[1], n_gammas)
        blocks = BlockGrid(grid.anchors.n_rows, grid.anchors.chunk_rows, height)
        heights = [stop - start for start, stop in map(blocks.bounds, range(len(blocks)))]
        parts = [(len(p.X), [len(p.X) if rows is None else len(rows) for rows in p.rows]) for p in support.parts()]
        highest = max(heights)
        stacked = n_gammas * highest
        sizes = {
            "X": PART_ROWS * (d + 1),
            "anchors": highest * d,
            "bumps": PART_ROWS * stacked,
            "sums": stacked * (d + 1),
        }
        return cls(heights, parts, d, n_gammas, Operands(sizes))

    @property
    def flop(self) -> float:
        """Floating-point operations: two for each multiply-add."""
        d = self.n_features
        an_anchor = sum(n * d + self.n_gammas * sum(duals) * (d + 1) for n, duals in self.parts)
        return 2.0 * an_anchor * sum(self.heights)

    def seconds(self, threads: Threads) -> float:
        """Time of all products, on these threads."""
        started = time.perf_counter()
        threads.run(self.multiply, self.heights)
        return time.perf_counter() - started

    def multiply(self, height: int) -> None:
        """The products of a block; one product serves all gammas, as in the scan."""
        operands, d, stacked = self.operands, self.n_features, self.n_gammas * height
        for n, duals in self.parts:
            X, anchors = operands.get("X", n, d), operands.get("anchors", height, d)
            np.matmul(X, anchors.T, out=operands.get("bumps", n, height))
            for m in duals:
                bumps, weighted = operands.get("bumps", m, stacked), operands.get("X", m, d + 1)
                np.matmul(bumps.T, weighted, out=operands.get("sums", stacked, d + 1))


def line(record: dict[str, Any]) -> str:
    rates = f"{record['scan_gflop_a_s']:6.1f} GFLOP/s {record['matmul_gflop_a_s']:6.1f} GFLOP/s"
    sizes = f"{record['features']:8d} {record['classes']:7d} {record['threads']:7d}"
    return f"{sizes}  {rates} {100 * record['share']:4.0f} %  at least {100 * GOAL:.0f} %"


if __name__ == "__main__":
    main()
