"""A data set hands out exactly the rows that are stored, whatever the storage and the grid."""

from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mllkm_scale.data import Dataset, default_chunk_rows
from mllkm_scale.errors import DataError, ParameterError

DTYPES = ["float64", "float32", "float16", "int64", "uint64", "int32", "int16", "uint8", "bool", ">f8", ">i2"]
FLOAT32 = {"float32", "float16", "int16", "uint8", "bool", ">i2"}


def stored_in(storage: str, folder: Path, X: np.ndarray, y: np.ndarray | None = None) -> Dataset:
    names = {"X": X} if y is None else {"X": X, "y": y}
    label_name = None if y is None else "y"
    if storage == "array":
        return Dataset.from_arrays(X, y)
    if storage == "hdf5":
        with h5py.File(folder / "d.h5", "w") as file:
            for name, values in names.items():
                file[name] = values
        return Dataset.open(folder / "d.h5", y=label_name)
    group = zarr.open_group(str(folder / "d.zarr"), mode="w")
    for name, values in names.items():
        group.create_array(name, data=values)
    return Dataset.open(folder / "d.zarr", y=label_name)


@pytest.mark.parametrize("storage", ["array", "hdf5", "zarr"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_storage_hands_out_the_same_values_in_the_work_dtype(storage, dtype, tmp_path):
    X = np.arange(21).reshape(7, 3).astype(dtype)
    with stored_in(storage, tmp_path, X) as data:
        chunk = data.chunk(0)
        assert chunk.dtype == (np.float32 if dtype in FLOAT32 else np.float64)
        assert chunk.dtype == data.work_dtype
        assert chunk.flags.c_contiguous
        assert (data.n_rows, data.n_features, data.has_labels) == (7, 3, False)
        assert data.dtype.newbyteorder("=") == np.dtype(dtype).newbyteorder("=")
        np.testing.assert_array_equal(chunk, X.astype(np.float64))


@pytest.fixture(scope="module", params=["array", "array by columns", "hdf5", "hdf5 packed", "zarr"])
def stored_rows(request, tmp_path_factory):
    """A way to open 53 rows with a given grid, and the rows themselves."""
    folder = tmp_path_factory.mktemp("rows")
    X = np.random.default_rng(0).normal(size=(53, 4)).astype(np.float32)
    if request.param.startswith("array"):
        kept = np.asfortranarray(X) if "columns" in request.param else X
        return X, lambda chunk_rows: Dataset.from_arrays(kept, chunk_rows=chunk_rows)
    if request.param == "zarr":
        zarr.open_group(str(folder / "r.zarr"), mode="w").create_array("X", data=X, chunks=(10, 3))
        return X, lambda chunk_rows: Dataset.open(folder / "r.zarr", y=None, chunk_rows=chunk_rows)
    with h5py.File(folder / "r.h5", "w") as file:
        options = {"chunks": (9, 3), "compression": "gzip"} if "packed" in request.param else {}
        file.create_dataset("X", data=X, **options)
    return X, lambda chunk_rows: Dataset.open(folder / "r.h5", y=None, chunk_rows=chunk_rows)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chunk_rows=st.integers(1, 60), wanted=st.lists(st.integers(0, 52), max_size=80))
def test_chunks_and_rows_equal_slices_for_any_grid(stored_rows, chunk_rows, wanted):
    X, open_rows = stored_rows
    with open_rows(chunk_rows) as data:
        starts, chunks = zip(*data.chunks(), strict=True)
        assert list(starts) == list(range(0, 53, chunk_rows))
        assert len(chunks) == data.n_chunks
        np.testing.assert_array_equal(np.concatenate(chunks), X)
        for i, chunk in enumerate(chunks):
            np.testing.assert_array_equal(chunk, X[slice(*data.bounds(i))])
            assert chunk.flags.c_contiguous
        np.testing.assert_array_equal(data.rows(np.array(wanted, dtype=np.int64)), X[wanted])


def test_rows_reads_no_more_than_a_chunk_at_once():
    class Watched:
        name, shape, dtype, buffer_bytes = "X", (100, 2), np.dtype(np.float64), 0
        longest = 0

        def read(self, start, stop):
            self.longest = max(self.longest, stop - start)
            return np.arange(start, stop, dtype=np.float64)[:, None] * [1.0, -1.0]

        def close(self):
            pass

    source = Watched()
    data = Dataset(source, chunk_rows=8)
    np.testing.assert_array_equal(data.rows([99, 0, 50, 0])[:, 0], [99, 0, 50, 0])
    assert source.longest <= 8


@pytest.mark.parametrize("wanted", [[-1], [53], [0.5], [True], [[0, 1]]])
def test_rows_that_do_not_exist_are_refused(wanted):
    with pytest.raises(ParameterError, match="rows"):
        Dataset.from_arrays(np.zeros((53, 2))).rows(wanted)


def test_a_chunk_outside_the_grid_is_refused():
    data = Dataset.from_arrays(np.zeros((5, 2)), chunk_rows=2)
    for i in (-1, 3):
        with pytest.raises(IndexError, match="chunks 0 to 2"):
            data.bounds(i)


@pytest.mark.parametrize(("n_features", "rows"), [(1, 65536), (8, 65536), (784, 668), (32768, 16), (10**6, 16)])
def test_the_default_grid_follows_from_the_width_alone(n_features, rows):
    assert default_chunk_rows(n_features) == rows


@pytest.mark.parametrize("chunk_rows", [0, -3, 2.0, True, "8"])
def test_a_grid_that_cannot_work_is_refused(chunk_rows):
    with pytest.raises(ParameterError, match="chunk_rows"):
        Dataset.from_arrays(np.zeros((3, 1)), chunk_rows=chunk_rows)


def test_arrays_are_not_copied():
    X = np.ones((1000, 3))
    assert np.shares_memory(Dataset.from_arrays(X).chunk(0), X)


@pytest.mark.parametrize("storage", ["array", "hdf5", "zarr"])
@pytest.mark.parametrize(
    "stored",
    [
        np.array([3, 1, 3]),
        np.array([0.0, 1.0, 0.0]),
        np.array([[3], [1], [3]]),
        np.array([True, False, True]),
    ],
    ids=["int", "float", "column", "bool"],
)
def test_labels_come_back_as_stored(storage, stored, tmp_path):
    with stored_in(storage, tmp_path, np.eye(3), stored) as data:
        labels = data.labels()
        assert labels.shape == (3,)
        assert labels.dtype == stored.dtype
        np.testing.assert_array_equal(labels, stored.ravel())


@pytest.mark.parametrize("dtype", [h5py.string_dtype(), "S12"], ids=["variable", "fixed"])
def test_text_labels_of_hdf5_are_decoded(dtype, write_hdf5):
    stored = np.array([text.encode() for text in ("a", "żółw", "a")], dtype=dtype)
    with Dataset.open(write_hdf5(X=np.eye(3), y=stored)) as data:
        assert data.labels().tolist() == ["a", "żółw", "a"]
        assert data.labels().dtype.kind == "U"


def test_text_labels_of_zarr_and_of_object_arrays_are_decoded(tmp_path):
    texts = np.array(["b", "żółw", "b"], dtype=np.dtypes.StringDType())
    with stored_in("zarr", tmp_path, np.eye(3), texts) as data:
        assert data.labels().tolist() == ["b", "żółw", "b"]
    data = Dataset.from_arrays(np.eye(3), np.array(["b", b"c", "b"], dtype=object))
    assert data.labels().tolist() == ["b", "c", "b"]


def test_labels_that_are_not_utf8_are_refused(write_hdf5):
    path = write_hdf5(X=np.eye(2), y=np.array([b"\xff\xfe", b"a"]))
    with Dataset.open(path) as data, pytest.raises(DataError, match=r"train\.h5:y .*UTF-8"):
        data.labels()


def test_labels_are_asked_of_data_without_labels():
    with pytest.raises(DataError, match="without labels"):
        Dataset.from_arrays(np.eye(2)).labels()


@pytest.mark.parametrize("storage", ["hdf5", "zarr"])
def test_a_pickled_data_set_opens_its_file_again(storage, tmp_path):
    X = np.arange(12.0).reshape(6, 2)
    with stored_in(storage, tmp_path, X, np.arange(6)) as data:
        data.chunk(0)
        message = pickle.dumps(data)
        assert len(message) < 2000
        with pickle.loads(message) as copy:
            np.testing.assert_array_equal(copy.chunk(0), X)
            np.testing.assert_array_equal(copy.labels(), np.arange(6))
            assert (copy.name, copy.path, copy.chunk_rows) == (data.name, data.path, data.chunk_rows)


def test_a_pickled_data_set_notices_that_its_file_has_changed(write_hdf5):
    with Dataset.open(write_hdf5(X=np.eye(3)), y=None) as data:
        message = pickle.dumps(data)
    write_hdf5(X=np.eye(4))
    with pickle.loads(message) as copy, pytest.raises(DataError, match="changed"):
        copy.chunk(0)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_opens_the_file_itself(write_hdf5, monkeypatch):
    X = np.arange(12.0).reshape(6, 2)
    path = write_hdf5(X=X)
    opened = []
    real = h5py.File
    monkeypatch.setattr(h5py, "File", lambda *given, **options: opened.append(1) or real(*given, **options))
    fork = multiprocessing.get_context("fork")
    with Dataset.open(path, y=None) as data:
        data.chunk(0)
        receiver, sender = fork.Pipe(duplex=False)
        child = fork.Process(target=lambda: sender.send((data.chunk(0), data.chunk(0), len(opened))))
        child.start()
        assert receiver.poll(10)
        first, second, opened_in_child = receiver.recv()
        child.join(10)
        assert child.exitcode == 0
        np.testing.assert_array_equal(first, X)
        np.testing.assert_array_equal(second, X)
        assert (len(opened), opened_in_child) == (1, 2)
        np.testing.assert_array_equal(data.chunk(0), X)


def test_a_closed_data_set_opens_again_when_read(write_hdf5):
    data = Dataset.open(write_hdf5(X=np.eye(3)), y=None)
    data.close()
    data.close()
    np.testing.assert_array_equal(data.chunk(0), np.eye(3))
    data.close()


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(3), "two axes"),
        (np.zeros((3, 2, 2)), "two axes"),
        (np.zeros((0, 2)), "no rows"),
        (np.zeros((2, 0)), "no columns"),
        (np.zeros((2, 2), dtype=complex), "complex"),
        (np.array([["a", "b"]]), "real numbers"),
        (np.array([[1, None]], dtype=object), "object"),
        (np.zeros((2, 2), dtype="M8[s]"), "datetime64"),
        (np.zeros((2, 2), dtype=[("a", "f8")]), "'a'"),
    ],
)
def test_what_is_no_matrix_of_numbers_is_refused(X, message):
    with pytest.raises(DataError, match=message):
        Dataset.from_arrays(X)
