"""Collections whose blocks are computed and written by workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from mllkm_scale import Dataset, MLLKMClassifier, train
from mllkm_scale.errors import DataError

SETTINGS: dict[str, Any] = {"anchors": "all", "n_jobs": 1}


@pytest.fixture
def iris(real_data: Callable[[str], tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    return real_data("iris")


@pytest.fixture
def duals(iris: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    return train(Dataset.from_arrays(*iris), **SETTINGS).duals


def test_workers_write_the_blocks(tmp_path, iris, duals, local_client):
    X = dd.from_pandas(pd.DataFrame(iris[0], columns=list("abcd")), npartitions=4).persist()
    y = dd.from_pandas(pd.Series(iris[1]), npartitions=4).persist()
    result = train(X, y, client=local_client, run_dir=tmp_path / "run", **SETTINGS)
    assert np.array_equal(result.duals, duals)
    assert result.model.feature_names == tuple("abcd")
    assert not list((tmp_path / "run").glob("collection-*"))


def test_the_estimator_uses_the_active_client_and_that_of_its_worker(iris, duals, local_client):
    X, y = da.from_array(iris[0], chunks=(40, 3)), da.from_array(iris[1], chunks=70)
    assert np.array_equal(MLLKMClassifier(**SETTINGS).fit(X, y).duals_, duals)

    def fit_in_a_task(X: np.ndarray, y: np.ndarray) -> np.ndarray:
        found: np.ndarray = MLLKMClassifier(**SETTINGS).fit(da.from_array(X, chunks=40), da.from_array(y)).duals_
        return found

    assert np.array_equal(local_client.submit(fit_in_a_task, *iris).result(timeout=60), duals)


def test_a_mistake_on_a_worker_is_named_too(iris, local_client):
    X = da.from_array(iris[0], chunks=50).map_blocks(lambda block: block.astype(object), meta=np.empty((0, 0)))
    with pytest.raises(DataError, match=r"X, block \d \(0-based\) has type object"):
        MLLKMClassifier(**SETTINGS).fit(X, iris[1])
