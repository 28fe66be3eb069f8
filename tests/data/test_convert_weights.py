"""A column of weights: taken out of the features, written beside the labels, and refused by line or row."""

from __future__ import annotations

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mllkm_scale.data import convert
from mllkm_scale.errors import DataError, ParameterError

ROWS = [(1.5, "a", 2.0, "no"), (2.5, "b", 0.0, "yes"), (3.5, "a", 0.5, "no"), (4.5, "b", 1.0, "yes")]
NAMES = ("size", "kind", "w", "label")


def write(folder, suffix, rows=ROWS):
    path = folder / f"train{suffix}"
    if suffix == ".parquet":
        columns = [pa.array([row[at] for row in rows]) for at in range(4)]
        pq.write_table(pa.table(dict(zip(NAMES, columns, strict=True))), path)
    else:
        sign = "," if suffix == ".csv" else "\t"
        path.write_text("".join(sign.join(map(str, row)) + "\n" for row in (NAMES, *rows)))
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
@pytest.mark.parametrize("column", ["w", 2, -2])
def test_the_column_of_the_weights_is_no_feature(tmp_path, suffix, column):
    convert(write(tmp_path, suffix), tmp_path / "train.h5", sample_weight=column)
    with h5py.File(tmp_path / "train.h5") as file:
        assert file["sample_weight"][:].tolist() == [2.0, 0.0, 0.5, 1.0]
        assert file["feature_names"].asstr()[:].tolist() == ["size", "kind"]
        assert file["X"].shape == (4, 2)
        assert file["y"].asstr()[:].tolist() == ["no", "yes", "no", "yes"]


def test_weights_follow_the_rows_that_are_held_out(tmp_path):
    rows = [(float(at), "ab"[at % 2], at / 2, ("no", "yes")[at % 2]) for at in range(200)]
    convert(write(tmp_path, ".csv", rows), tmp_path / "train.h5", sample_weight="w", hold_out=0.25)
    with h5py.File(tmp_path / "train.h5") as file:
        for end in ("", "_test"):
            np.testing.assert_array_equal(file[f"X{end}"][:, 0], 2 * file[f"sample_weight{end}"][:])
        assert len(file["sample_weight_test"]) == 50


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("weight", [-1.0, float("inf"), float("nan")])
def test_weights_that_cannot_be_used_are_refused_by_their_place(tmp_path, suffix, weight):
    rows = [*ROWS[:2], (3.5, "a", weight, "no"), ROWS[3]]
    place = "line 4, column 3 'w'" if suffix == ".csv" else r"row 2 \(0-based\), column 'w'"
    with pytest.raises(DataError, match=rf"{place}.*the weight, is .*: weights are finite numbers from 0"):
        convert(write(tmp_path, suffix, rows), tmp_path / "train.h5", sample_weight="w")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sample_weight": "label"}, "the column of the weights is that of the labels"),
        ({"sample_weight": "weight"}, "the weight column 'weight' is not in the header"),
        ({"sample_weight": 4}, "there is no column 4 among 4"),
        ({"sample_weight": "kind"}, "the weight, is 'a': weights are finite numbers from 0"),
    ],
)
def test_columns_that_hold_no_weights_are_refused(tmp_path, given, message):
    with pytest.raises(DataError, match=message):
        convert(write(tmp_path, ".csv"), tmp_path / "train.h5", **given)


def test_other_formats_have_no_column_of_weights(tmp_path):
    (tmp_path / "train.libsvm").write_text("1 1:2\n")
    with pytest.raises(ParameterError, match="sample_weight does not belong to the format libsvm"):
        convert(tmp_path / "train.libsvm", tmp_path / "train.h5", sample_weight=0)
