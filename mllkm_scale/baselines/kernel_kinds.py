"""The three kinds of kernels of localized multiple kernel learning, each perhaps divided by its mean diagonal.

linear <x, z>        polynomial (<x, z> + 1)^2        gaussian exp(-|x - z|^2 / width^2)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from mllkm_scale.base.arrays import Array

__all__ = ["KINDS", "Kind", "kinds_of"]


KINDS = ("linear", "polynomial", "gaussian")


@dataclass(frozen=True)
class Kind:
    """One kind of kernel, what it is divided by, and which kernels of the machine are of it."""

    name: str
    members: Array
    width: float
    scale: float = 1.0

    def gram(self, X: Array, Z: Array) -> Array:
        """K (n, m) of two sets of rows."""
        if self.name == "gaussian":
            gram = np.exp(euclidean_distances(X, Z, squared=True) / -(self.width**2))
        else:
            gram = X @ Z.T
            if self.name == "polynomial":
                gram = (gram + 1.0) ** 2
        return np.asarray(gram / self.scale)

    def mean_diagonal(self, X: Array) -> float:
        """Mean of K(x, x) over the rows."""
        if self.name == "gaussian":
            return 1.0
        squares = np.einsum("ij,ij->i", X, X)
        return float(np.mean(squares if self.name == "linear" else (squares + 1.0) ** 2)) or 1.0


def kinds_of(X: Array, kernels: Sequence[str], width: float | str, normalize: bool) -> list[Kind]:
    """The kinds among the kernels, in the order of KINDS."""
    names = np.asarray(kernels)
    found = []
    for name in KINDS:
        members = np.flatnonzero(names == name)
        if len(members) == 0:
            continue
        radius = (nearest_distance(X) if width == "auto" else float(width)) if name == "gaussian" else 1.0
        kind = Kind(name, members, radius)
        found.append(replace(kind, scale=kind.mean_diagonal(X)) if normalize else kind)
    return found


def nearest_distance(X: Array) -> float:
    """Mean distance of a row to its nearest other row."""
    distances = euclidean_distances(X)
    np.fill_diagonal(distances, np.inf)
    mean = float(distances.min(axis=1).mean())
    return mean if 0.0 < mean < np.inf else 1.0
