"""The active kernels of a machine that learns online: their weights, and the sums of the samples that it keeps.

    f_k(x) = sum_m beta_m <phi_m(x), v_km>,      v_km = sum_i alpha_ik y_ik phi_m(x_i),      q_m = sum_k |v_km|^2

The steps need only these sums of the earlier samples: O(s d) numbers per class, and no Gram matrix. For given sums, the
best weights are those of the group norm, min over the simplex of sum_m |w_m|^2 / beta_m with w_m = beta_m v_m: beta_m ~
|w_m|.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.gram.blocks import FeatureBlock, GlobalBlock
from mllkm_scale.kernels.locally_linear import GlobalKernels, LocallyLinearKernels
from mllkm_scale.online.steps import visit_samples

__all__ = ["ActiveKernels", "sums_of"]

_ENTERS = 0.2  # of the mean weight: the initial weight of a kernel


def sums_of(kernels: LocallyLinearKernels, X: Array, signed_duals: Array) -> Array:
    """v_km = sum_i a_ik phi_m(x_i), shape (K, s, d + 1)."""
    moments = kernels.moments(X, signed_duals)
    if not isinstance(moments, tuple):
        return np.asarray(moments)
    V, r = moments
    return np.concatenate([V, np.sqrt(kernels.local_bias) * r[:, :, None]], axis=2)


@dataclass
class ActiveKernels:
    """Kernels with weights (s,) that sum to one, and sums (K, s, d + 1)."""

    kernels: LocallyLinearKernels
    weights: Array
    sums: Array

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def n_outputs(self) -> int:
        return len(self.sums)

    def forms(self) -> Array:
        """q_m over all kept samples, shape (s,)."""
        return np.asarray(np.einsum("ksd,ksd->s", self.sums, self.sums))

    def parts(self) -> Array:
        """|w_m| = beta_m sqrt(q_m), the share of each kernel in the machine."""
        return np.asarray(self.weights * np.sqrt(self.forms()))

    def reweigh(self) -> None:
        """Set the best weights for the current sums."""
        parts = self.parts()
        if parts.any():
            self.weights = parts / parts.sum()

    def without_known(self, kernels: LocallyLinearKernels) -> LocallyLinearKernels:
        """The kernels that are not active."""
        mine = self.kernels
        known = {(gamma, anchor.tobytes()) for gamma, anchor in zip(mine.gammas, mine.anchors, strict=True)}
        pairs = zip(kernels.gammas, kernels.anchors, strict=True)
        return kernels.take(np.flatnonzero([(gamma, anchor.tobytes()) not in known for gamma, anchor in pairs]))

    def join(self, kernels: LocallyLinearKernels, sums: Array) -> None:
        """Add kernels with small weights, because the duals are not adapted to them yet."""
        mine = self.kernels
        self.kernels = replace(
            mine,
            anchors=np.concatenate([mine.anchors, kernels.anchors]),
            gammas=np.concatenate([mine.gammas, kernels.gammas]),
            scales=np.concatenate([mine.scales, kernels.scales]),
        )
        self.sums = np.concatenate([self.sums, sums], axis=1)
        weights = np.concatenate([self.weights, np.full(len(kernels), _ENTERS / max(1, len(self)))])
        self.weights = weights / weights.sum()

    def keep(self, at: Array) -> None:
        """Keep only the kernels at these positions."""
        self.kernels, self.sums = self.kernels.take(at), np.ascontiguousarray(self.sums[:, at])
        self.weights = self.weights[at] / self.weights[at].sum()

    def visit(self, X: Array, signs: Array, boxes: Array, duals: Array) -> tuple[Array, Array]:
        """Dual steps on a block of samples; changes the duals (b, K), which the boxes (b,) bound.

        Returns the outputs (b, K) before the steps, and those after them.
        """
        block = self._block(X)
        before, outputs = duals.copy(), block.outputs(self)
        after = outputs.T.copy(order="C")
        visit_samples(block.gram(self.weights), signs, boxes, after, duals)
        block.add(self.sums, (duals - before) * signs)
        return outputs, after.T

    def outputs(self, X: Array) -> Array:
        """f (n, K)."""
        return self._block(X).outputs(self)

    def add(self, X: Array, signed_duals: Array) -> None:
        """Add samples with these signed duals (n, K) to the sums; negated duals remove them."""
        self._block(X).add(self.sums, signed_duals)

    def coefficients(self) -> tuple[Array, Array]:
        """coef (K, s, d) and local_coef (K, s), folded as in a model."""
        folded = self.sums * (self.weights * np.sqrt(self.kernels.scales))[:, None]
        return folded[:, :, :-1].copy(), np.sqrt(self.kernels.local_bias) * folded[:, :, -1]

    def copy(self) -> ActiveKernels:
        return ActiveKernels(self.kernels, self.weights.copy(), self.sums.copy())

    def _block(self, X: Array) -> _GlobalRows | _FeatureRows:
        kernels = self.kernels
        return _GlobalRows(kernels, X) if isinstance(kernels, GlobalKernels) else _FeatureRows(kernels, X)


class _GlobalRows(GlobalBlock):
    """A block of samples on global kernels, computed from the bumps."""

    def __init__(self, kernels: GlobalKernels, X: Array) -> None:
        super().__init__(kernels, X, np.ones(len(X)))

    def outputs(self, active: ActiveKernels) -> Array:
        V, r = active.sums[:, :, :-1], active.sums[:, :, -1]
        K, s, width = active.sums.shape
        table = np.empty((s, K, width))
        table[:, :, :-1] = V.transpose(1, 0, 2)
        table[:, :, -1] = (np.sqrt(self._bias) * r - np.einsum("ksd,sd->ks", V, self._anchors)).T
        table *= active.weights[:, None, None]
        products = (self._H @ table.reshape(s, -1)).reshape(len(self._X), K, width)
        return np.asarray(np.einsum("ikd,id->ik", products[:, :, :-1], self._X) + products[:, :, -1])

    def add(self, sums: Array, signed_duals: Array) -> None:
        for k, a in enumerate(signed_duals.T):
            at = np.flatnonzero(a)
            if len(at):
                mass = self._H[at] * a[at, None]
                r = mass.sum(axis=0)
                sums[k, :, :-1] += mass.T @ self._X[at] - r[:, None] * self._anchors
                sums[k, :, -1] += np.sqrt(self._bias) * r


class _FeatureRows(FeatureBlock):
    """A block of samples on kernels with explicit features: the component-wise families."""

    def __init__(self, kernels: LocallyLinearKernels, X: Array) -> None:
        super().__init__(kernels.features(X), np.ones(len(X)))

    def outputs(self, active: ActiveKernels) -> Array:
        w = (active.sums * active.weights[:, None]).reshape(active.n_outputs, -1)
        return np.asarray(self._features.reshape(len(self.signs), -1) @ w.T)

    def add(self, sums: Array, signed_duals: Array) -> None:
        for k, a in enumerate(signed_duals.T):
            at = np.flatnonzero(a)
            if len(at):
                sums[k] += np.tensordot(a[at], self._features[at], 1)
