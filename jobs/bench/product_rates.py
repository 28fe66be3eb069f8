"""Rates of the matrix products of the inner problem on one thread, which the cost model assumes.

    python jobs/bench/product_rates.py [--kernels 600] [--features 50] [--samples 3000] [--repeats 5]

`mllkm_scale/mkl/forms.py` counts multiply-adds, in units of large products in single precision, to compare the forms of
the inner problem. A multiply-add in double precision counts as 2. A sample in an epoch of SDCA on features counts as 2
for each multiply-add of its small products, plus 5e4 for the rest. The form must be the same on every machine, so it is
chosen by these constants. This job shows how far they are from the current machine. Writes results/product_rates.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from common import write

from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.kernels.grid import Family
from mllkm_scale.solver.local_blocks import LocalBlocks
from mllkm_scale.solver.visits import BLOCK_ROWS

LARGE = 1500  # rows and columns of a large product
CALLS = 2.5e4  # multiply-adds of small products that take as long as the rest of a sample's epoch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=600)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--samples", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    with one_blas_thread():
        rates = {
            "large, single": large(np.float32, arguments.repeats),
            "large, double": large(np.float64, arguments.repeats),
            "epoch": epoch(arguments),
        }
    for name, rate in rates.items():
        ratio = rates["large, single"] / rate
        print(f"{name}: {rate / 1e9:.1f} thousand million multiply-adds a second, {ratio:.1f} times as long")
    print(f"written: {write('product_rates', {'rates': rates})}")


def rate_of(work: Callable[[], object], flops: float, repeats: int) -> float:
    """Multiply-adds per second of processor time, the best of several runs."""
    work()
    seconds = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return flops / min(seconds)


def large(dtype: type, repeats: int) -> float:
    matrix = np.random.default_rng(0).random((LARGE, LARGE)).astype(dtype)
    return rate_of(lambda: matrix @ matrix, float(LARGE) ** 3, repeats)


def epoch(arguments: argparse.Namespace) -> float:
    n, s, d = arguments.samples, arguments.kernels, arguments.features
    rng = np.random.default_rng(0)
    X, signs = rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], n)
    kernels = Family("gaussian", False, float(d)).kernels(X[:s].copy(), np.full(s, 0.5 / d))
    samples = LocalBlocks(kernels, np.full(s, 1.0 / s), X, signs, 10.0, np.full(n, 0.1), np.float32)
    return rate_of(
        lambda: samples.epoch(rng.permutation(n)),
        n * (CALLS + s * (3.0 * (d + 1) + 2.0 * BLOCK_ROWS)),
        arguments.repeats,
    )


if __name__ == "__main__":
    main()
