"""The fingerprint of a problem: by its prepared rows, its labels, and the parameters that affect the result.

A checkpoint has the fingerprint of its problem, and no other problem is continued from it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.executor import Executor, ThreadExecutor
from mllkm_scale.data import Dataset
from mllkm_scale.params import Params

__all__ = ["DigestWork", "fingerprint_of"]

_ADDED = ("max_bytes", "max_features")  # newer parameters: without them, fingerprints must stay as they were
_RESULT_FREE = (
    "class_weight",  # it affects the problem by the weights of the rows
    "tol",
    "max_kernels",
    "max_rounds",
    "time_limit",
    "memory_budget",
    "scratch_dir",
    "n_jobs",
    "worker_timeout",
    "verbose",
    "reduction",
)  # parameters that a resumed training run may change, or whose effect is in the prepared rows


@dataclass(frozen=True)
class DigestWork:
    """Compute digests of the chunks of the prepared rows."""

    data: Dataset

    @property
    def unit_work(self) -> float:
        return 4.0 * self.data.chunk_rows * self.data.n_features

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.data.paths

    def __call__(self, units: range) -> bytes:
        return b"".join(hashlib.blake2b(self.data.chunk(unit).data, digest_size=16).digest() for unit in units)

    def describe(self, units: range) -> str:
        return f"chunks {units[0]} to {units[-1]} of the prepared rows, of which a digest is taken"


def fingerprint_of(
    params: Params,
    data: Dataset,
    signs: Array,
    weights: Array | None,
    seed: int,
    n_learned: int,
    executor: Executor | None = None,
) -> str:
    """Identifies the problem: equal for equal prepared data and equal parameters that affect the result.

    `max_kernels` matters if it bounds the number of learned kernels.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, value in sorted(vars(params).items()):
        if name not in _RESULT_FREE and not (name in _ADDED and value is None):
            digest.update(f"{name}={np.asarray(value).tolist()!r};".encode())
    digest.update(f"seed={seed};{data.n_rows}x{data.n_features};learned={n_learned};".encode())
    digest.update(np.packbits(signs > 0).tobytes())
    if weights is not None:
        digest.update(np.ascontiguousarray(weights).data)
    if data.n_chunks == 1:
        digest.update(data.chunk(0).data)
        return digest.hexdigest()
    for digests in (executor or ThreadExecutor()).start(DigestWork(data), data.n_chunks):
        digest.update(digests)
    return digest.hexdigest()
