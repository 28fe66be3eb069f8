"""Lists of arriving kernels of any kind: the interface for streamed MKL.

    forms       q_m = sum over classes of sum_ij a_i a_j k_m(x_i, x_j)     the price of kernel m at a = alpha y
    responses   sum_i a_i k_m(x, x_i)                                      what kernel m would add to the classifier
    decide      f(x) = sum_m beta_m sum_i a_i k_m(x, x_i)                  the classifier

This file has the locally linear kernels: given by anchors and gammas (`GivenKernels`), or as ids of a grid
(`GridKernels`), which take eight bytes per kernel. They have explicit features; `grams` has kernels without.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.executor import Executor, PlainArrays, Shared, SharedValue
from mllkm_scale.kernels.grid import Family, KernelGrid, RowSource
from mllkm_scale.kernels.locally_linear import ComponentKernels, LocallyLinearKernels
from mllkm_scale.mkl.margins import decide_all

__all__ = ["GivenKernels", "GridKernels", "Kernels", "LocalKernels"]


class Kernels(Protocol):
    """A list of kernels; rows X of the support come with signed duals a (rows, K)."""

    @property
    def unit(self) -> int:
        """Number of kernels whose q is computed at once: it depends only on the kind of the kernels, so that the bits
        do, too."""

    @property
    def n_bytes(self) -> int:
        """Bytes that are sent to a worker."""

    def __len__(self) -> int: ...

    def take(self, index: Array | slice) -> Self:
        """The kernels at these positions."""

    def joined(self, others: Sequence[Self]) -> Self:
        """These kernels, and then those of other lists of the same kind."""

    def keys(self) -> list[Hashable]:
        """Keys that identify the kernels."""

    def flops(self, n_support: int, n_duals: int) -> float:
        """Multiply-adds for q of one kernel; `n_duals` counts the nonzero duals of all classes."""

    def forms(self, X: Array, signed_duals: Array) -> Array:
        """q (s,)."""

    def responses(self, Z: Array, X: Array, signed_duals: Array) -> Array:
        """Responses (K, rows of Z, s)."""

    def decide(self, data: RowSource, X: Array, signed_duals: Array, weights: Array, executor: Executor) -> Array:
        """f (rows of data, K)."""

    def shared(self, executor: Executor) -> Shared[Self]:
        """The list, shared with all members of an executor."""


@dataclass(frozen=True)
class _Arrays(PlainArrays):
    anchors: Array
    gammas: Array
    scales: Array


@dataclass(frozen=True)
class _SharedLocal:
    """Anchors, gammas and scales in a file of the executor."""

    family: Family
    arrays: Shared[_Arrays]

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.arrays.paths

    def get(self) -> GivenKernels:
        arrays = self.arrays.get()
        return GivenKernels(self.family.kernels(arrays.anchors, arrays.gammas, arrays.scales))

    def drop(self) -> None:
        self.arrays.drop()


class LocalKernels(ABC):
    """Locally linear kernels of one family."""

    unit: ClassVar[int] = 512

    @property
    @abstractmethod
    def plain(self) -> LocallyLinearKernels:
        """The kernels in double precision."""

    @property
    @abstractmethod
    def family(self) -> Family: ...

    def flops(self, n_support: int, n_duals: int) -> float:
        d = self.n_features
        bumps = 10 * n_support * (d if self.family.componentwise else 1)
        return float(bumps + n_support * d + n_duals * d)

    @property
    @abstractmethod
    def n_features(self) -> int: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def n_bytes(self) -> int:
        return 8 * len(self) * (self.n_features + 2)

    def forms(self, X: Array, signed_duals: Array) -> Array:
        return self.plain.quadratic_forms(X, signed_duals)

    def responses(self, Z: Array, X: Array, signed_duals: Array) -> Array:
        return self.plain.responses(Z, X, signed_duals)

    def decide(self, data: RowSource, X: Array, signed_duals: Array, weights: Array, executor: Executor) -> Array:
        kernels = self.plain
        return decide_all(self.family, data, kernels, *kernels.coefficients(X, signed_duals, weights), executor)


@dataclass(frozen=True)
class GivenKernels(LocalKernels):
    """Kernels with their anchors."""

    kernels: LocallyLinearKernels

    @property
    def plain(self) -> LocallyLinearKernels:
        return self.kernels

    @property
    def family(self) -> Family:
        return Family(self.kernels.map, isinstance(self.kernels, ComponentKernels), self.kernels.local_bias)

    @property
    def n_features(self) -> int:
        return self.kernels.n_features

    def __len__(self) -> int:
        return len(self.kernels)

    def take(self, index: Array | slice) -> Self:
        return replace(self, kernels=self.kernels.take(index))

    def joined(self, others: Sequence[Self]) -> Self:
        lists = [self.kernels, *(other.kernels for other in others)]
        anchors, gammas, scales = (
            np.concatenate([getattr(kernels, name) for kernels in lists]) for name in ("anchors", "gammas", "scales")
        )
        return replace(self, kernels=self.family.kernels(anchors, gammas, scales))

    def keys(self) -> list[Hashable]:
        rows = zip(self.kernels.anchors, self.kernels.gammas.tolist(), self.kernels.scales.tolist(), strict=True)
        return [(hashlib.blake2b(anchor.tobytes(), digest_size=16).digest(), *numbers) for anchor, *numbers in rows]

    def shared(self, executor: Executor) -> Shared[Any]:
        if not executor.remote:
            return SharedValue(self)
        kernels = self.kernels
        return _SharedLocal(
            self.family, executor.share("kernels", _Arrays(kernels.anchors, kernels.gammas, kernels.scales))
        )


@dataclass(frozen=True)
class GridKernels(LocalKernels):
    """Kernels of a grid by their ids; anchors are read when they are needed."""

    grid: KernelGrid
    ids: Array

    @property
    def plain(self) -> LocallyLinearKernels:
        return self.grid.take(self.ids)

    @property
    def family(self) -> Family:
        return self.grid.family

    @property
    def n_features(self) -> int:
        return self.grid.anchors.n_features

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, index: Array | slice) -> Self:
        return replace(self, ids=self.ids[index])

    def joined(self, others: Sequence[Self]) -> Self:
        return replace(self, ids=np.concatenate([self.ids, *(other.ids for other in others)]))

    def keys(self) -> list[Hashable]:
        return list(self.ids.tolist())

    def shared(self, executor: Executor) -> Shared[Any]:
        return GivenKernels(self.plain).shared(executor) if executor.remote else SharedValue(self)
