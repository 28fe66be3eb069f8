"""Blocks of rows and kernels are of a bounded size, whatever the model."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from mllkm_scale.errors import DataError
from mllkm_scale.model.inference.blocks import Rows, plan_blocks


@pytest.mark.parametrize("componentwise", [False, True])
@pytest.mark.parametrize("n_kernels", [1, 300, 10**5, 10**7])
@pytest.mark.parametrize("n_features", [1, 50, 784])
def test_a_block_stays_below_64_megabytes(n_kernels, n_features, componentwise):
    plan = plan_blocks(n_kernels, n_features, n_features, componentwise)
    assert plan.block_bytes < 64 << 20
    assert plan.rows in (16, 32, 64, 128, 256)


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("n_rows", [0, 1, 16, 17, 1000, 9999])
def test_every_row_is_in_one_block_of_the_same_height(n_rows, n_jobs):
    X = np.arange(1.0, n_rows + 1)[:, None]
    seen, heights, lock = np.zeros(n_rows), set(), threading.Lock()

    def evaluate(at, block):
        with lock:
            heights.add(len(block))
        seen[at] += block[: at.stop - at.start, 0]
        assert not block[at.stop - at.start :].any()

    Rows(X).in_blocks(16, n_jobs, 1e9, evaluate)
    np.testing.assert_array_equal(seen, X[:, 0])
    assert heights <= {16}


def test_the_first_of_several_bad_rows_is_named_however_many_threads_there_are():
    X = np.zeros((9999, 2))
    X[[700, 4000, 9000], 1] = np.nan
    with pytest.raises(DataError, match="new has NaN at row 1700, column 1 "):
        Rows(X, first_row=1000, name="new").in_blocks(16, 3, 1e9, lambda at, block: None)


@pytest.mark.parametrize(("row_work", "several"), [(1e3, False), (1e6, True)])
def test_threads_are_for_blocks_that_are_worth_them(row_work, several):
    used, both = set(), threading.Event()

    def evaluate(at, block):
        used.add(threading.get_ident())
        if len(used) > 1:
            both.set()
        assert not several or both.wait(timeout=30)

    Rows(np.zeros((64, 1))).in_blocks(16, 2, row_work, evaluate)
    assert (len(used) > 1) is several
