"""Predictions of collections: lazy, of a type that is known before, with the values of `Model`; one model a worker."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import cloudpickle
import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from mllkm_scale import MLLKMClassifier
from mllkm_scale.errors import DataError, ParameterError

METHODS = ["predict", "decision_function", "predict_proba", "predict_log_proba"]
NAMES = list("abcd")


@pytest.fixture(scope="module", params=["three classes", "two classes of text"])
def fitted(request: pytest.FixtureRequest, real_data: Callable[[str], Any]) -> tuple[MLLKMClassifier, pd.DataFrame]:
    X, y = real_data("iris")
    if request.param != "three classes":
        y = np.where(y == 0, "setosa", "other")
    rows = pd.DataFrame(X, columns=NAMES, index=2 * np.arange(len(X)))
    return MLLKMClassifier(anchors="all", n_jobs=1).fit(rows, y), rows


@pytest.mark.parametrize("method", METHODS)
def test_a_dask_array_gives_a_dask_array(fitted, method):
    machine, rows = fitted
    eager = getattr(machine.model_, method)(rows.to_numpy())
    lazy = getattr(machine.model_, method)(da.from_array(rows.to_numpy(), chunks=(40, 3)))
    assert lazy.chunks[0] == (40, 40, 40, 30)
    assert (lazy.shape, lazy.dtype, lazy._meta.dtype, lazy._meta.ndim) == (
        eager.shape,
        eager.dtype,
        eager.dtype,
        eager.ndim,
    )
    assert np.array_equal(lazy.compute(scheduler="sync"), eager)


@pytest.mark.parametrize("method", METHODS)
def test_a_data_frame_gives_a_series_or_frame_with_its_index(fitted, method):
    machine, rows = fitted
    lazy = getattr(machine, method)(dd.from_pandas(rows, npartitions=3))
    found = lazy.compute(scheduler="sync")
    assert lazy.divisions == (0, 100, 200, 298)
    assert found.index.equals(rows.index)
    assert np.array_equal(found.to_numpy(), getattr(machine, method)(rows))
    if found.ndim == 1:
        assert (found.dtype, found.name) == (lazy.dtype, lazy.name)
    else:
        assert list(found.columns) == list(lazy.columns) == machine.classes_.tolist()
        assert found.dtypes.equals(lazy.dtypes)


@pytest.mark.parametrize("method", METHODS)
def test_xarray_keeps_its_coordinates_and_its_laziness(fitted, method):
    xr = pytest.importorskip("xarray")
    machine, rows = fitted
    given = xr.DataArray(rows.to_numpy(), dims=("flower", "part"), coords={"flower": rows.index, "part": NAMES})
    eager = getattr(machine, method)(rows)
    for X in (given, given.to_dataset("part")):
        found, lazy = getattr(machine, method)(X), getattr(machine, method)(X.chunk(flower=50))
        assert found.chunks is None
        assert lazy.chunks is not None
        assert np.array_equal(found.values, eager)
        assert np.array_equal(lazy.compute(scheduler="sync").values, eager)
        assert lazy.indexes["flower"].equals(rows.index)
    if eager.ndim == 2:
        assert found.indexes["class"].tolist() == machine.classes_.tolist()


def test_lengths_may_be_unknown(fitted):
    machine, rows = fitted
    X = da.from_array(rows.to_numpy(), chunks=(40, 4))
    X = X[X[:, 0] > 5.0]
    lazy = machine.model_.predict_proba(X)
    assert np.isnan(lazy.shape[0])
    expected = machine.model_.predict_proba(rows[rows["a"] > 5.0].to_numpy())
    assert np.array_equal(lazy.compute(scheduler="sync"), expected)


def test_columns_are_matched_by_name(fitted):
    machine, rows = fitted
    other = rows[["d", "b", "a", "c"]].assign(more=1.0)
    with pytest.warns(UserWarning, match="1 column is ignored"):
        lazy = machine.model_.predict(dd.from_pandas(other, npartitions=2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(lazy.compute(scheduler="sync").to_numpy(), machine.predict(rows))
    with pytest.raises(ValueError, match="feature names should match"):  # as scikit-learn has it
        machine.predict(dd.from_pandas(other, npartitions=2))
    with pytest.raises(DataError, match="X lacks 1 of the 4 features of the model: 'd'"):
        machine.model_.predict(dd.from_pandas(rows[["a", "b", "c"]], npartitions=2))


def test_a_table_is_encoded_partition_by_partition():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"size": rng.standard_normal(200), "colour": rng.choice(["red", "blue", None], 200)})
    labels = ((rows["size"] > 0) ^ (rows["colour"] == "red")).astype(int)
    machine = MLLKMClassifier(anchors="all", n_jobs=1).fit(rows, labels)
    lazy = machine.predict_proba(dd.from_pandas(rows, npartitions=3))
    assert np.array_equal(lazy.compute(scheduler="sync").to_numpy(), machine.predict_proba(rows))


def test_the_model_is_one_node_of_the_graph(fitted):
    machine, rows = fitted
    lazy = machine.model_.predict(da.from_array(rows.to_numpy(), chunks=(10, 4)))
    joined = da.concatenate([lazy.astype(str), machine.model_.predict(da.zeros((50, 4), chunks=10)).astype(str)])
    (optimised,) = dask.optimize(joined)
    nodes = dict(optimised.__dask_graph__())
    models = [key for key in nodes if str(key).startswith("Model-")]
    assert len(models) == 1
    model_bytes = len(cloudpickle.dumps(machine.model_))
    blocks = [node for node in nodes.values() if models[0] in getattr(node, "dependencies", ())]
    assert len(blocks) == 20
    for node in nodes.values():
        if models[0] in getattr(node, "dependencies", ()):
            assert len(cloudpickle.dumps(node)) < model_bytes


def test_nothing_is_computed_before_it_is_asked_for(fitted):
    def fail(block: np.ndarray) -> np.ndarray:
        raise AssertionError

    machine, rows = fitted
    X = da.from_array(rows.to_numpy(), chunks=(40, 4)).map_blocks(fail, meta=np.empty((0, 0)))
    for method in METHODS:
        getattr(machine.model_, method)(X)


def test_mistakes_are_named(fitted):
    machine, rows = fitted
    X = rows.to_numpy().copy()
    X[75, 2] = np.nan
    lazy = machine.model_.predict(da.from_array(X, chunks=(40, 4)))
    with pytest.raises(DataError, match=r"block 1 \(0-based\): X has NaN at row 35, column 2"):
        lazy.compute(scheduler="sync")
    frame = machine.predict(dd.from_pandas(pd.DataFrame(X, columns=NAMES), npartitions=2))
    with pytest.raises(DataError, match=r"partition 1 \(0-based\): X has NaN at row 0, column 2"):
        frame.compute(scheduler="sync")
    with pytest.raises(DataError, match="3 features per row, but the model was trained with 4"):
        machine.model_.predict(da.zeros((10, 3)))
    expecting = pytest.raises(ValueError, match="X has 3 features, but MLLKMClassifier is expecting 4 features")
    with pytest.warns(UserWarning, match="does not have valid feature names"), expecting:
        machine.predict(da.zeros((10, 3)))
    with pytest.raises(DataError, match="must have two axes"):
        machine.model_.predict(da.zeros(10))
    parts = {spec.name: getattr(machine.model_, spec.name) for spec in fields(machine.model_)}
    bare = type(machine.model_)(**parts | {"calibration": None})
    with pytest.raises(ParameterError, match="no calibration"):
        bare.predict_proba(da.zeros((10, 4)))
