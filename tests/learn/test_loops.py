"""Compiled loops of the descent that stand by themselves: kernels that are left out of a step, and steps of groups."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.learn.loops import adam_step, adam_steps, draw_dropout

SEEDS, STEPS = st.integers(0, 2**31 - 1), st.integers(0, 10**6)
SHARES = st.floats(0.05, 0.95)


def drawn(seed, step, share, count=4000, dtype=np.float32):
    factors = np.full(count, np.nan, dtype)
    draw_dropout(seed, step, share, factors)
    return factors


@given(SEEDS, STEPS, SHARES)
def test_a_share_of_the_factors_is_zero_and_the_others_make_up_for_it(seed, step, share):
    factors = drawn(seed, step, share)
    zero = factors == 0
    assert abs(zero.mean() - share) < 6 * np.sqrt(share * (1 - share) / len(factors))
    assert np.all(factors[~zero] == np.float32(1.0 / (1.0 - share)))


@given(SEEDS, STEPS, SHARES)
def test_factors_are_the_same_for_the_same_seed_and_step(seed, step, share):
    np.testing.assert_array_equal(drawn(seed, step, share), drawn(seed, step, share))


@given(SEEDS, STEPS)
def test_other_steps_and_other_seeds_leave_out_others(seed, step):
    here = drawn(seed, step, 0.5)
    for other in (drawn(seed, step + 1, 0.5), drawn(seed + 1, step, 0.5)):
        both = np.mean((here == 0) & (other == 0))
        assert abs(both - 0.25) < 6 * np.sqrt(0.25 * 0.75 / len(here))


def test_over_many_steps_every_factor_is_left_out_as_often():
    zeros = np.mean([drawn(3, step, 0.3, 50) == 0 for step in range(4000)], axis=0)
    assert np.all(np.abs(zeros - 0.3) < 6 * np.sqrt(0.3 * 0.7 / 4000))


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
