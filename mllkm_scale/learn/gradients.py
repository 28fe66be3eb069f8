"""f of a block of rows, and the derivatives of the hinge with respect to every parameter (F12).

With H the bumps, E = gamma t^2 (or gamma t), T_k = H [w_k, b_k] and G = dL/dF, the global form needs these products:

    forward     Z C'                    distances                        T = H [w, b]         f_k = <[z, 1], T_k>
    backward    d[w, b] = H' dT         dT_k = g_k [z, 1]                dH = dT [w, b]'
                dC = 2 (sum D c - D' Z) D = dH h'(E) dE/dt^2             dZ = 2 (sum D z - D C) + sum_k g_k T_k

and the component-wise form F = Phi [w, b] and dPhi = G [w, b]' with explicit features Phi. Rows beyond the margin of
all classes have no derivative, and are left out of the backward products. A block has its own buffers for all large
arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import DTypeLike

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.maps import falls_exponentially, uses_plain_distance
from mllkm_scale.learn import loops
from mllkm_scale.learn.machine import Layout, LearnedMachine

__all__ = ["Block", "make_block"]


class Block(ABC):
    """Buffers for up to `height` rows of a machine; `gradients` has the layout of its parameters."""

    def __init__(self, layout: Layout, height: int, dtype: DTypeLike = np.float32) -> None:
        self.layout, self.height, self.dtype = layout, height, np.dtype(dtype)
        map_name = layout.family.map
        self.root, self.falls = uses_plain_distance(map_name), falls_exponentially(map_name)
        self.write_to(np.zeros(layout.size, dtype))
        s, K, width = layout.n_kernels, layout.n_outputs, layout.width
        self.Z = np.ones((height, width), dtype)  # [z, 1]
        self.C = np.zeros((s, layout.n_mapped), dtype)
        self.dZ, self.dC = np.zeros((height, width), dtype), np.zeros_like(self.C)
        self.F, self.G = np.zeros((height, K), dtype), np.zeros((height, K), dtype)
        self.active = np.zeros(height, np.int64)

    @abstractmethod
    def decide(self, machine: LearnedMachine, X: Array) -> Array:
        """f (rows, K) of up to `height` rows; overwritten by the next call."""

    @abstractmethod
    def _backward(self, machine: LearnedMachine, X: Array, active: Array) -> None:
        """Set `gradients` from G = dL/dF, which is zero except for the active rows."""

    def write_to(self, gradients: Array) -> None:
        """Write gradients to this array from now on."""
        self.gradients = gradients
        parts = self.layout.views(gradients)
        self.d_predictors, self.d_anchors, self.d_log = parts["predictors"], parts["anchors"], parts["log_gammas"]
        self.d_metric = parts.get("metric")

    def step(self, machine: LearnedMachine, X: Array, signs: Array, share: float) -> tuple[float, int]:
        """Set `gradients` to those of share * sum of the hinge over these rows; `signs` are multiplied by the weights
        of the rows.

        Returns that sum of the hinge, and the number of rows that are within the margin of some class.
        """
        n = len(X)
        F = self.decide(machine, X)
        count, total = loops.hinge(F, signs, share, self.G[:n], self.active)
        if count == 0:
            self.gradients.fill(0.0)
        else:
            self._backward(machine, X, self.active[:count])
        return float(total), count

    def _map_rows(self, machine: LearnedMachine, X: Array) -> Array:
        """[z, 1] of the rows, and c of the anchors."""
        Z = self.Z[: len(X)]
        machine.map(X, out=Z[:, :-1])
        machine.map(machine.anchors, out=self.C)
        return Z

    def _through_metric(self, machine: LearnedMachine, X: Array, active: Array, Z: Array, dZ: Array) -> None:
        """From dL/dZ of the active rows and dL/dC to the derivatives by anchors and metric."""
        if machine.metric is None or self.d_metric is None:
            self.d_anchors[:] = self.dC
        elif machine.layout.linear:
            np.matmul(dZ.T, X[active], out=self.d_metric)
            self.d_metric += self.dC.T @ machine.anchors
            np.matmul(self.dC, machine.metric, out=self.d_anchors)
        else:
            factors = np.exp(machine.metric)
            loops.scaling_gradients(dZ, Z, self.dC, self.C, factors, self.d_anchors, self.d_metric)


class GlobalBlock(Block):
    """One bump for each kernel and row."""

    def __init__(self, layout: Layout, height: int, dtype: DTypeLike = np.float32) -> None:
        super().__init__(layout, height, dtype)
        s, flat = layout.n_kernels, layout.n_outputs * layout.width
        self.E, self.H, self.H_active, self.E_active, self.dH = (np.zeros((height, s), dtype) for _ in range(5))
        self.T, self.dT = np.zeros((height, flat), dtype), np.zeros((height, flat), dtype)
        self.DC = np.zeros((height, layout.n_mapped), dtype)
        self.row_sums, self.column_sums = np.zeros(height, dtype), np.zeros(s, dtype)

    def decide(self, machine: LearnedMachine, X: Array) -> Array:
        n, layout = len(X), self.layout
        Z, E, H, T = self._map_rows(machine, X), self.E[:n], self.H[:n], self.T[:n]
        z = Z[:, :-1]
        np.matmul(z, self.C.T, out=E)
        zz, cc = np.einsum("ij,ij->i", z, z), np.einsum("ij,ij->i", self.C, self.C)
        loops.set_bumps(E, zz, cc, machine.gammas, self.root, self.falls, E, H)
        np.matmul(H, machine.predictors, out=T)
        return np.einsum("ikd,id->ik", T.reshape(n, layout.n_outputs, layout.width), Z, out=self.F[:n])

    def _backward(self, machine: LearnedMachine, X: Array, active: Array) -> None:
        a, n = len(active), len(X)
        H, E, dH, dT, dZ = self.H_active[:a], self.E_active[:a], self.dH[:a], self.dT[:a], self.dZ[:a]
        loops.gather(active, self.G[:n], self.Z[:n], self.H[:n], self.E[:n], self.T[:n], dT, H, E, dZ)
        np.matmul(H.T, dT, out=self.d_predictors)
        np.matmul(dT, machine.predictors.T, out=dH)
        rows = self.row_sums[:a]
        loops.bump_gradients(dH, H, E, machine.gammas, self.root, self.falls, rows, self.column_sums, self.d_log)
        D, z, dz = dH, self.Z[active, :-1], dZ[:, :-1]
        np.matmul(D.T, z, out=self.dC)
        loops.point_gradients(self.dC, self.column_sums, self.C, self.dC, False)
        np.matmul(D, self.C, out=self.DC[:a])
        loops.point_gradients(self.DC[:a], rows, z, dz, True)
        self._through_metric(machine, X, active, z, dz)


class ComponentBlock(Block):
    """One bump for each kernel, component and row."""

    def __init__(self, layout: Layout, height: int, dtype: DTypeLike = np.float32) -> None:
        super().__init__(layout, height, dtype)
        shape = height, layout.n_kernels, layout.width
        self.features, self.d_features = np.zeros(shape, dtype), np.zeros(shape, dtype)

    def _by_output(self, machine: LearnedMachine) -> Array:
        """The predictors as (K, s (d + 1))."""
        s, K, width = self.layout.n_kernels, self.layout.n_outputs, self.layout.width
        return machine.predictors.reshape(s, K, width).transpose(1, 0, 2).reshape(K, -1)

    def decide(self, machine: LearnedMachine, X: Array) -> Array:
        n = len(X)
        z, features = self._map_rows(machine, X)[:, :-1], self.features[:n]
        loops.component_features(z, self.C, machine.gammas, self.root, self.falls, features)
        return np.matmul(features.reshape(n, -1), self._by_output(machine).T, out=self.F[:n])

    def _backward(self, machine: LearnedMachine, X: Array, active: Array) -> None:
        a, (s, K, width) = len(active), (self.layout.n_kernels, self.layout.n_outputs, self.layout.width)
        G, z, dz = self.G[active], self.Z[active, :-1], self.dZ[:a, :-1]
        d_features = self.d_features[:a]
        by_output = G.T @ self.features[active].reshape(a, -1)
        self.d_predictors.reshape(s, K, width)[:] = by_output.reshape(K, s, width).transpose(1, 0, 2)
        np.matmul(G, self._by_output(machine), out=d_features.reshape(a, -1))
        loops.component_gradients(d_features, z, self.C, machine.gammas, self.root, self.falls, dz, self.dC, self.d_log)
        self._through_metric(machine, X, active, z, dz)


def make_block(layout: Layout, height: int, dtype: DTypeLike = np.float32) -> Block:
    """A block for the form of the family."""
    return (ComponentBlock if layout.family.componentwise else GlobalBlock)(layout, height, dtype)
