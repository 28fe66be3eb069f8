"""Generic kernels for plain MKL: 19 for each component of the input (the paper's experiments on UCI data).

    types  0 to  9   Gaussian        exp(-gamma (x_l - z_l)^2)    ten gammas
    types 10 to 12   homogeneous     (x_l z_l)^p                  p = 1, 2, 3
    types 13 to 18   inhomogeneous   (x_l z_l + c)^p              c = 1/2 and 1, p = 1, 2, 3

The paper says "Gaussian kernels for each component (10 bandwidths)", "homogeneous and inhomogeneous
polynomial kernels of degrees up to 3", and "19 times the dimension"; three homogeneous kernels and two
offsets give this number here. The bandwidths are those of SimpleMKL's experiments, for features of unit
variance.

Kernel `id` uses the component `id // 19` and has the type `id % 19`. A polynomial kernel has the features
x^0 to x^3, hence a form in O(n): q = sum_j e_j M_j^2 with M_j = sum_i a_i x_il^j,
where (t + c)^p = sum_j e_j t^j.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from typing import Literal, Self

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.normalisation import MIN_REACH

__all__ = ["SIMPLEMKL_GAMMAS", "ActiveGeneric", "GenericFamily"]


SIMPLEMKL_GAMMAS = tuple(0.5 / sigma**2 for sigma in (0.5, 1.0, 2.0, 5.0, 7.0, 10.0, 12.0, 15.0, 17.0, 20.0))
"""1 / (2 sigma^2) for the ten bandwidths sigma of SimpleMKL's experiments."""

_POLYNOMIALS = tuple((offset, degree) for offset in (0.0, 0.5, 1.0) for degree in (1, 2, 3))
# Row per polynomial: the coefficients of t^0 to t^3 in (t + c)^p.
_EXPANSIONS = np.array([[comb(p, j) * c ** (p - j) if j <= p else 0.0 for j in range(4)] for c, p in _POLYNOMIALS])
_N_GAUSSIANS = len(SIMPLEMKL_GAMMAS)
KERNELS_PER_COMPONENT = _N_GAUSSIANS + len(_POLYNOMIALS)

_BLOCK_BYTES = 4 << 20  # of the squared differences of a block of rows
_KEPT_BYTES = 256 << 20  # of the Gaussian Grams that the active kernels keep


@dataclass(frozen=True)
class GenericFamily:
    """The 19 kernels of every component; they are never all in memory.

    Parameters
    ----------
    n_features : int
    gammas : array (10,)
        Of the Gaussian kernels.
    normalize : {"trace", None}
        Whether `scales` normalise every kernel to a mean diagonal of one.
    scales : array (19 n_features,)
        Factor of each kernel; 0 excludes it.

    Examples
    --------
    >>> family = GenericFamily.fit(np.array([[1.0, 0.0], [3.0, 0.0]]), normalize=None)
    >>> len(family), family.describe(11), family.gram(11, np.eye(2), 3 * np.eye(2))[0, 0].item()
    (38, '(x_0 z_0)^2', 9.0)
    """

    n_features: int
    gammas: Array
    normalize: Literal["trace"] | None
    scales: Array

    @classmethod
    def fit(cls, X: Array, gammas: Array | None = None, normalize: Literal["trace"] | None = "trace") -> Self:
        """Build the family for these training rows; their diagonals determine the scales.

        A kernel whose reach is below `MIN_REACH` samples is excluded, as in a grid.
        """
        values = np.array(SIMPLEMKL_GAMMAS if gammas is None else gammas, dtype=np.float64)
        if values.shape != (_N_GAUSSIANS,) or not np.all(np.isfinite(values) & (values > 0)):
            raise ParameterError(f"gammas={gammas!r}: give {_N_GAUSSIANS} positive numbers")
        if normalize not in ("trace", None):
            raise ParameterError(f"normalize={normalize!r} is not known: choose 'trace' or None")
        n_features = X.shape[1]
        plain = cls(n_features, values, normalize, np.ones(KERNELS_PER_COMPONENT * n_features))
        if normalize is None:
            return plain
        u = plain.diagonals(np.arange(len(plain)), X)
        total, squares = u.sum(axis=0), np.einsum("ij,ij->j", u, u)
        reaches = total * total > min(MIN_REACH, 0.5 * len(X)) * squares
        scales = np.divide(len(X), total, where=reaches, out=np.zeros(len(plain)))
        return cls(n_features, values, normalize, scales)

    def __len__(self) -> int:
        return KERNELS_PER_COMPONENT * self.n_features

    def describe(self, id: int) -> str:
        """The formula of a kernel, without its scale."""
        component, kind = divmod(int(id), KERNELS_PER_COMPONENT)
        if kind < _N_GAUSSIANS:
            return f"exp(-{self.gammas[kind]:.4g} (x_{component} - z_{component})^2)"
        offset, degree = _POLYNOMIALS[kind - _N_GAUSSIANS]
        shift = f" + {offset:g}" if offset else ""
        return f"(x_{component} z_{component}{shift})" + (f"^{degree}" if degree > 1 else "")

    def gram(self, id: int, X: Array, Z: Array) -> Array:
        """k(x, z) of one kernel, shape (rows of X, rows of Z)."""
        return self.combined_gram(np.array([id]), np.ones(1), X, Z)

    def combined_gram(self, ids: Array, weights: Array, X: Array, Z: Array) -> Array:
        """sum_m beta_m k_m(x, z) over the kernels with these ids, shape (rows of X, rows of Z)."""
        component, kind = np.divmod(np.asarray(ids, dtype=np.int64), KERNELS_PER_COMPONENT)
        factors = weights * self.scales[ids]
        gaussian = kind < _N_GAUSSIANS
        K = np.zeros((len(X), len(Z)))
        # All polynomials of a component add up to one: sum_j e_j (x z)^j.
        expansions = np.zeros((self.n_features, 4))
        polynomials = _EXPANSIONS[kind[~gaussian] - _N_GAUSSIANS]
        np.add.at(expansions, component[~gaussian], factors[~gaussian, None] * polynomials)
        used = np.flatnonzero(expansions.any(axis=1))
        left, right = X[:, used], Z[:, used]
        for j, e in enumerate(expansions[used].T):
            K += (left**j * e) @ (right**j).T
        for l, t, factor in zip(component[gaussian], kind[gaussian], factors[gaussian], strict=True):
            if factor > 0:
                D = np.subtract.outer(X[:, l], Z[:, l])
                K += factor * np.exp(-self.gammas[t] * D * D)
        return K

    def diagonals(self, ids: Array, X: Array) -> Array:
        """k_m(x_i, x_i), shape (n, kernels)."""
        component, kind = np.divmod(np.asarray(ids, dtype=np.int64), KERNELS_PER_COMPONENT)
        u = np.ones((len(X), len(component)))
        at = np.flatnonzero(kind >= _N_GAUSSIANS)
        expansions, squares = _EXPANSIONS[kind[at] - _N_GAUSSIANS], X[:, component[at]] ** 2
        u[:, at] = sum(expansions[:, j] * squares**j for j in range(4))
        return u * self.scales[ids]

    def quadratic_forms(self, X: Array, signed_duals: Array) -> Array:
        """q_m = sum over classes of sum_ij a_i a_j k_m(x_i, x_j) for ALL kernels, shape (kernels,)."""
        support = np.flatnonzero(signed_duals.any(axis=1))
        X, A = X[support], signed_duals[support]
        q = np.empty((self.n_features, KERNELS_PER_COMPONENT))
        q[:, :_N_GAUSSIANS] = self._gaussian_forms(X, A)
        q[:, _N_GAUSSIANS:] = self._moments(X, A) @ _EXPANSIONS.T
        return self.scales * q.ravel()

    def active(self, ids: Array, X: Array) -> ActiveGeneric:
        """The kernels with these ids on these rows, for many weights and duals."""
        return ActiveGeneric(self, np.asarray(ids, dtype=np.int64), X)

    def _moments(self, X: Array, A: Array) -> Array:
        """Sum over classes of M_j^2 with M_j = sum_i a_i x_il^j, shape (n_features, 4)."""
        return np.stack([np.sum((A.T @ X**j) ** 2, axis=0) for j in range(4)], axis=1)

    def _gaussian_forms(self, X: Array, A: Array) -> Array:
        """sum_ij <a_i, a_j> exp(-gamma (x_il - x_jl)^2), (n_features, gammas), from the upper triangle."""
        q = np.zeros((self.n_features, _N_GAUSSIANS))
        for rows in _row_blocks(len(X)):
            P = A[rows] @ A[rows.start :].T
            P[:, len(P) :] *= 2.0
            E = np.empty_like(P)
            for l, x in enumerate(X.T):
                D = np.subtract.outer(x[rows], x[rows.start :])
                D *= D
                for t, gamma in enumerate(self.gammas):
                    np.multiply(D, -gamma, out=E)
                    q[l, t] += np.vdot(np.exp(E, out=E), P)
        return np.maximum(q, 0.0)


class ActiveGeneric:
    """A few kernels on fixed rows: combined Grams for many weights, and forms for many duals.

    Gaussian Gram matrices are kept while they fit into a bound; polynomials need none.
    """

    def __init__(self, family: GenericFamily, ids: Array, X: Array, kept_bytes: int = _KEPT_BYTES) -> None:
        self._family, self._ids, self._X, self._room_bytes = family, ids, X, kept_bytes
        self._component, kind = np.divmod(ids, KERNELS_PER_COMPONENT)
        self._gaussian = np.flatnonzero(kind < _N_GAUSSIANS).tolist()
        self._polynomial = np.flatnonzero(kind >= _N_GAUSSIANS)
        self._expansions = _EXPANSIONS[kind[self._polynomial] - _N_GAUSSIANS]
        self._kept: dict[int, Array] = {}

    def gram(self, weights: Array) -> Array:
        """sum_m beta_m K_m, shape (n, n)."""
        at = self._polynomial
        K = self._family.combined_gram(self._ids[at], weights[at], self._X, self._X)
        for m in self._gaussian:
            if weights[m] > 0:
                K += weights[m] * self._gaussian_gram(m)
        return K

    def forms(self, signed_duals: Array) -> Array:
        """q_m summed over the classes, shape (s,)."""
        q = np.empty(len(self._ids))
        at = self._polynomial
        moments = self._family._moments(self._X, signed_duals)[self._component[at]]
        q[at] = self._family.scales[self._ids[at]] * np.einsum("sj,sj->s", moments, self._expansions)
        for m in self._gaussian:
            q[m] = np.vdot(signed_duals, self._gaussian_gram(m) @ signed_duals)
        return np.maximum(q, 0.0)

    def _gaussian_gram(self, m: int) -> Array:
        K = self._kept.get(m)
        if K is None:
            K = self._family.gram(self._ids[m], self._X, self._X)
            if K.nbytes <= self._room_bytes:
                self._room_bytes -= K.nbytes
                self._kept[m] = K
        return K


def _row_blocks(n: int) -> Iterator[slice]:
    height = max(1, _BLOCK_BYTES // (8 * max(1, n)))
    for start in range(0, n, height):
        yield slice(start, min(start + height, n))
