"""Settings of a descent: those of a tryout, and what the number of classes and the ridge change."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.kernels.anchors import AnchorSpec
from mllkm_scale.learn.settings import Tryout, dropout_share, learn_settings, learned_kernels

ROWS, OUTPUTS = st.integers(4, 10**7), st.integers(1, 30)


def flops(settings, n_rows, n_features, n_outputs):
    """Multiply-adds of a descent, about: forward once, backward twice."""
    of_a_row = n_features + n_outputs * (n_features + 1)
    return 3.0 * settings.n_kernels * settings.epochs * n_rows * of_a_row


@given(ROWS, st.integers(1, 2000), st.integers(1, 800), OUTPUTS, st.floats(1e3, 1e13))
def test_a_tryout_has_kernels_for_the_multiply_adds_but_one_at_least(n_rows, n_kernels, n_features, n_outputs, most):
    settings = learn_settings(n_rows, n_kernels, "diagonal", 0, n_outputs)
    found = settings.cut(n_rows, n_features, n_outputs, Tryout(most))
    sizes = n_rows, n_features, n_outputs
    assert 1 <= found.n_kernels <= n_kernels
    if found.n_kernels > 1:
        assert flops(found, *sizes) <= most * (1 + 1e-12)
    if found.n_kernels < n_kernels:
        assert flops(replace(found, n_kernels=found.n_kernels + 1), *sizes) > most * (1 - 1e-12)


@given(ROWS, st.floats(0.01, 1))
def test_a_tryout_has_a_share_of_the_epochs_and_is_else_the_same(n_rows, share):
    settings = learn_settings(n_rows, 20, "full", 5, 3, 2.0)
    found = settings.cut(n_rows, 10, 3, Tryout(1e300, share))
    assert abs(found.epochs - share * settings.epochs) <= 0.5 or found.epochs == 1
    assert replace(found, epochs=settings.epochs) == settings
    assert replace(settings, epochs=1).cut(n_rows, 10, 3, Tryout(1e300, share)).epochs == 1


@given(ROWS)
def test_wide_bumps_begin_wider_than_all_others_and_are_else_the_same(n_rows):
    usual, wide = (learn_settings(n_rows, 20, "diagonal", 0, bumps=bumps) for bumps in ("auto", "wide"))
    assert max(usual.half_widths) < min(wide.half_widths)
    assert replace(wide, half_widths=usual.half_widths) == usual


@given(ROWS, OUTPUTS)
def test_narrow_bumps_are_more_and_narrower_and_fewer_are_left_out(n_rows, n_outputs):
    usual, narrow = (learn_settings(n_rows, 20, "diagonal", 0, n_outputs, bumps=bumps) for bumps in ("auto", "narrow"))
    assert min(narrow.half_widths) < min(usual.half_widths)
    assert narrow.dropout <= min(usual.dropout, 0.3)
    spec = AnchorSpec("learned")
    count, more = (learned_kernels(spec, None, n_rows, n_outputs, narrow) for narrow in (False, True))
    assert more >= count
    assert more >= min(n_rows // 4, 1000)


@given(ROWS, st.floats(1e-3, 1e3), OUTPUTS)
def test_the_ridge_is_that_of_all_rows_and_the_dropout_that_of_the_classes(n_rows, ridge, n_outputs):
    settings = learn_settings(n_rows, 20, None, 0, n_outputs, ridge)
    assert settings.ridge * n_rows == pytest.approx(ridge)
    assert settings.dropout == dropout_share(n_rows, n_outputs)


@given(ROWS, st.integers(2, 30))
def test_several_classes_have_no_less_dropout_than_two(n_rows, n_outputs):
    assert 0 <= dropout_share(n_rows) <= dropout_share(n_rows, n_outputs) <= 0.5
    assert dropout_share(n_rows, n_outputs) >= (0.3 if n_rows <= 400_000 else 0.1)


@given(st.integers(10**6, 10**11), OUTPUTS)
def test_rows_that_are_seen_in_all_epochs_are_bounded_but_for_one_epoch(n_rows, n_outputs):
    settings = learn_settings(n_rows, 1500, "diagonal", 0, n_outputs)
    assert settings.epochs == 1 or settings.epochs * n_rows <= 2.25e7


@given(ROWS, OUTPUTS, st.one_of(st.none(), st.integers(1, 3000)), st.one_of(st.none(), st.integers(1, 3000)))
def test_learned_kernels_are_as_many_as_asked_for_within_the_bounds(n_rows, n_outputs, count, most):
    found = learned_kernels(AnchorSpec("learned", count), most, n_rows, n_outputs)
    assert 1 <= found <= max(1, n_rows // 2)
    assert most is None or found <= most
    if count is not None:
        assert found == min(count, max(1, n_rows // 2), *([] if most is None else [most]))
