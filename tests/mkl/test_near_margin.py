"""What is kept of the margins of a machine that is known: sums over all rows, and the rows near the margin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.mkl.margins import near_margin

LIMITS = (1.01, 1.3, 2.0)


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 4), st.integers(1, 9), st.integers(1, 80))
def test_sums_are_of_all_margins_and_rows_are_those_below_a_limit(
    seed: int, n: int, K: int, chunk_rows: int, most_rows: int
) -> None:
    random = np.random.default_rng(seed)
    F, signs = random.normal(0, 2, (n, K)), random.choice([-1, 1], (n, K)).astype(np.int8)
    parts = [F[start : start + 2 * chunk_rows] for start in range(0, n, 2 * chunk_rows)]
    weights = random.choice([0.5, 1.0, 3.0], n)
    found = near_margin(parts, signs, weights, chunk_rows, LIMITS, most_rows)
    margins = signs * F
    assert found.hinge == pytest.approx(weights @ np.maximum(0.0, 1.0 - margins).sum(axis=1))
    assert found.within == pytest.approx(weights @ np.where(margins < 1.0, margins, 0.0).sum(axis=1))
    below = {limit: np.flatnonzero((margins < limit).any(axis=1)) for limit in LIMITS}
    assert found.limit == max([limit for limit in LIMITS if len(below[limit]) <= most_rows], default=min(LIMITS))
    assert found.rows.tolist() == below[found.limit][:most_rows].tolist()
    assert np.array_equal(found.margins, margins[found.rows])


def test_the_bits_do_not_depend_on_the_parts_in_which_decisions_come() -> None:
    F = np.random.default_rng(0).normal(0, 2, (1000, 3))
    signs = np.where(F[:, ::-1] > 0.3, 1, -1).astype(np.int8)
    one, many = (
        near_margin([F[start : start + rows] for start in range(0, 1000, rows)], signs, np.ones(1000), 50, LIMITS, 400)
        for rows in (1000, 50)
    )
    assert (one.hinge, one.within, one.limit) == (many.hinge, many.within, many.limit)
    assert np.array_equal(one.rows, many.rows)
