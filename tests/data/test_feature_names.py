"""Names of features: from the columns of a file to the data set, and preparation undone."""

from __future__ import annotations

import pickle

import h5py
import numpy as np
import pytest

from mllkm_scale.data import Dataset, Preprocessor
from mllkm_scale.data.converters import convert
from mllkm_scale.errors import ParameterError

NAMES = ("weight", "größe & <b>")


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "npz"])
def test_names_of_columns_are_kept_by_every_format_that_has_them(tmp_path, kind):
    X, y = np.array([[3.5, 25.0], [20.0, 60.0]]), np.array(["cat", "dog"])
    source = tmp_path / f"pets.{kind}"
    if kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({NAMES[0]: X[:, 0], NAMES[1]: X[:, 1], "kind": y}), source)
    elif kind == "npz":
        np.savez(source, X=X, y=y, feature_names=np.array(NAMES))
    else:
        rows = [(*NAMES, "kind"), *((*map(str, row), label) for row, label in zip(X, y, strict=True))]
        sign = "," if kind == "csv" else "\t"
        source.write_text("".join(f"{sign.join(row)}\n" for row in rows), encoding="utf-8")
    convert(source, tmp_path / "pets.h5")
    with Dataset.open(tmp_path / "pets.h5") as data:
        assert data.feature_names == NAMES
        assert pickle.loads(pickle.dumps(data)).feature_names == NAMES


def test_labels_in_the_middle_leave_the_names_of_the_features(tmp_path):
    (tmp_path / "pets.csv").write_text("weight,kind,height\n3.5,cat,25\n20,0.5,60\n")
    convert(tmp_path / "pets.csv", tmp_path / "pets.h5", label_column="kind")
    assert Dataset.open(tmp_path / "pets.h5").feature_names == ("weight", "height")


def test_a_file_without_a_header_has_no_names(tmp_path):
    (tmp_path / "pets.csv").write_text("3.5,25,0\n20,60,1\n")
    convert(tmp_path / "pets.csv", tmp_path / "pets.h5")
    assert Dataset.open(tmp_path / "pets.h5").feature_names is None


@pytest.mark.parametrize("names", [["a"], [1, 2], [["a", "b"]]], ids=["too few", "numbers", "a matrix"])
def test_what_cannot_be_names_is_not_taken_for_such(tmp_path, names):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["X"], file["feature_names"] = np.eye(2), names
    assert Dataset.open(tmp_path / "data.h5", y=None).feature_names is None


def test_names_stand_beside_the_samples_of_a_group_or_of_zarr(tmp_path):
    zarr = pytest.importorskip("zarr")
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["fold/X"], file["fold/feature_names"] = np.eye(2), list(NAMES)
    assert Dataset.open(tmp_path / "data.h5", "fold/X", None).feature_names == NAMES
    group = zarr.open_group(tmp_path / "data.zarr", mode="w")
    group.create_array("X", data=np.eye(2))
    group.create_array("feature_names", shape=(2,), dtype=str)[:] = np.array(NAMES)
    assert Dataset.open(tmp_path / "data.zarr", y=None).feature_names == NAMES


def test_arrays_are_named_by_the_caller_or_by_their_columns():
    pandas = pytest.importorskip("pandas")
    assert Dataset.from_arrays(np.eye(2)).feature_names is None
    assert Dataset.from_arrays(np.eye(2), feature_names=NAMES).feature_names == NAMES
    assert Dataset.from_arrays(pandas.DataFrame(np.eye(2), columns=NAMES)).feature_names == NAMES
    with pytest.raises(ParameterError, match="3 feature_names, but X has 2 features"):
        Dataset.from_arrays(np.eye(2), feature_names=["a", "b", "c"])


@pytest.mark.parametrize("scaling", ["none", "standard", "minmax"])
@pytest.mark.parametrize("whiten", [False, True])
def test_a_preparation_that_loses_nothing_can_be_undone(real_data, scaling, whiten):
    X, _ = real_data("iris")
    for n_components in (None, 4):
        preprocessor = Preprocessor.fit(Dataset.from_arrays(X), scaling, n_components, whiten)
        np.testing.assert_allclose(preprocessor.invert(preprocessor.transform(X)), X, atol=1e-9)


def test_what_is_projected_away_is_that_of_the_mean(real_data):
    X, _ = real_data("iris")
    preprocessor = Preprocessor.fit(Dataset.from_arrays(X), "standard", 2)
    Z = preprocessor.transform(X)
    back = preprocessor.invert(Z)
    np.testing.assert_allclose(preprocessor.transform(back), Z, atol=1e-9)
    np.testing.assert_allclose(preprocessor.invert(np.zeros((1, 2)))[0], X.mean(axis=0), atol=1e-9)


def test_unit_norm_scaling_keeps_no_norms(real_data):
    X, _ = real_data("iris")
    preprocessor = Preprocessor.fit(Dataset.from_arrays(X), "unit-norm")
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(preprocessor.invert(preprocessor.transform(X)), X / norms, atol=1e-12)
