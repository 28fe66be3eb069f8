"""The fingerprint of a problem stands for its rows, whoever reads them and however they are divided."""

from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale.base.executor import ThreadExecutor
from mllkm_scale.base.threads import Threads
from mllkm_scale.data import Dataset
from mllkm_scale.params import Params
from mllkm_scale.run.fingerprint import DigestWork, fingerprint_of

X = np.random.default_rng(0).normal(size=(50, 3))
SIGNS = np.where(np.arange(50) % 2, 1, -1).astype(np.int8)[:, None]


def fingerprint(X, chunk_rows=7, executor=None):
    data = Dataset.from_arrays(X, chunk_rows=chunk_rows)
    return fingerprint_of(Params(), data, SIGNS, None, 0, 5, executor)


@pytest.mark.parametrize("chunk_rows", [7, 50])
def test_it_does_not_depend_on_who_reads(chunk_rows):
    with Threads(3) as threads:
        assert fingerprint(X, chunk_rows, ThreadExecutor(threads)) == fingerprint(X, chunk_rows)
    work = DigestWork(Dataset.from_arrays(X, chunk_rows=chunk_rows))
    n = -(-50 // chunk_rows)
    assert work(range(n)) == b"".join(work(range(i, i + 1)) for i in range(n))


@pytest.mark.parametrize("chunk_rows", [7, 50])
@pytest.mark.parametrize("row", [0, 20, 49])
def test_any_row_changes_it(chunk_rows, row):
    other = X.copy()
    other[row, 1] = np.nextafter(other[row, 1], np.inf)
    assert fingerprint(other, chunk_rows) != fingerprint(X, chunk_rows)
    assert fingerprint(X[np.r_[1:50, 0]], chunk_rows) != fingerprint(X, chunk_rows)
