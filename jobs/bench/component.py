"""The scan of component-wise kernels by one-dimensional sums, compared with direct evaluation by blocked NumPy.

    python jobs/bench/component.py [--rows 20000] [--support 3000] [--sample 60] [--repeats 3]

MNIST after a projection to 50 components, all rows as anchors, five gammas, one class and ten; the duals are random,
because the time of a scan does not depend on them. Direct evaluation, by the explicit features in blocks of 16 MB, is
timed on a sample of the anchors and EXTRAPOLATED to all of them. Times are CPU seconds of one thread, the smallest of
the repeats, so that other load has little effect; compilation is excluded. Deviations are relative to the largest form
of the same gamma. Writes results/component.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import load, write

from mllkm_scale import Dataset
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.data import Preprocessor, prepare
from mllkm_scale.kernels.gammas import auto_gammas
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import MAPS
from mllkm_scale.scan.component.sums import ComponentSums
from mllkm_scale.scan.support import Support
from mllkm_scale.scan.work import COMPONENT_HEIGHT, component_bytes

COMPONENTS = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--support", type=int, default=3_000, help="support vectors")
    parser.add_argument("--sample", type=int, default=60, help="anchors that are evaluated directly")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    raw = Dataset.from_arrays(load("mnist")["X"][: arguments.rows])
    data = prepare(raw, Preprocessor.fit(raw, "none", COMPONENTS), in_memory=True)
    anchors = data.rows(np.arange(arguments.rows)).astype(np.float64)
    rng = np.random.default_rng(0)
    X = anchors[np.sort(rng.permutation(len(anchors))[: arguments.support])]
    sample = np.sort(rng.permutation(len(anchors))[: arguments.sample])
    found: dict[str, Any] = {}
    with one_blas_thread():
        for n_classes, density in ((1, 1.0), (10, 0.15)):
            shape = (len(X), n_classes)
            support = Support.of(X, rng.normal(size=shape) * (rng.uniform(size=shape) < density), np.dtype(np.float64))
            for name in MAPS:
                record = measure(Family(name, True, local_bias=1.0), support, anchors, sample, arguments.repeats)
                found[f"{name}, {n_classes} class{'es' * (n_classes > 1)}"] = record
    for name, record in found.items():
        print(
            f"{name}: direct {record['direct_s_extrapolated']:.0f} s (extrapolated), sums {record['sums_s']:.2f} s"
            f" ({record['making_s']:.2f} s of it for the tables): {record['ratio']:.0f} times as fast,"
            f" largest deviation {record['deviation']:.1e}, {record['table_bytes'] / 1e6:.0f} MB"
        )
    print(f"written: {write('component', {'setting': vars(arguments), 'maps': found})}")


def measure(
    family: Family, support: Support, anchors: np.ndarray, sample: np.ndarray, repeats: int
) -> dict[str, float | int]:
    """Both ways for one map, all anchors and all gammas."""
    seen = support.relative(anchors)
    gammas = auto_gammas(family, seen[:1000])
    X, a = support.X, support.signed_duals

    def make() -> ComponentSums:
        return ComponentSums.of(family.map, X, a, gammas)

    def scan(sums: ComponentSums) -> np.ndarray:
        starts = range(0, len(seen), COMPONENT_HEIGHT)
        return np.concatenate([sums.forms(seen[at : at + COMPONENT_HEIGHT], family.local_bias) for at in starts])

    def direct() -> np.ndarray:
        kernels = (family.kernels(seen[sample], np.full(len(sample), gamma)) for gamma in gammas)
        return np.stack([each.quadratic_forms(X, a) for each in kernels], axis=1)

    sums = make()
    sums.forms(seen[:2], family.local_bias)  # compiles
    making_s, sums = least(make, repeats)
    scanning_s, q = least(lambda: scan(sums), repeats)
    direct_s, expected = least(direct, repeats)
    direct_s *= len(seen) / len(sample)
    return {
        "direct_s_extrapolated": direct_s,
        "making_s": making_s,
        "sums_s": making_s + scanning_s,
        "ratio": direct_s / (making_s + scanning_s),
        "deviation": float(np.max(np.abs(q[sample] - expected).max(axis=0) / q.max(axis=0))),
        "table_bytes": table_bytes(sums),
        "table_bytes_at_most": component_bytes(len(X), X.shape[1], a.shape[1], family.map, len(gammas)),
    }


def least(work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """CPU seconds of the fastest repeat, and its result."""
    times = []
    for _ in range(repeats):
        started = time.thread_time()
        result = work()
        times.append(time.thread_time() - started)
    return min(times), result


def table_bytes(value: Any) -> int:
    """Bytes of all arrays in these tables."""
    held: dict[int, int] = {}

    def visit(part: Any) -> None:
        if isinstance(part, np.ndarray):
            held[id(part)] = part.nbytes
        elif isinstance(part, tuple):
            for each in part:
                visit(each)
        elif hasattr(part, "__dict__"):
            visit(tuple(vars(part).values()))

    visit(value)
    return sum(held.values())


if __name__ == "__main__":
    main()
