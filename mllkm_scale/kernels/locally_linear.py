"""Locally linear kernels with given anchors and gammas: feature maps, combined Grams, coefficients, decisions.

    global:          phi_m(x)   = h(|x - c_m|) (x - c_m),          and h(|x - c_m|) sqrt(b)
    component-wise:  phi_m(x)_l = h(|x_l - c_ml|) (x_l - c_ml),    and mean_l h(|x_l - c_ml|) sqrt(b)

The last component exists if the local bias b is positive. Each kernel k_m(x, z) = <phi_m(x), phi_m(z)> is
multiplied by its `scale` (the normalisation), so phi_m is multiplied by sqrt(scale).

Sums over samples read each block of rows once, so the rows may be on disk (`Rows`). The kernels are divided into tasks
whose bumps stay in the caches; threads may share the tasks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.threads import Threads
from mllkm_scale.kernels.distances import ROW_BLOCK, row_blocks, squared_distances
from mllkm_scale.kernels.maps import MapName, bumps
from mllkm_scale.kernels.picked_rows import Rows
from mllkm_scale.kernels.predictors import ComponentPredictors, GlobalPredictors, Predictors

__all__ = [
    "FEATURE_BLOCK_BYTES",
    "TASK_BYTES",
    "ComponentKernels",
    "GlobalKernels",
    "LocallyLinearKernels",
    "kernels_at_once",
]

FEATURE_BLOCK_BYTES = 16 << 20  # features of component-wise kernels are made in blocks of about this size
_SUMS_BYTES = 16 << 20  # and likewise the sums v_m of kernels that are evaluated, for all classes
_LEAST_KERNELS = 32
TASK_BYTES = 2 << 20  # of the bumps of a task, and likewise of its features
_ALONE = Threads()


def kernels_at_once(n_features: int, n_classes: int) -> int:
    """Number of kernels evaluated at once. It depends on the problem alone, and so do the bits."""
    return max(_LEAST_KERNELS, _SUMS_BYTES // (8 * n_classes * (n_features + 1)))


@dataclass(frozen=True)
class LocallyLinearKernels(ABC):
    """A list of s kernels: anchors (s, d), gammas (s,), scales (s,), one map and one local bias for all."""

    map: MapName
    anchors: Array
    gammas: Array
    scales: Array
    local_bias: float

    def __len__(self) -> int:
        return len(self.gammas)

    @property
    def n_features(self) -> int:
        return int(self.anchors.shape[1])

    def take(self, index: Array | slice) -> Self:
        """The kernels at these positions."""
        return replace(self, anchors=self.anchors[index], gammas=self.gammas[index], scales=self.scales[index])

    @abstractmethod
    def features(self, X: Array) -> Array:
        """phi of every kernel, (n, s, d + 1); the last component is zero without a local bias."""

    @abstractmethod
    def diagonals(self, X: Array) -> Array:
        """k_m(x_i, x_i), shape (n, s)."""

    @abstractmethod
    def moments(self, X: Rows, signed_duals: Array, threads: Threads = _ALONE) -> Any:
        """Sums over the samples of a_i phi_m(x_i) for each class, in the layout of the family."""

    def _add_up(self, sums: tuple[Array, ...], X: Rows, signed_duals: Array, width: int, threads: Threads) -> None:
        """Add all rows to sums (K, s, ...), task by task; each row and kernel has `width` numbers."""
        step = max(1, TASK_BYTES // (8 * ROW_BLOCK * width))
        parts = [slice(start, start + step) for start in range(0, len(self), step)]
        tasks = [(self.take(part), tuple(values[:, part] for values in sums)) for part in parts]
        for rows in row_blocks(len(X)):
            x, a = X[rows].astype(np.float64, copy=False), signed_duals[rows]
            threads.run(partial(_add_block, x, a), tasks)

    @abstractmethod
    def _add_rows(self, sums: tuple[Array, ...], x: Array, signed_duals: Array) -> None:
        """Add a block of rows to the sums."""

    @abstractmethod
    def coefficients(self, X: Rows, signed_duals: Array, weights: Array) -> tuple[Array, Array]:
        """w_m = beta_m sum_i a_i phi_m(x_i) folded for inference: coef (K, s, d) and local_coef (K, s).

        `signed_duals` is a = alpha y, (n, K); `weights` is beta, (s,) or (K, s). The factors sqrt(scale) and
        sqrt(b) of phi are in the coefficients already, so `decide` needs the bumps only.
        """

    def responses(self, X: Array, support: Rows, signed_duals: Array, threads: Threads = _ALONE) -> Array:
        """<phi_m(x), v_m> with v_m = sum_i a_i phi_m(x_i) over the support, shape (K, rows of X, s).

        This is the function that kernel m would add to the classifier. Kernels with parallel responses are duplicates.
        """
        out = np.empty((signed_duals.shape[1], len(X), len(self)))
        for at in self._parts(signed_duals.shape[1]):
            out[:, :, at] = self.take(at)._responses(X, support, signed_duals, threads)
        return out

    def quadratic_forms(self, X: Rows, signed_duals: Array, threads: Threads = _ALONE) -> Array:
        """q_m = sum over classes of sum_ij a_i a_j k_m(x_i, x_j), shape (s,)."""
        parts = self._parts(signed_duals.shape[1])
        return np.concatenate([self.take(at)._forms(X, signed_duals, threads) for at in parts])

    def _parts(self, n_classes: int) -> Iterator[slice]:
        """Runs of kernels that are evaluated at once."""
        step = kernels_at_once(self.n_features, n_classes)
        return (slice(start, start + step) for start in range(0, max(1, len(self)), step))

    @abstractmethod
    def _responses(self, X: Array, support: Rows, signed_duals: Array, threads: Threads) -> Array:
        """The responses of all kernels at once."""

    @abstractmethod
    def _forms(self, X: Rows, signed_duals: Array, threads: Threads) -> Array:
        """The quadratic forms of all kernels at once."""

    @abstractmethod
    def predictors(self, coef: Array, local_coef: Array) -> Predictors:
        """f_k(x) = sum_m h_m(x) (<x - c_m, coef_km> + local_coef_km); component-wise likewise."""

    def decide(self, X: Array, coef: Array, local_coef: Array) -> Array:
        """f (n, K) of the `predictors` with these coefficients."""
        return self.predictors(coef, local_coef).decide(X)

    @abstractmethod
    def combined_gram(self, weights: Array, X: Array, Z: Array) -> Array:
        """sum_m beta_m k_m(x, z), shape (rows of X, rows of Z)."""


def _add_block(x: Array, signed_duals: Array, task: tuple[LocallyLinearKernels, tuple[Array, ...]]) -> None:
    kernels, sums = task
    kernels._add_rows(sums, x, signed_duals)


class GlobalKernels(LocallyLinearKernels):
    """One bump per kernel; everything is computed from the matrix of bumps H and products with it (F1, F2)."""

    def bumps(self, X: Array) -> Array:
        """H (n, s), the scale included: H_im = sqrt(scale_m) h(|x_i - c_m|; gamma_m)."""
        H = squared_distances(X, self.anchors)
        bumps(self.map, H, self.gammas, out=H)
        H *= np.sqrt(self.scales)
        return H

    def features(self, X: Array) -> Array:
        H = self.bumps(X)
        phi = np.empty((*H.shape, self.n_features + 1))
        np.multiply(H[:, :, None], X[:, None, :] - self.anchors, out=phi[:, :, :-1])
        np.multiply(H, np.sqrt(self.local_bias), out=phi[:, :, -1])
        return phi

    def diagonals(self, X: Array) -> Array:
        D = squared_distances(X, self.anchors)
        H = bumps(self.map, D.copy(), self.gammas)
        return self.scales * H * H * (D + self.local_bias)

    def moments(self, X: Rows, signed_duals: Array, threads: Threads = _ALONE) -> tuple[Array, Array]:
        """V (K, s, d) and r (K, s): sums of a_i H_im (x_i - c_m) and of a_i H_im."""
        V = np.zeros((signed_duals.shape[1], len(self), self.n_features))
        r = np.zeros((signed_duals.shape[1], len(self)))
        self._add_up((V, r), X, signed_duals, 1, threads)
        for k in range(len(V)):
            V[k] -= r[k][:, None] * self.anchors
        return V, r

    def _add_rows(self, sums: tuple[Array, ...], x: Array, signed_duals: Array) -> None:
        (V, r), H = sums, self.bumps(x)
        for k, a in enumerate(signed_duals.T):
            at = np.flatnonzero(a)
            V[k] += (H[at] * a[at, None]).T @ x[at]
            r[k] += a[at] @ H[at]

    def coefficients(self, X: Rows, signed_duals: Array, weights: Array) -> tuple[Array, Array]:
        V, r = self.moments(X, signed_duals)
        factors = np.broadcast_to(weights * np.sqrt(self.scales), r.shape)
        V *= factors[:, :, None]
        return V, self.local_bias * r * factors

    def _responses(self, X: Array, support: Rows, signed_duals: Array, threads: Threads) -> Array:
        X = X.astype(np.float64, copy=False)
        V, r = self.moments(support, signed_duals, threads)
        offsets = self.local_bias * r - np.einsum("ksd,sd->ks", V, self.anchors)
        return self.bumps(X) * (np.einsum("nd,ksd->kns", X, V, optimize=True) + offsets[:, None, :])

    def predictors(self, coef: Array, local_coef: Array) -> Predictors:
        return GlobalPredictors.of(self.map, self.anchors, self.gammas, coef, local_coef)

    def combined_gram(self, weights: Array, X: Array, Z: Array) -> Array:
        root = np.sqrt(weights)
        A, C = self.bumps(X) * root, self.bumps(Z) * root
        half = 0.5 * (np.einsum("ij,ij->i", self.anchors, self.anchors) + self.local_bias)
        B, E = A * (X @ self.anchors.T - half), C * (Z @ self.anchors.T - half)
        return (X @ Z.T) * (A @ C.T) - B @ C.T - A @ E.T

    def _forms(self, X: Rows, signed_duals: Array, threads: Threads) -> Array:
        V, r = self.moments(X, signed_duals, threads)
        return np.einsum("ksd,ksd->s", V, V) + self.local_bias * np.einsum("ks,ks->s", r, r)


class ComponentKernels(LocallyLinearKernels):
    """One bump per kernel and component; everything is computed from the explicit features."""

    def features(self, X: Array) -> Array:
        phi = np.empty((len(X), len(self), self.n_features + 1))
        offsets = X[:, None, :] - self.anchors
        H = offsets * offsets
        bumps(self.map, H, self.gammas[:, None], out=H)
        np.mean(H, axis=2, out=phi[:, :, -1])
        phi[:, :, -1] *= np.sqrt(self.local_bias)
        np.multiply(H, offsets, out=phi[:, :, :-1])
        phi *= np.sqrt(self.scales)[:, None]
        return phi

    @property
    def _rows_at_once(self) -> int:
        return max(1, FEATURE_BLOCK_BYTES // (8 * max(1, len(self)) * (self.n_features + 1)))

    def _blocks(self, X: Rows) -> list[slice]:
        rows = self._rows_at_once
        return [slice(start, start + rows) for start in range(0, len(X), rows)]

    def diagonals(self, X: Array) -> Array:
        phi = [self.features(X[rows]) for rows in self._blocks(X)]
        return np.concatenate([np.einsum("ijk,ijk->ij", p, p) for p in phi])

    def moments(self, X: Rows, signed_duals: Array, threads: Threads = _ALONE) -> Array:
        """V (K, s, d + 1): sums of a_i phi_m(x_i)."""
        V = np.zeros((signed_duals.shape[1], len(self), self.n_features + 1))
        self._add_up((V,), X, signed_duals, self.n_features + 1, threads)
        return V

    def _add_rows(self, sums: tuple[Array, ...], x: Array, signed_duals: Array) -> None:
        V = sums[0]
        V += np.tensordot(signed_duals.T, self.features(x), 1)

    def coefficients(self, X: Rows, signed_duals: Array, weights: Array) -> tuple[Array, Array]:
        V = self.moments(X, signed_duals)
        V *= np.broadcast_to(weights * np.sqrt(self.scales), V.shape[:2])[:, :, None]
        return np.ascontiguousarray(V[:, :, :-1]), np.sqrt(self.local_bias) * V[:, :, -1]

    def _responses(self, X: Array, support: Rows, signed_duals: Array, threads: Threads) -> Array:
        V = self.moments(support, signed_duals, threads)
        parts = [np.einsum("nsp,ksp->kns", self.features(X[rows]), V, optimize=True) for rows in self._blocks(X)]
        return np.concatenate(parts, axis=1)

    def predictors(self, coef: Array, local_coef: Array) -> Predictors:
        plain = replace(self, scales=np.ones(len(self)), local_bias=1.0)
        folded = np.concatenate([coef, local_coef[:, :, None]], axis=2).reshape(len(coef), -1)
        return ComponentPredictors(plain.features, folded, plain._rows_at_once)

    def combined_gram(self, weights: Array, X: Array, Z: Array) -> Array:
        K = np.empty((len(X), len(Z)))
        for columns in self._blocks(Z):
            right = self.features(Z[columns]) * weights[:, None]
            right = right.reshape(len(right), -1)
            for rows in self._blocks(X):
                left = self.features(X[rows])
                K[rows, columns] = left.reshape(len(left), -1) @ right.T
        return K

    def _forms(self, X: Rows, signed_duals: Array, threads: Threads) -> Array:
        V = self.moments(X, signed_duals, threads)
        return np.einsum("ksd,ksd->s", V, V)
