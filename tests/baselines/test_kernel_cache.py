"""The cache of kernel rows against a dictionary with the same rule."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale.baselines.kernel_cache import KernelCache, fetch_row, forget_row, gaussian_block, insert_row

N, WIDTH, GAMMA = 30, 8, 0.02
X = np.random.default_rng(0).normal(size=(N, 37))  # long enough for vectors of numbers, and a remainder
K = np.exp(-GAMMA * ((X[:, None] - X) ** 2).sum(axis=2))


def test_a_block_is_that_of_the_formula():
    samples, others, block = np.array([9, 2, 0]), np.array([4, 2, 7, 4]), np.zeros((3, 4))
    gaussian_block(X, GAMMA, samples, others, block)
    np.testing.assert_allclose(block, K[np.ix_(samples, others)], rtol=1e-13)
    assert block[1, 1] == 1.0


@settings(max_examples=60)
@given(
    bound_bytes=st.integers(0, 9 * WIDTH * 8),
    actions=st.lists(
        st.tuples(st.sampled_from(["fetch"] * 5 + ["replace"] * 3 + ["widen"]), st.integers(0, WIDTH - 1)), max_size=60
    ),
)
def test_rows_are_right_the_bound_is_kept_and_the_least_recently_used_goes(bound_bytes, actions):
    cache, width = KernelCache(bound_bytes, N), WIDTH
    cache.widen(width)
    samples, newcomer = np.arange(WIDTH), WIDTH
    kept: OrderedDict[int, None] = OrderedDict()
    hits = misses = evictions = 0

    def keep(slot):
        nonlocal evictions
        room = bound_bytes // (8 * width)
        if room >= 2:
            if len(kept) == min(room, width):
                evictions += 1
                kept.popitem(last=False)
            kept[slot] = None

    def true_row(slot):
        row = np.empty((1, WIDTH))
        gaussian_block(X, GAMMA, samples[slot : slot + 1], samples, row)
        return row[0]

    for action, slot in actions:
        if action == "widen":
            width += 1 + slot
            cache.widen(width)
            room = bound_bytes // (8 * width)
            while len(kept) > (room if room >= 2 else 0):
                evictions += 1
                kept.popitem(last=False)
        elif action == "replace":
            forget_row(cache.rows, slot)
            kept.pop(slot, None)
            samples[slot] = newcomer = (newcomer + 1) % N
            insert_row(cache.rows, slot, true_row(slot))
            keep(slot)
        else:
            row = fetch_row(cache.rows, slot, cache.rows.spare[:1], X, GAMMA, samples)
            assert np.array_equal(row[:WIDTH], true_row(slot))
            if slot in kept:
                hits += 1
                kept.move_to_end(slot)
            else:
                misses += 1
                keep(slot)
        assert cache.nbytes == len(kept) * width * 8 <= cache.rows.values.nbytes <= bound_bytes
        assert set(np.flatnonzero(cache.rows.row_of >= 0)) == set(kept)
    found = cache.statistics
    assert (found.hits, found.misses, found.evictions) == (hits, misses, evictions)
    assert cache.nbytes <= found.peak_bytes <= bound_bytes


def test_the_buffer_is_never_larger_than_the_whole_kernel():
    cache = KernelCache(10**12, N)
    cache.widen(N)
    assert cache.rows.values.shape == (N, N)


@pytest.mark.parametrize(("bound_bytes", "rows"), [(0, 0), (2 * 8 * WIDTH - 1, 0), (2 * 8 * WIDTH, 2), (10**6, WIDTH)])
def test_rows_are_kept_from_two_on(bound_bytes, rows):
    cache = KernelCache(bound_bytes, N)
    cache.widen(WIDTH)
    assert len(cache.rows.values) == rows
