"""Blocks of rows and kernels are of a bounded size, whatever the model."""

from __future__ import annotations

import pytest

from mllkm_scale.model.blocks import plan_blocks


@pytest.mark.parametrize("componentwise", [False, True])
@pytest.mark.parametrize("n_kernels", [1, 300, 10**5, 10**7])
@pytest.mark.parametrize("n_features", [1, 50, 784])
def test_a_block_stays_below_64_megabytes(n_kernels, n_features, componentwise):
    plan = plan_blocks(n_kernels, n_features, n_features, componentwise)
    assert plan.block_bytes < 64 << 20
    assert plan.rows in (16, 32, 64, 128, 256)
