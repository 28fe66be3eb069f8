"""Discarded kernels: what is remembered on a budget is what a sorted list would keep; bounds hold for any kernels."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale.kernels.generic import GenericFamily
from mllkm_scale.online.streamed_kernels.bounds import dual_bound
from mllkm_scale.online.streamed_kernels.grams import FamilyKernels
from mllkm_scale.online.streamed_kernels.stream import Discarded

FAMILY = GenericFamily.fit(np.random.default_rng(0).normal(size=(30, 5)))
BATCHES = st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=8)  # prices, of which many are equal


@settings(max_examples=30)
@given(BATCHES, st.one_of(st.none(), st.integers(0, 5)), st.integers(0, 40))
def test_the_dearest_are_remembered_and_of_equal_ones_the_first(batches, limit, popped):
    memory, kept, n_forgotten, next_id = Discarded(limit), [], 0, 0
    for prices in batches:
        ids = np.arange(next_id, next_id + len(prices))
        next_id += len(prices)
        memory.add(FamilyKernels(FAMILY, ids), np.array(prices, dtype=float))
        kept += zip(ids.tolist(), prices, strict=True)
        if limit is not None:
            best = sorted(kept, key=lambda pair: (-pair[1], pair[0]))[:limit]
            n_forgotten += len(kept) - len(best)
            kept = sorted(best)
    if popped < len(kept):
        taken = memory.pop(np.array([popped]))
        assert taken.ids.tolist() == [kept.pop(popped)[0]]
    remembered = [] if memory.kernels is None else memory.kernels.ids.tolist()
    assert remembered == [id for id, _ in kept]
    assert len(memory) == len(kept)
    assert memory.n_forgotten == n_forgotten
    assert all((id in memory) == (id in dict(kept)) for id in range(next_id))


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e6), st.floats(0.0, 1.0))
def test_no_multiple_of_the_duals_has_a_better_bound(total, largest, t):
    assert dual_bound(total, largest) >= (t * total - 0.5 * t * t * largest) * (1 - 1e-12) - 1e-12
