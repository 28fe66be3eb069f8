"""BLAS: which library, how many threads it would take, and how fast products are on one and on all threads.

Training gives each of its threads products of its own, with one BLAS thread each; so they are timed here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from mllkm_scale.doctor.findings import Finding
from mllkm_scale.team import Team, n_threads, one_blas_thread

__all__ = ["check_blas", "check_products", "giga_operations_per_s"]

SIDE = 512
TIMED_S = 0.25
SLOW = 1.0  # 1e9 operations a second on one thread: a BLAS that was made for the processor does ten times that
POOR_GAIN = 0.5  # of what the threads would give if each were as fast as one alone


def check_blas() -> Iterator[Finding]:
    """The libraries that do the products."""
    import scipy.linalg  # noqa: F401 - it brings a library of its own
    from threadpoolctl import threadpool_info

    found = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    if not found:
        yield Finding("BLAS", "warning", "no library that can be told its threads", "install NumPy from its wheel")
    for pool in {_name(pool): pool for pool in found}.values():
        yield Finding("BLAS", "ok", f"{_name(pool)}, {pool['num_threads']} threads outside of training, 1 a task in it")


def _name(pool: dict[str, Any]) -> str:
    words = [str(pool["internal_api"]), str(pool["version"]), str(pool.get("architecture") or "")]
    return " ".join(word for word in words if word)


def check_products() -> Iterator[Finding]:
    """Speed of products on one thread, and on as many as there are cores."""
    threads = n_threads(-1)
    one = giga_operations_per_s(1)
    everywhere = one if threads == 1 else giga_operations_per_s(threads)
    text = f"{one:.1f} GFlop/s on 1 thread"
    if threads > 1:
        text += f", {everywhere:.1f} on {threads}"
    if one < SLOW:
        yield Finding("products", "warning", text, "install NumPy from its wheel, whose BLAS fits the processor")
    elif everywhere < POOR_GAIN * threads * one:
        yield Finding(
            "products", "warning", text, "the cores are busy or share their units; end other programs, or lower n-jobs"
        )
    else:
        yield Finding("products", "ok", text)


def giga_operations_per_s(threads: int) -> float:
    """Floating-point operations a second, in 1e9, of products that so many threads do side by side."""
    factors = np.random.default_rng(0).random((threads, SIDE, SIDE))
    results = np.empty_like(factors)

    def multiply(place: int) -> int:
        end_s, done = time.perf_counter() + TIMED_S, 0
        while time.perf_counter() < end_s:
            np.matmul(factors[place], factors[place], out=results[place])
            done += 1
        return done

    with one_blas_thread(), Team(threads) as team:
        np.matmul(factors[0], factors[0], out=results[0])
        begun_s = time.perf_counter()
        products = sum(team.run(multiply, range(threads)))
        return 2.0 * SIDE**3 * products / (time.perf_counter() - begun_s) / 1e9
