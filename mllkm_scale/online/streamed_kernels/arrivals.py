"""Arriving kernels as lists: locally linear kernels, ids of a grid or of a family, or functions.

Locally linear kernels are normalised to unit trace on arrival, and kernels that are nonzero on almost no sample are
left out, as in a grid (F9). Kernels of a grid or a family are already normalised; functions are not changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.data import Dataset
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.kernels.grid import KernelGrid
from mllkm_scale.kernels.locally_linear import LocallyLinearKernels
from mllkm_scale.kernels.normalisation import trace_scales
from mllkm_scale.mkl.families import KernelFamily
from mllkm_scale.online.streamed_kernels.grams import FamilyKernels, FunctionKernels
from mllkm_scale.online.streamed_kernels.lists import GivenKernels, GridKernels, Kernels

__all__ = ["Arrivals"]


class Arrivals:
    """Admits arriving kernels: `admit` makes a list of them, without excluded kernels.

    Parameters
    ----------
    n_features : int
        Number of features of the samples.
    family : KernelGrid or KernelFamily, optional
        The grid or family to which ids refer.
    reference : array (rows, n_features), optional
        Rows for normalising the mean diagonal of locally linear kernels to one; without them, kernels are not
        normalised.
    """

    def __init__(self, n_features: int, family: KernelGrid | KernelFamily | None, reference: Array | None) -> None:
        self.n_features, self.family, self.reference = n_features, family, reference
        self._first: Kernels | None = None

    def admit(self, batch: Any) -> Kernels:
        kernels = self._listed(batch)
        first = self._first = kernels.take(slice(0)) if self._first is None else self._first
        if type(kernels) is not type(first):
            raise ParameterError(
                f"the stream brings {type(batch).__name__} after kernels of another kind: bring only locally linear"
                " kernels, only ids, or only functions"
            )
        if isinstance(kernels, GivenKernels) and isinstance(first, GivenKernels) and kernels.family != first.family:
            raise ParameterError(
                f"the stream brings kernels of {kernels.family} after some of {first.family}: one machine has kernels"
                " of one family; train one for each"
            )
        return kernels

    def _listed(self, batch: Any) -> Kernels:
        if isinstance(batch, LocallyLinearKernels):
            return self._given(batch)
        if callable(batch):
            return FunctionKernels((batch,))
        if isinstance(batch, list | tuple) and batch and all(callable(k) for k in batch):
            return FunctionKernels(tuple(batch))
        ids = np.atleast_1d(np.asarray(batch)) if _is_plain(batch) else np.empty(0)
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise ParameterError(
                f"the stream brings {type(batch).__name__}: bring locally linear kernels (Family.kernels), ids as"
                " integers, or functions k(X, Z)"
            )
        return self._by_id(ids.astype(np.int64))

    def _given(self, kernels: LocallyLinearKernels) -> GivenKernels:
        if kernels.n_features != self.n_features:
            raise DataError(
                f"a kernel of the stream has an anchor of {kernels.n_features} features, but X has {self.n_features}:"
                " give anchors in the space of X"
            )
        values = (kernels.anchors, kernels.gammas, kernels.scales)
        if not all(np.isfinite(part).all() for part in values) or np.any(kernels.gammas <= 0):
            raise DataError("a kernel of the stream has an anchor or a gamma that is no number: gammas are positive")
        if self.reference is not None:
            kernels = _trace_normalised(kernels, self.reference)
        return GivenKernels(kernels.take(kernels.scales > 0))

    def _by_id(self, ids: Array) -> Kernels:
        family = self.family
        if family is None:
            raise ParameterError("the stream brings ids: say of what, by family=")
        if len(ids) and not (ids.min() >= 0 and ids.max() < len(family)):
            wrong = ids[(ids < 0) | (ids >= len(family))][0]
            raise ParameterError(f"kernel {wrong} of the stream: the family has the ids 0 to {len(family) - 1}")
        ids = ids[family.scales.ravel()[ids] > 0]
        return GridKernels(family, ids) if isinstance(family, KernelGrid) else FamilyKernels(family, ids)


def _trace_normalised(kernels: LocallyLinearKernels, reference: Array) -> LocallyLinearKernels:
    """The kernels with a mean diagonal of one over the reference rows; the scale is 0 if the reach is too small.

    >>> from mllkm_scale.kernels.grid import Family
    >>> kernels = Family("gaussian").kernels(np.zeros((1, 1)), np.ones(1))
    >>> rows = np.linspace(-1.0, 1.0, 40)[:, None]
    >>> round(float(_trace_normalised(kernels, rows).diagonals(rows).mean()), 12)
    1.0
    """
    family = GivenKernels(kernels).family
    scales = np.zeros(len(kernels))
    for gamma in np.unique(kernels.gammas):
        at = kernels.gammas == gamma
        anchors = Dataset.from_arrays(kernels.anchors[at])
        scales[at] = trace_scales(family, anchors, np.array([gamma]), reference)[:, 0]
    return family.kernels(kernels.anchors, kernels.gammas, scales)


def _is_plain(batch: Any) -> bool:
    return isinstance(batch, int | np.integer | np.ndarray | range | list | tuple) and not isinstance(batch, bool)
