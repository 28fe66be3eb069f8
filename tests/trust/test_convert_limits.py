"""Lines, rows and labels of files to convert are bounded: a small packed file cannot fill the memory."""

from __future__ import annotations

import gzip
import tracemalloc

import h5py
import numpy as np
import pytest

from mllkm_scale.data.converters import convert
from mllkm_scale.data.grid import MOST_FEATURES
from mllkm_scale.data.readers.limits import LONGEST_LINE_BYTES, MOST_COLUMNS
from mllkm_scale.errors import DataError


def refused(source, match, **options):
    """The memory that a refusal took."""
    target = source.with_name("converted.h5")
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=match) as caught:
            convert(source, target, **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not target.exists()
    assert len(str(caught.value)) < 9000
    return peak


@pytest.mark.parametrize("name", ["long.csv", "long.csv.gz", "long.libsvm", "long.tsv.gz"])
def test_a_line_that_does_not_end_is_not_read(tmp_path, name):
    path = tmp_path / name
    content = b"1,2\n" * 3 + b"1" * (20 * LONGEST_LINE_BYTES)
    path.write_bytes(gzip.compress(content, compresslevel=1) if name.endswith("gz") else content)
    assert refused(path, "line 4 is longer than 16.8 MB") < 6 * LONGEST_LINE_BYTES


@pytest.mark.parametrize("index", [2_000_000_000, MOST_FEATURES + 1])
def test_an_index_beyond_the_widest_row_is_refused(tmp_path, index):
    path = tmp_path / "wide.libsvm"
    path.write_text(f"1 1:1\n2 {index}:1\n")
    assert refused(path, "more than 1,000,000") < 1_000_000


def test_rows_of_arrays_are_bounded_too(tmp_path):
    np.save(tmp_path / "wide.npy", np.zeros((2, MOST_FEATURES + 1), np.uint8))
    refused(tmp_path / "wide.npy", "more than 1,000,000")


@pytest.mark.parametrize("name", ["long.csv", "long.npz", "long.parquet"])
def test_a_long_label_is_refused(tmp_path, name):
    labels = ["a", "b", "c" * 100_000, *["d"] * 3000]
    path = tmp_path / name
    if name.endswith("csv"):
        path.write_text("\n".join(f"1,{label}" for label in labels))
    elif name.endswith("npz"):
        np.savez(path, X=np.zeros((3, 1)), y=labels[:3])
    else:
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table({"a": np.zeros(len(labels)), "kind": labels}), path)
    assert refused(path, "1,000 characters" if name.endswith("parquet") else "100,000 characters") < 60_000_000


def test_lines_up_to_the_limit_are_read(tmp_path):
    path = tmp_path / "wide.csv"
    row = ",".join(["1.25"] * (MOST_COLUMNS - 1))
    path.write_text(f"{row},0\r\n{row},1\r\n")
    assert convert(path, tmp_path / "wide.h5").n_features == MOST_COLUMNS - 1
    with h5py.File(tmp_path / "wide.h5") as file:
        assert file["y"][:].tolist() == [0, 1]
