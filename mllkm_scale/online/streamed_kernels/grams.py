"""Streamed kernels given by Gram matrices k(X, Z): of a family for plain MKL, or functions of the user.

    q_m = sum over classes of a' K_m a,     responses K_m(Z, X) a,     f = sum_m beta_m K_m(Z, X) a

Each needs the Gram matrix of the support, which is n_sv^2 evaluations; a locally linear kernel needs n_sv.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar, Self

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.executor import Executor, Shared, SharedValue
from mllkm_scale.errors import DataError
from mllkm_scale.kernels.grid import RowSource
from mllkm_scale.mkl.families import KernelFamily

__all__ = ["FamilyKernels", "FunctionKernels", "GramKernels", "KernelFunction"]

KernelFunction = Callable[[Array, Array], Array]
_EVALUATION_FLOPS = 20  # multiply-adds in the time of an entry of a Gram matrix
_BLOCK_ROWS = 1024  # rows that are decided at once


class GramKernels(ABC):
    """Kernels with Gram matrices of any rows."""

    unit: ClassVar[int] = 8

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def n_bytes(self) -> int:
        return 8 * len(self)  # ids or functions are small

    @abstractmethod
    def gram(self, m: int, X: Array, Z: Array) -> Array:
        """k_m(x, z), shape (rows of X, rows of Z)."""

    def grams(self, X: Array) -> list[Array]:
        """All kernels on these rows."""
        return [self.gram(m, X, X) for m in range(len(self))]

    def flops(self, n_support: int, n_duals: int) -> float:
        return float(n_support * (_EVALUATION_FLOPS * n_support + n_duals))

    def forms(self, X: Array, signed_duals: Array) -> Array:
        q = [np.vdot(signed_duals, self.gram(m, X, X) @ signed_duals) for m in range(len(self))]
        return np.maximum(np.array(q), 0.0)

    def responses(self, Z: Array, X: Array, signed_duals: Array) -> Array:
        parts = [self.gram(m, Z, X) @ signed_duals for m in range(len(self))]
        return np.stack([part.T for part in parts], axis=2)

    def decide(self, data: RowSource, X: Array, signed_duals: Array, weights: Array, executor: Executor) -> Array:
        f = np.zeros((data.n_rows, signed_duals.shape[1]))
        for start in range(0, data.n_rows, _BLOCK_ROWS):
            rows = slice(start, min(start + _BLOCK_ROWS, data.n_rows))
            Z = data.part(rows.start, rows.stop).astype(np.float64)
            for m in np.flatnonzero(weights).tolist():
                f[rows] += weights[m] * (self.gram(m, Z, X) @ signed_duals)
        return f

    def shared(self, executor: Executor) -> Shared[Self]:
        return SharedValue(self)


@dataclass(frozen=True)
class FamilyKernels(GramKernels):
    """Kernels of a family by their ids."""

    family: KernelFamily
    ids: Array

    def __len__(self) -> int:
        return len(self.ids)

    def gram(self, m: int, X: Array, Z: Array) -> Array:
        return self.family.combined_gram(self.ids[m : m + 1], np.ones(1), X, Z)

    def take(self, index: Array | slice) -> Self:
        return replace(self, ids=self.ids[index])

    def joined(self, others: Sequence[Self]) -> Self:
        return replace(self, ids=np.concatenate([self.ids, *(other.ids for other in others)]))

    def keys(self) -> list[Hashable]:
        return list(self.ids.tolist())


@dataclass(frozen=True)
class FunctionKernels(GramKernels):
    """Functions k(X, Z) that return Gram matrices of any rows; each must be positive semi-definite."""

    functions: tuple[KernelFunction, ...]

    def __len__(self) -> int:
        return len(self.functions)

    def gram(self, m: int, X: Array, Z: Array) -> Array:
        K = np.asarray(self.functions[m](X, Z), dtype=np.float64)
        if K.shape != (len(X), len(Z)) or not np.isfinite(K).all():
            raise DataError(
                f"kernel {self.functions[m]!r} of the stream gave an array {K.shape} for {len(X)} and {len(Z)} rows:"
                " it must return finite numbers, one for each pair of rows"
            )
        return K

    def take(self, index: Array | slice) -> Self:
        places = np.arange(len(self))[index].tolist()
        return replace(self, functions=tuple(self.functions[m] for m in places))

    def joined(self, others: Sequence[Self]) -> Self:
        return replace(self, functions=tuple(chain(self.functions, *(other.functions for other in others))))

    def keys(self) -> list[Hashable]:
        return [f if isinstance(f, Hashable) else id(f) for f in self.functions]
