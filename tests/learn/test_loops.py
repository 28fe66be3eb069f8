"""Compiled loops of the descent that stand by themselves: steps of groups of parameters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.learn.loops import adam_step, adam_steps


@given(st.lists(st.integers(0, 20), min_size=1, max_size=4), st.integers(1, 50), st.integers(0, 99))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_step_of_all_groups_is_a_step_of_each(dtype, sizes, t, seed):
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=sum(sizes)).astype(dtype) for _ in range(4)]
    arrays[3] = arrays[3] ** 2
    ends, rule = np.cumsum(sizes), np.array([0.9, 0.99, 1e-4])
    rates, ridges = rng.uniform(0.001, 0.1, len(sizes)), rng.uniform(0, 0.1, len(sizes))
    together, apart = [a.copy() for a in arrays], [a.copy() for a in arrays]
    adam_steps(*together, ends, rates, ridges, rule, t)
    for group, (size, end) in enumerate(zip(sizes, ends, strict=True)):
        run = slice(end - size, end)
        adam_step(*(a[run] for a in apart), rates[group], ridges[group], rule, t)
    for one, other in zip(together, apart, strict=True):
        np.testing.assert_array_equal(one, other)
    if sum(sizes):
        assert not np.array_equal(together[0], arrays[0])
