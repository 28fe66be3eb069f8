"""Dual steps on a block of samples, one sample after the other: LaSVM's process and reprocess, without a bias term.

    g = 1 - y_ik f_k(x_i),      alpha_ik <- max(0, min(C_i, alpha_ik + g / K_ii))

for each sample i of the block in order, and each class k. C_i is the box of the sample, which may have become smaller
since its last step. The Gram matrix of the block updates the outputs of later samples after every step, so the steps
are the same as for samples that arrive one by one.
"""

from __future__ import annotations

import numba

from mllkm_scale.base.arrays import Array

__all__ = ["visit_samples"]


@numba.njit(cache=True, nogil=True)
def visit_samples(gram: Array, signs: Array, boxes: Array, outputs: Array, duals: Array) -> None:
    """Steps in the order of the samples; updates `duals` (b, K) and `outputs` (K, b) in place."""
    for i in range(len(duals)):
        for k in range(len(outputs)):
            # K_ii = 0 if all kernels are zero on the sample: its dual goes to the upper bound.
            new = duals[i, k] + (1.0 - signs[i, k] * outputs[k, i]) / max(gram[i, i], 1e-300)
            new = max(0.0, min(new, boxes[i]))
            change = (new - duals[i, k]) * signs[i, k]
            if change != 0.0:
                duals[i, k] = new
                for j in range(len(duals)):
                    outputs[k, j] += change * gram[i, j]
