"""zarr groups are read, and folders that are none are refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zarr

from mllkm_scale.data import Dataset
from mllkm_scale.errors import DataError


@pytest.fixture
def store(tmp_path):
    group = zarr.open_group(str(tmp_path / "train.zarr"), mode="w")
    group.create_array("X", data=np.arange(80.0).reshape(20, 4), chunks=(5, 4))
    group.create_array("y", data=np.arange(20) % 2)
    group.create_group("inner").create_array("X", data=np.eye(3))
    return tmp_path / "train.zarr"


def test_arrays_of_a_group_and_of_an_inner_group_are_found(store):
    with Dataset.open(store) as data:
        assert data.name == "train.zarr:X"
        assert data.labels().sum() == 10
    with Dataset.open(store, x="inner/X", y=None) as data:
        np.testing.assert_array_equal(data.chunk(0), np.eye(3))


def test_a_group_of_the_older_format_is_read(tmp_path):
    group = zarr.open_group(str(tmp_path / "old.zarr"), mode="w", zarr_format=2)
    group.create_array("X", data=np.eye(3))
    with Dataset.open(tmp_path / "old.zarr", y=None) as data:
        np.testing.assert_array_equal(data.chunk(0), np.eye(3))


@pytest.mark.parametrize("name", ["Z", "inner", "../train.zarr/X", "", "X/deeper"])
def test_a_missing_array_is_refused_with_the_list_of_those_there_are(store, name):
    with pytest.raises(DataError, match=r"has no array .*: it has X, y; name the one"):
        Dataset.open(store, x=name, y=None)


def test_folders_that_are_no_group_are_refused(store, tmp_path):
    (tmp_path / "plain").mkdir()
    with pytest.raises(DataError, match=r"plain is a folder but no zarr group"):
        Dataset.open(tmp_path / "plain")
    with pytest.raises(DataError, match=r"is a zarr array, not a group: open .*train\.zarr with the data set 'X'"):
        Dataset.open(store / "X")


def test_a_damaged_chunk_is_named_by_its_rows(store):
    for part in (store / "X" / "c").rglob("*"):
        if part.is_file():
            part.write_bytes(b"nonsense")
    with Dataset.open(store, y=None) as data, pytest.raises(DataError, match=r"train\.zarr:X: rows 0 to 19 "):
        data.chunk(0)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("shape", [20, 2**63], "9,223,372,036,854,775,808 features, more than 1,000,000"),
        ("shape", "text", r"train\.zarr:X cannot be read .*: its metadata are damaged; copy it again"),
        ("codecs", [], "its metadata are damaged"),
        ("chunk_grid", {"name": "regular", "configuration": []}, "its metadata are damaged"),
        ("chunk_key_encoding", {"name": "default", "configuration": {"separator": [[]]}}, "its metadata are damaged"),
    ],
)
def test_metadata_that_no_array_has_are_refused(store, field, value, said):
    file = store / "X" / "zarr.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}))
    with pytest.raises(DataError, match=said):
        Dataset.open(store, y=None)


def test_a_listing_does_without_an_array_whose_metadata_are_damaged(store):
    (store / "X" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "array"}')
    with pytest.raises(DataError, match="it has some that cannot be read"):
        Dataset.open(store, x="Z", y=None)


def test_compound_arrays_are_refused(tmp_path):
    group = zarr.open_group(str(tmp_path / "s.zarr"), mode="w", zarr_format=2)
    group.create_array("X", shape=(2, 2), dtype=[("a", "f8"), ("b", "f8")])
    with pytest.raises(DataError, match=r"s\.zarr:X has type"):
        Dataset.open(tmp_path / "s.zarr", y=None)
