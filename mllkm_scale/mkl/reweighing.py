"""Kernel weights that follow the duals: the closed form  beta_m ~ beta_m q_m^(omega / 2), with a step of its own for
each kernel.

With omega = 1, the new weights are the minimum of P for the w_m of these duals. Repeated, the closed form converges
slowly: a kernel whose form is 3 % above the mean gains 1.5 % of weight. So the exponent of a kernel grows while its
form stays on the same side of the mean, and shrinks when the form changes sides, as in the sign-based method Rprop. A
single larger exponent for all kernels does not work. Narrow kernels are large on few samples, whose duals respond to
the smallest change of a weight; with omega = 1.8 they oscillate, while wide kernels could take several times as much.
"""

from __future__ import annotations

import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["Reweighing"]


_FIRST, _LEAST, _MOST = 0.9, 0.03, 4.0  # exponents; 0.5 is the closed form itself
_LONGER, _SHORTER = 1.1, 0.7  # factors of an exponent
_LIFTED = 0.1  # of an equal share: the least weight of kernels that should have more
_SMALLEST = 1e-9  # of the largest weight: the least weight, from which a kernel can come back


class Reweighing:
    """Positive weights of sum 1 that are updated by the forms q of successive duals."""

    def __init__(self, n_kernels: int) -> None:
        self._exponents = np.full(n_kernels, _FIRST)
        self._sides = np.zeros(n_kernels)  # of the mean, on which the forms were

    def __call__(self, weights: Array, forms: Array) -> Array:
        """The next weights.

        The weight of a kernel with a form above the mean grows only by a factor per update. So a very small weight
        would keep the largest q, and with it D, far from the optimum for long. Such a kernel therefore gets a minimal
        share, which depends on its form.
        """
        mean = float(weights @ forms)
        if mean > 0.0:  # zero duals give no information
            ratios = forms / mean
            self._adapt(np.sign(ratios - 1.0))
            weights = weights * ratios**self._exponents
            weights /= weights.sum()
            weights = np.maximum(weights, np.minimum(ratios - 1.0, _LIFTED) / len(weights))
        weights = np.maximum(weights, _SMALLEST * weights.max())
        return np.asarray(weights / weights.sum())

    def _adapt(self, sides: Array) -> None:
        """Longer steps for kernels that are on the same side as before, and shorter ones for those that changed."""
        same = sides * self._sides
        factors = np.where(same > 0, _LONGER, np.where(same < 0, _SHORTER, 1.0))
        self._exponents = np.clip(self._exponents * factors, _LEAST, _MOST)
        self._sides = sides
