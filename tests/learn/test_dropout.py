"""Kernels that are left out of a step: which ones, and that the others do what the whole machine would do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import MAPS
from mllkm_scale.learn.dropout import Dropout, draw_kernels, kept_kernels
from mllkm_scale.learn.gradients import make_block
from mllkm_scale.learn.machine import Layout, LearnedMachine

SEEDS, STEPS = st.integers(0, 2**63 - 1), st.integers(0, 10**6)


def drawn(seed, step, n_kernels, n_kept):
    kept = np.full(n_kept, -1)
    draw_kernels(seed, step, n_kernels, kept)
    return kept


@given(SEEDS, STEPS, st.integers(1, 300), st.floats(0, 0.95))
def test_a_step_has_as_many_different_kernels_as_it_should(seed, step, n_kernels, share):
    kept = drawn(seed, step, n_kernels, kept_kernels(n_kernels, share))
    assert np.all(np.diff(kept) > 0)
    assert 0 <= kept[0] <= kept[-1] < n_kernels
    np.testing.assert_array_equal(kept, drawn(seed, step, n_kernels, len(kept)))


def test_other_steps_and_other_seeds_have_others():
    here = drawn(5, 7, 4000, 2000)
    for other in (drawn(5, 8, 4000, 2000), drawn(6, 7, 4000, 2000)):
        assert abs(len(np.intersect1d(here, other)) / 4000 - 0.25) < 0.04


def test_over_many_steps_every_kernel_is_kept_as_often():
    counts = np.bincount(np.concatenate([drawn(3, step, 50, 35) for step in range(4000)]), minlength=50)
    assert np.all(np.abs(counts / 4000 - 0.7) < 6 * np.sqrt(0.3 * 0.7 / 4000))


@pytest.mark.parametrize("metric", ["diagonal", "full", 2, None])
@pytest.mark.parametrize("componentwise", [False, True])
@pytest.mark.parametrize("map_name", MAPS)
def test_a_part_decides_and_descends_like_a_machine_whose_other_bumps_are_zero(map_name, componentwise, metric):
    rng = np.random.default_rng(0)
    layout = Layout(Family(map_name, componentwise), 9, 4, 3, metric)
    machine = LearnedMachine(layout, rng.normal(size=layout.size).astype(np.float32))
    machine.log_gammas[:] -= 3.0
    X, signs = rng.normal(size=(20, 4)).astype(np.float32), rng.choice([-1.0, 1.0], (20, 3)).astype(np.float32)
    dropout = Dropout(layout, 0.4, seed=1)
    part = dropout.draw(machine, step=2)
    block = make_block(part.layout, 20)
    total, count = block.step(part, X, signs, 1.0 / 20)
    found = np.full(layout.size, np.nan, np.float32)
    dropout.spread(block.gradients, found)

    factors = np.zeros(9, np.float32)
    factors[dropout.kept] = 9 / len(dropout.kept)
    whole = machine.copy()
    whole.predictors *= factors[:, None]  # what multiplies a bump multiplies the predictor
    slow = make_block(layout, 20)
    expected_total, expected_count = slow.step(whole, X, signs, 1.0 / 20)
    expected = slow.gradients.copy()
    layout.views(expected)["predictors"][:] *= factors[:, None]
    assert (count, total) == (expected_count, pytest.approx(expected_total, rel=1e-4))
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-4 * np.abs(expected).max())
    assert not layout.views(found)["anchors"][factors == 0].any()
