"""NPZ, NPY, IDX and Parquet become HDF5 with the same values, or an error that names the array."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mllkm_scale.data import Dataset, convert
from mllkm_scale.data.converters import npy
from mllkm_scale.errors import DataError, ParameterError

IDX_CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}
arrays_2d = hnp.arrays(
    st.sampled_from(["f8", "f4", "f2", "u1", "i2", "i8", "?", ">f8", ">i4"]),
    st.tuples(st.integers(1, 20), st.integers(1, 4)),
)
labels_1d = hnp.arrays(st.sampled_from(["i8", "u1", "f4", "?", "U4"]), st.integers(1, 20)).map(
    lambda values: (
        np.array([text.replace("\x00", "0") for text in values.tolist()], values.dtype)
        if values.dtype.kind == "U"
        else values
    )
)
fresh_folder = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def stored(path):
    """All arrays of an HDF5 file by name, text decoded."""
    found = {}

    def note(name, node):
        if isinstance(node, h5py.Dataset):
            text = h5py.check_string_dtype(node.dtype) is not None
            found[name] = node.asstr()[...] if text else node[...]

    with h5py.File(path, "r") as file:
        file.visititems(note)
    return found


def refused(tmp_path, source, message, **options):
    before = sorted(tmp_path.iterdir())
    with pytest.raises(DataError, match=message) as caught:
        convert(source, tmp_path / "out.h5", **options)
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before


@fresh_folder
@given(
    first=arrays_2d,
    second=arrays_2d,
    labels=labels_1d,
    packed=st.booleans(),
    columns=st.booleans(),
    block=st.sampled_from([1, 50, 2**22]),
)
def test_npz_keeps_every_array_by_name(tmp_path, first, second, labels, packed, columns, block):
    save = np.savez_compressed if packed else np.savez
    first = np.asfortranarray(first) if columns else first
    save(tmp_path / "in.npz", X_test=first, extra=second, y_test=labels, scalar=np.float64(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(npy, "BLOCK_BYTES", block)
        summary = convert(tmp_path / "in.npz", tmp_path / "out.h5", overwrite=True)
    found = stored(tmp_path / "out.h5")
    assert set(found) == set(summary.arrays) == {"X_test", "extra", "y_test", "scalar"}
    assert found["X_test"].dtype == first.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found["X_test"], first)
    np.testing.assert_array_equal(found["extra"], second)
    np.testing.assert_array_equal(found["y_test"], labels)
    assert found["scalar"] == 3
    assert found["y_test"].dtype == {"f": np.float64, "U": object}.get(labels.dtype.kind, np.int64)


def test_npz_arrays_are_renamed_and_images_are_flattened(tmp_path):
    images = np.arange(24, dtype=np.uint8).reshape(4, 3, 2)
    np.savez(tmp_path / "in.npz", x_train=images, y_train=[0, 1, 0, 1], names=np.array([b"a", b"b"]))
    summary = convert(tmp_path / "in.npz", tmp_path / "out.h5", x="x_train", y="y_train")
    assert (summary.n_rows, summary.n_features, summary.label_type) == (4, 6, "int64")
    with Dataset.open(tmp_path / "out.h5") as data:
        np.testing.assert_array_equal(data.chunk(0), images.reshape(4, 6))
    assert stored(tmp_path / "out.h5")["names"].tolist() == ["a", "b"]


def test_npz_is_streamed_and_progress_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(npy, "BLOCK_BYTES", 800)
    np.savez(tmp_path / "in.npz", X=np.zeros((100, 10)))
    calls = []
    convert(tmp_path / "in.npz", tmp_path / "out.h5", progress=lambda done, total: calls.append((done, total)))
    assert len(calls) == 10
    assert calls == sorted(calls)


def npz_with(path, name, data):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, data)
    return path


def npy_bytes(values, **options):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, values, **options)
    return buffer.getvalue()


def test_npz_with_pickles_and_other_objects_is_refused(tmp_path):
    source = tmp_path / "in.npz"
    np.savez(source, y=np.array(["a", None], dtype=object))
    refused(tmp_path, source, r"in\.npz:y holds Python objects \(pickle\)")
    for values in (np.zeros(2, dtype=complex), np.zeros(2, dtype="M8[s]"), np.zeros(2, dtype=[("a", "f8")])):
        np.savez(source, y=values)
        refused(tmp_path, source, r"in\.npz:y has type")


def test_damaged_npz_is_refused(tmp_path):
    source = tmp_path / "in.npz"
    source.write_bytes(b"PK nonsense")
    refused(tmp_path, source, r"in\.npz cannot be read as NPZ")
    whole = npy_bytes(np.arange(40.0).reshape(20, 2))
    refused(tmp_path, npz_with(source, "X.npy", whole[:-8]), r"in\.npz:X is shorter than its header says")
    refused(tmp_path, npz_with(source, "X.npy", whole + b"!"), r"in\.npz:X is longer than its header says")
    refused(tmp_path, npz_with(source, "X.npy", b"nonsense"), "cannot be read as NPZ")
    refused(tmp_path, npz_with(source, "notes.txt", b"hello"), r"'notes\.txt', which is no array")
    refused(tmp_path, npz_with(source, "../X.npy", whole), "which is no array")
    refused(tmp_path, npz_with(source, "X.npy", npy_bytes(np.zeros(2), version=(3, 0))), r"NPY version \(3, 0\)")
    lying = whole.replace(b"(20, 2)", b"(2**9,)"[:7])
    refused(tmp_path, npz_with(source, "X.npy", lying), "cannot be read as NPZ")
    np.savez(source, X=np.zeros((20, 2)))
    bytes_ = bytearray(source.read_bytes())
    bytes_[200] ^= 1
    source.write_bytes(bytes(bytes_))
    refused(tmp_path, source, "cannot be read as NPZ")


def test_a_header_that_claims_more_than_there_is_takes_no_memory(tmp_path):
    header = {"descr": "|u1", "fortran_order": True, "shape": (2**31, 2)}
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, header)
    refused(tmp_path, npz_with(tmp_path / "in.npz", "X.npy", buffer.getvalue()), "shorter than its header says")


def test_npz_names_that_collide_or_do_not_exist_are_refused(tmp_path):
    np.savez(tmp_path / "in.npz", X=np.eye(2), other=np.eye(2))
    with pytest.raises(ParameterError, match="no array 'z': it has X, other"):
        convert(tmp_path / "in.npz", tmp_path / "out.h5", x="z")
    refused(tmp_path, tmp_path / "in.npz", "two arrays of one name", x="other")


@fresh_folder
@given(X=arrays_2d, labels=labels_1d, columns=st.booleans(), block=st.sampled_from([1, 50, 2**22]))
def test_npy_round_trip_is_exact(tmp_path, X, labels, columns, block):
    labels = np.resize(labels, len(X))
    np.save(tmp_path / "in.npy", np.asfortranarray(X) if columns else X)
    np.save(tmp_path / "labels.npy", labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(npy, "BLOCK_BYTES", block)
        convert(tmp_path / "in.npy", tmp_path / "out.h5", y=tmp_path / "labels.npy", overwrite=True)
    found = stored(tmp_path / "out.h5")
    np.testing.assert_array_equal(found["X"], X)
    np.testing.assert_array_equal(found["y"], labels)


def test_npy_without_labels_has_no_y(tmp_path):
    np.save(tmp_path / "in.npy", np.eye(3))
    assert set(convert(tmp_path / "in.npy", tmp_path / "out.h5").arrays) == {"X"}


def test_npy_that_cannot_be_used_is_refused(tmp_path):
    source, labels = tmp_path / "in.npy", tmp_path / "labels.npy"
    np.save(source, np.array([["a", None]], dtype=object), allow_pickle=True)
    refused(tmp_path, source, "cannot be read as NPY")
    np.save(source, np.zeros(3))
    refused(tmp_path, source, "two axes")
    np.save(source, np.zeros((0, 3)))
    refused(tmp_path, source, "no rows")
    np.save(source, np.array([["a", "b"]]))
    refused(tmp_path, source, "rows of numbers")
    np.save(source, np.eye(3))
    whole = source.read_bytes()
    source.write_bytes(whole[:-8])
    refused(tmp_path, source, "cannot be read as NPY")
    source.write_bytes(whole)
    np.save(labels, np.zeros(2))
    refused(tmp_path, source, r"X of shape \(3, 3\), but .*labels\.npy has shape \(2,\)", y=labels)
    np.save(labels, np.zeros((3, 2)))
    refused(tmp_path, source, "one-dimensional", y=labels)
    np.savez(tmp_path / "a.npz", X=np.eye(2))
    refused(tmp_path, tmp_path / "a.npz", "is an NPZ file", format="npy")


def idx_bytes(values):
    code = IDX_CODES[values.dtype.str[1:]]
    head = struct.pack(f">BBBB{values.ndim}I", 0, 0, code, values.ndim, *values.shape)
    return head + values.astype(values.dtype.newbyteorder(">")).tobytes()


@pytest.mark.parametrize("dtype", list(IDX_CODES))
@pytest.mark.parametrize("packed", [False, True])
def test_idx_round_trip_is_exact(tmp_path, monkeypatch, dtype, packed):
    monkeypatch.setattr(npy, "BLOCK_BYTES", 64)
    images = np.random.default_rng(0).integers(0, 100, size=(17, 3, 4)).astype(dtype)
    labels = (np.arange(17) % 10).astype("u1")
    pack = gzip.compress if packed else bytes
    end = ".gz" if packed else ""
    (tmp_path / f"train-images-idx3-ubyte{end}").write_bytes(pack(idx_bytes(images)))
    (tmp_path / f"train-labels-idx1-ubyte{end}").write_bytes(pack(idx_bytes(labels)))
    summary = convert(
        tmp_path / f"train-images-idx3-ubyte{end}",
        tmp_path / "out.h5",
        y=tmp_path / f"train-labels-idx1-ubyte{end}",
    )
    assert (summary.format, summary.n_rows, summary.n_features) == ("idx", 17, 12)
    found = stored(tmp_path / "out.h5")
    assert found["X"].dtype == images.dtype
    np.testing.assert_array_equal(found["X"], images.reshape(17, 12))
    np.testing.assert_array_equal(found["y"], labels)
    assert found["y"].dtype == np.int64


def test_malformed_idx_is_refused(tmp_path):
    source, labels = tmp_path / "in.idx", tmp_path / "labels.idx"
    whole = idx_bytes(np.zeros((5, 2, 2), dtype="u1"))
    for data, message in [
        (b"\1\2\3\4more", "is not an IDX file"),
        (b"\0\0\x08", "is not an IDX file"),
        (b"\0\0\x08\0", "is not an IDX file"),
        (whole[:7], "cut short in its header"),
        (whole[:-1], "shorter than its header says"),
        (whole + b"!", "longer than its header says"),
        (gzip.compress(whole)[:-9], "cannot be unpacked"),
        (idx_bytes(np.zeros(5, dtype="u1")), "were the two files exchanged"),
        (idx_bytes(np.zeros((5, 0), dtype="u1")), "has rows of no columns"),
        (b"\0\0\x08\x20" + struct.pack(">32I", 5, 0, *[2**30] * 30), "has rows of no columns"),
        (idx_bytes(np.zeros((0, 5), dtype="u1")), "no rows"),
        (b"\0\0\x08\3" + struct.pack(">III", 1, 1000, 900), "shorter than its header says"),
        (b"\0\0\x08\3" + struct.pack(">III", 1, 2**16, 2**15), "2,147,483,648 features, more than 1,000,000"),
        (b"\0\0\x08\50" + b"\0\0\0\1" * 40, "has 40 axes, more than 32"),
    ]:
        source.write_bytes(data)
        refused(tmp_path, source, message)
    source.write_bytes(whole)
    refused(tmp_path, source, r"in\.idx has shape \(5, 2, 2\), but labels have one axis", y=source)
    labels.write_bytes(idx_bytes(np.zeros(4, dtype="u1")))
    refused(tmp_path, source, r"labels\.idx has shape \(4,\)", y=labels)
    refused(tmp_path, source, r"none\.idx does not exist", y=tmp_path / "none.idx")


@pytest.fixture
def write_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    def write(columns, **options):
        parquet.write_table(pyarrow.table(columns), tmp_path / "in.parquet", **options)
        return tmp_path / "in.parquet"

    return write


def test_parquet_round_trip_is_exact(write_parquet, tmp_path):
    random = np.random.default_rng(0)
    columns = {
        "a": random.normal(size=100),
        "b": random.normal(size=100).astype("f4"),
        "c": np.arange(100) % 3,
    }
    calls = []
    summary = convert(
        write_parquet(columns, row_group_size=7),
        tmp_path / "out.h5",
        progress=lambda *call: calls.append(call),
    )
    assert (summary.n_rows, summary.n_features, summary.label_type) == (100, 2, "int64")
    assert calls[-1] == (100, 100)
    found = stored(tmp_path / "out.h5")
    np.testing.assert_array_equal(found["X"], np.column_stack([columns["a"], columns["b"]]))
    np.testing.assert_array_equal(found["y"], columns["c"])


def test_parquet_types_and_label_columns(write_parquet, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    columns = {
        "kind": pyarrow.array(["cat", "dog", "cat"]).dictionary_encode(),
        "u": np.array([1, 2, 3], dtype="u1"),
        "v": np.array([4, 5, 6], dtype="u1"),
        "__index_level_0__": [7, 8, 9],
    }
    source = write_parquet(columns)
    for label in ("kind", 0, -3):
        convert(source, tmp_path / "out.h5", label_column=label, overwrite=True)
        found = stored(tmp_path / "out.h5")
        assert found["y"].tolist() == ["cat", "dog", "cat"]
        assert found["X"].dtype == np.uint8
        assert found["X"].tolist() == [[1, 4], [2, 5], [3, 6]]
    source = write_parquet({"u": columns["u"], "flag": [True, False, True]})
    assert convert(source, tmp_path / "out.h5", label_column=None, overwrite=True).label_type is None
    convert(source, tmp_path / "out.h5", overwrite=True)
    assert stored(tmp_path / "out.h5")["y"].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("columns", "message", "options"),
    [
        ({"a": [1.0, 2.0], "y": ["u", None]}, r"column 'y' is empty at row 1 \(0-based\)", {}),
        ({"a": [[1.0], [2.0]], "y": [0, 1]}, "column 'a' has type list", {}),
        ({"a": [1.0, 2.0], "y": [[0], [1]]}, "neither numbers nor text", {}),
        ({"a": [1.0, 2.0]}, "no columns of features", {}),
        ({"a": [1.0], "b": [2.0]}, "no column 'z': it has a, b", {"label_column": "z"}),
        ({"a": [1.0], "b": [2.0]}, "no column 2 among 2", {"label_column": 2}),
        ({"a": np.zeros(0), "b": np.zeros(0)}, "no rows", {}),
    ],
)
def test_parquet_that_cannot_be_used_is_refused(write_parquet, tmp_path, columns, message, options):
    refused(tmp_path, write_parquet(columns), message, **options)


def test_damaged_parquet_is_refused(write_parquet, tmp_path):
    source = write_parquet({"a": [1.0], "b": [2.0]})
    source.write_bytes(source.read_bytes()[:-20])
    refused(tmp_path, source, r"in\.parquet cannot be read as Parquet")
