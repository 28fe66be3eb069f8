"""Training on collections of dask and xarray: the bits of a training from HDF5, block by block, on workers or here."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import h5py
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale import Dataset, MLLKMClassifier, MLLKMClassifierCV, train
from mllkm_scale.cluster.collections import stored
from mllkm_scale.data.collections import Collection
from mllkm_scale.errors import BudgetError, DataError, MLLKMError, ParameterError

xr = pytest.importorskip("xarray")
SETTINGS: dict[str, Any] = {"anchors": "all", "n_jobs": 1}
NAMES = ["length", "width", "petal length", "petal width"]


@pytest.fixture
def iris(real_data: Callable[[str], tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    return real_data("iris")


@pytest.fixture
def duals(tmp_path: Path, iris: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Of a training from HDF5."""
    with h5py.File(tmp_path / "iris.h5", "w") as file:
        file["X"], file["y"] = iris
    return train(Dataset.open(tmp_path / "iris.h5"), **SETTINGS).duals


def array(X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    return da.from_array(X, chunks=(40, 3)), da.from_array(y, chunks=70)


def unknown_chunks(X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    rows, labels = da.from_array(X, chunks=(40, 4)), da.from_array(y, chunks=40)
    return rows[labels >= 0], labels[labels >= 0]


def frame(X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    return dd.from_pandas(pd.DataFrame(X, columns=NAMES), npartitions=4), dd.from_pandas(pd.Series(y), npartitions=4)


def values_of_a_frame(X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    rows, labels = frame(X, y)
    return rows.values, labels.to_frame()


def data_array(X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    rows = xr.DataArray(X, dims=("flower", "part"), coords={"part": NAMES})
    return rows.chunk(flower=40, part=1), xr.DataArray(y, dims="flower").chunk(flower=50)


def variables(X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    return xr.Dataset({name: ("flower", X[:, j]) for j, name in enumerate(NAMES)}).chunk(flower=40), y


KINDS = [array, unknown_chunks, frame, values_of_a_frame, data_array, variables]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_collection_has_the_bits_of_a_file_and_keeps_its_names(tmp_path, iris, duals, kind):
    X, y = kind(*iris)
    result = train(X, y, scratch_dir=str(tmp_path / "scratch"), **SETTINGS)
    assert np.array_equal(result.duals, duals)
    assert result.model.feature_names == (tuple(NAMES) if kind in (frame, data_array, variables) else None)
    assert not list((tmp_path / "scratch").iterdir())  # the blocks are gone with the training


def test_the_estimator_takes_collections_as_it_takes_frames(iris):
    X, y = frame(*iris)
    lazy, eager = MLLKMClassifier(**SETTINGS).fit(X, y), MLLKMClassifier(**SETTINGS).fit(X.compute(), iris[1])
    assert np.array_equal(lazy.model_.coef, eager.model_.coef)
    assert lazy.feature_names_in_.tolist() == eager.feature_names_in_.tolist() == NAMES
    assert lazy.n_features_in_ == 4


def table(n: int, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """Numbers, missing values, text, categories, booleans and dates."""
    rng = np.random.default_rng(seed)
    size = rng.standard_normal(n)
    colour = rng.choice(["red", "green", "blue", None], n)
    rows = pd.DataFrame(
        {
            "size": np.where(rng.random(n) < 0.1, np.nan, size),
            "colour": colour,
            "grade": pd.Categorical(rng.choice(["b", "a", "c"], n)),
            "old": rng.random(n) < 0.5,
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
        }
    )
    return rows, pd.Series(np.where(size + (colour == "red") > 0.5, "yes", "no"))


def test_a_table_in_partitions_is_the_table_in_one():
    rows, labels = table(300)
    whole = MLLKMClassifier(**SETTINGS).fit(rows, labels)
    parts = MLLKMClassifier(**SETTINGS).fit(dd.from_pandas(rows, npartitions=7), dd.from_pandas(labels, npartitions=7))
    assert parts.model_.encoding.columns == whole.model_.encoding.columns
    assert np.array_equal(parts.model_.coef, whole.model_.coef)
    assert parts.classes_.tolist() == ["no", "yes"]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(0, 3))
def test_any_cut_of_a_table_gives_the_same_rows_and_levels(heights, seed):
    rows, labels = table(max(1, sum(heights)), seed)
    edges = np.cumsum([0, *heights])
    edges[-1] = len(rows)
    blocks = [dask.delayed(rows.iloc[start:stop]) for start, stop in pairwise(edges)]
    ours = [dask.delayed(labels.iloc[start:stop]) for start, stop in pairwise(edges)]
    whole = Collection([dask.delayed(rows)], [dask.delayed(labels)], 5, tuple(rows.columns), None)
    cut = Collection(blocks, ours, 5, tuple(rows.columns), None)
    with stored(whole, None, room_bytes=10**9) as one, stored(cut, None, room_bytes=10**9) as many:
        assert many.columns == one.columns
        assert np.array_equal(many.part(0, len(rows)), one.part(0, len(rows)), equal_nan=True)
        assert np.array_equal(many.labels(), one.labels())
        for start in range(0, len(rows), 7):
            stop = min(start + 7, len(rows))
            assert np.array_equal(many.part(start, stop), one.part(start, stop), equal_nan=True)


def test_columns_can_be_named_as_categories(iris):
    rows = pd.DataFrame({"zip": np.arange(150) % 3, "size": iris[0][:, 2]})
    given = {"categories": ["zip"], **SETTINGS}
    lazy = MLLKMClassifier(**given).fit(dd.from_pandas(rows, npartitions=3), iris[1])
    assert np.array_equal(lazy.model_.coef, MLLKMClassifier(**given).fit(rows, iris[1]).model_.coef)
    with pytest.raises(ParameterError, match="categories and as_number name columns of a table"):
        MLLKMClassifier(**given).fit(da.from_array(iris[0]), iris[1])


def test_each_block_is_computed_once(iris):
    counted = []

    def count(block: np.ndarray) -> np.ndarray:
        counted.append(len(block))
        return block

    X = da.from_array(iris[0], chunks=(50, 4)).map_blocks(count, meta=np.empty((0, 0)))
    MLLKMClassifier(**SETTINGS).fit(X, iris[1])
    assert counted == [50, 50, 50]


def test_only_some_blocks_are_in_memory_at_a_time():
    class Block(np.ndarray):
        """Counts how many of its kind there are."""

    living, most = [0], [0]

    def make(number: int) -> np.ndarray:
        block = np.full((100, 4), float(number)).view(Block)
        living[0] += 1
        most[0] = max(most[0], living[0])
        weakref.finalize(block, lambda: living.__setitem__(0, living[0] - 1))
        return block

    blocks = [dask.delayed(make)(number) for number in range(20)]
    with stored(Collection(blocks, None, 4, None, 3200), None, threads=1, room_bytes=13_000) as dataset:
        gc.collect()
        assert dataset.n_rows == 2000
        assert dataset.rows([150, 1999]).tolist() == [[1.0] * 4, [19.0] * 4]
    assert most[0] <= 2


fit = MLLKMClassifier(**SETTINGS).fit
MISTAKES: dict[str, tuple[Callable[[np.ndarray, np.ndarray], Any], str]] = {
    "type": (lambda X, y: fit(da.from_array(X).astype(object), y), "X has type object: features must be real numbers"),
    "complex": (lambda X, y: fit(da.from_array(X.astype(complex)), y), "X has type complex128"),
    "axes": (lambda X, y: fit(da.from_array(X[:, 0]), y), "must have two axes"),
    "rows": (lambda X, y: fit(da.from_array(X), da.from_array(y[1:])), "y has 149 labels, but X has 150 rows"),
    "array of labels": (lambda X, y: fit(da.from_array(X), y[1:]), "y has 149 labels, but X has 150 rows"),
    "no labels": (lambda X, y: fit(da.from_array(X), None), "requires y to be passed"),
    "blocks": (
        lambda X, y: fit(unknown_chunks(X, y)[0], dd.from_pandas(pd.Series(y), npartitions=3).values),
        "X has 4 blocks and y has 3, of unknown lengths",
    ),
    "lengths": (
        lambda X, y: fit(unknown_chunks(X, y)[0], frame(X, y)[1].values),
        r"y, block \d \(0-based\) has \d+ labels, but block \d of X has \d+ rows",
    ),
    "divisions": (
        lambda X, y: fit(frame(X, y)[0], frame(X, y)[1].repartition(divisions=(0, 20, 60, 100, 149))),
        r"X and y have other divisions of their index: .*repartition\(divisions=X.divisions\)",
    ),
    "index": (
        lambda X, y: fit(
            xr.DataArray(X, dims=("flower", "part"), coords={"flower": np.arange(150)}),
            xr.DataArray(y, dims="flower", coords={"flower": np.arange(150)[::-1]}),
        ),
        "X and y have other coordinates along 'flower': align them first",
    ),
    "nan": (
        lambda X, y: fit(da.where(da.from_array(X, chunks=(40, 4)) == X[77, 2], np.nan, X), y),
        r"X has NaN at row \d+, column \d",
    ),
    "bag": (lambda X, y: fit(dask.delayed(np.ones)(3), y), "is a Delayed of dask: give a dask array or DataFrame"),
    "variables": (lambda X, y: fit(xr.Dataset({"a": (("x", "y"), X)}), y), "variables are no columns along one dim"),
    "names": (
        lambda X, y: fit(xr.DataArray(X, dims=("row", "column"), coords={"column": list("abca")}), y),
        "X has two columns of one name",
    ),
    "graph": (
        lambda X, y: fit(da.from_array(X).map_blocks(lambda block: block[0] / "x", meta=np.empty((0, 0))), y),
        "a block of X or y cannot be computed .*: correct it",
    ),
    "width": (
        lambda X, y: fit(da.from_array(X).map_blocks(lambda block: block[:, :2], meta=np.empty((0, 0))), y),
        r"X, block 0 \(0-based\) has shape \(150, 2\): it must have a row per sample, of 4 features",
    ),
    "missing label": (
        lambda X, y: fit(da.from_array(X), dd.from_pandas(pd.Series([None, *y[1:]], dtype="Int64"), npartitions=1)),
        r"y is nan \(NaN or infinity\) at row 0",
    ),
    "text and numbers": (
        lambda X, y: train(Collection([X[:75], X[75:]], [y[:75], y[75:].astype(str)], 4, None, None)),
        "y has blocks of text and blocks of numbers",
    ),
    "cross-validation": (
        lambda X, y: MLLKMClassifierCV(kernel_counts=[1]).fit(da.from_array(X), y),
        "only fit of MLLKMClassifier takes: compute it",
    ),
    "stream": (
        lambda X, y: MLLKMClassifier().partial_fit(da.from_array(X), y),
        "only fit of MLLKMClassifier takes: compute it",
    ),
    "list": (lambda X, y: train(X.tolist(), y), "there is no training on a list: give a Dataset"),
    "twice": (lambda X, y: train(Dataset.from_arrays(X, y), y), "a Dataset has its own labels"),
    "budget": (
        lambda X, y: train(da.zeros((10**6, 100), chunks=(10**5, 100)), da.zeros(10**6), memory_budget="500MB"),
        r"X has blocks of 80.0 MB.*: give it smaller chunks",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_its_remedy(iris, mistake):
    call, said = MISTAKES[mistake]
    with pytest.raises(MLLKMError, match=said) as found:
        call(*iris)
    assert isinstance(found.value, BudgetError if mistake == "budget" else (DataError, ParameterError))
