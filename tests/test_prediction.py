"""Prediction from file to file is prediction in memory, and its target appears whole or not at all."""

from __future__ import annotations

import csv
import errno
import io

import h5py
import numpy as np
import pytest
import zarr

from mllkm_scale.errors import DataError, ParameterError, ScratchError
from mllkm_scale.model import model_checksum
from mllkm_scale.prediction import predict_file


@pytest.fixture
def rows():
    return np.random.default_rng(1).normal(size=(230, 4)).astype(np.float32)


@pytest.fixture
def source(rows, tmp_path):
    path = tmp_path / "test.h5"
    with h5py.File(path, "w") as file:
        file["X"] = rows
        file["deep/samples"] = rows[:10]
    return path


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr("mllkm_scale.data.grid.CHUNK_BYTES", 100 * 8 * 4)


@pytest.mark.parametrize("classes", [(0, 1), (False, True), (-1.0, 1.0), ("état", "über"), (3, 5, 8), ("a", "bc", "d")])
def test_the_file_holds_the_labels_and_scores_of_prediction_in_memory(make_model, classes, rows, source, tmp_path):
    model = make_model(classes=classes)
    told = []
    summary = predict_file(
        model, source, tmp_path / "out.h5", scores=True, progress=lambda *counts: told.append(counts)
    )
    expected = model.predict(rows)
    with h5py.File(tmp_path / "out.h5") as file:
        stored = file["prediction"]
        text = h5py.check_string_dtype(stored.dtype)
        labels = stored.asstr()[:] if text else stored[:]
        assert labels.tolist() == expected.tolist()
        assert text or labels.dtype == model.classes.dtype
        np.testing.assert_array_equal(file["scores"][:], model.decision_function(rows))
        assert list(file.attrs["classes"]) == list(classes)
        assert file.attrs["model_checksum"] == model_checksum(model) == summary.model_checksum
    assert told == [(100, 230), (200, 230), (230, 230)]
    assert summary.n_rows == 230
    assert dict(zip(summary.classes, summary.counts, strict=True)) == {
        label: expected.tolist().count(label) for label in classes
    }
    assert summary.size_bytes == (tmp_path / "out.h5").stat().st_size


def test_scores_are_left_out_unless_asked_for(make_model, source, tmp_path):
    summary = predict_file(make_model(), source, tmp_path / "out.h5", x="deep/samples")
    assert summary.n_rows == 10
    with h5py.File(tmp_path / "out.h5") as file:
        assert list(file) == ["prediction"]


def test_a_zarr_group_is_predicted_too(make_model, rows, tmp_path):
    group = zarr.create_group(tmp_path / "test.zarr")
    group.create_array("X", data=rows, chunks=(50, 4))
    predict_file(make_model(), tmp_path / "test.zarr", tmp_path / "out.h5", n_jobs=2)
    with h5py.File(tmp_path / "out.h5") as file:
        np.testing.assert_array_equal(file["prediction"][:], make_model().predict(rows))


def test_a_target_that_exists_is_replaced_only_if_asked(make_model, source, tmp_path):
    target = tmp_path / "out.h5"
    target.write_text("precious")
    with pytest.raises(ParameterError, match="exists already"):
        predict_file(make_model(), source, target)
    assert target.read_text() == "precious"
    predict_file(make_model(), source, target, overwrite=True)
    assert h5py.is_hdf5(target)


def test_the_source_is_never_the_target(make_model, source, tmp_path):
    before = source.read_bytes()
    (tmp_path / "link.h5").symlink_to(source)
    for target in (source, tmp_path / "link.h5"):
        with pytest.raises(ParameterError, match="is the file to be predicted"):
            predict_file(make_model(), source, target, overwrite=True)
    assert source.read_bytes() == before


def test_a_target_of_another_format_is_refused(make_model, source, tmp_path):
    with pytest.raises(ParameterError, match=r"name it out\.h5 or out\.csv"):
        predict_file(make_model(), source, tmp_path / "out.xlsx")


def test_after_an_error_nothing_is_left(make_model, rows, source, tmp_path):
    rows[222, 1] = np.nan
    with h5py.File(source, "a") as file:
        file["broken"] = rows
    with pytest.raises(DataError, match=r"test\.h5:broken has NaN at row 222, column 1"):
        predict_file(make_model(), source, tmp_path / "out.h5", x="broken")

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict_file(make_model(), source, tmp_path / "out.h5", progress=interrupt)
    assert list(tmp_path.iterdir()) == [source]


def test_data_that_does_not_fit_the_model_is_refused_before_writing(make_model, source, tmp_path):
    with pytest.raises(DataError, match=r"test\.h5:X has 4 features per row, but .* trained with 6"):
        predict_file(make_model(n_features=6), source, tmp_path / "out.h5")
    with pytest.raises(DataError, match="no data set 'Z'"):
        predict_file(make_model(), source, tmp_path / "out.h5", x="Z")
    with pytest.raises(ScratchError, match="does not exist"):
        predict_file(make_model(), source, tmp_path / "missing" / "out.h5")


def test_a_class_that_hdf5_cannot_hold_is_refused(make_model, source, tmp_path):
    with pytest.raises(DataError, match="HDF5 cannot hold"):
        predict_file(make_model(classes=("a", "b\x00c")), source, tmp_path / "out.h5")
    assert list(tmp_path.iterdir()) == [source]


def test_two_classes_have_one_score_in_text_and_labels_are_quoted(make_model, rows, source, tmp_path):
    model = make_model(classes=('a "b"', "c,d"))
    summary = predict_file(model, source, tmp_path / "out.csv", scores=True)
    with (tmp_path / "out.csv").open(newline="") as file:
        header, *lines = csv.reader(file)
    assert header == ["prediction", "score_c,d"]
    assert [label for label, _ in lines] == model.predict(rows).tolist()
    assert [float(score) for _, score in lines] == model.decision_function(rows).tolist()
    assert summary.size_bytes == (tmp_path / "out.csv").stat().st_size


def test_text_labels_with_every_sign_survive_in_text(make_model, source, tmp_path):
    model = make_model(classes=("two\nlines", "über\x00"))
    predict_file(model, source, tmp_path / "out.tsv")
    with (tmp_path / "out.tsv").open(newline="", encoding="utf-8") as file:
        assert {label for [label] in csv.reader(file, delimiter="\t")} <= {"prediction", *model.classes.tolist()}


def test_workers_are_given_data_sets_alone(make_model, tmp_path):
    with pytest.raises(ParameterError, match=r"workers read HDF5 and zarr, not csv: convert .*new\.csv first"):
        predict_file(make_model(), tmp_path / "new.csv", tmp_path / "out.h5", client=object())


def test_a_format_that_is_not_known_is_refused(make_model, source, tmp_path):
    with pytest.raises(ParameterError, match="format='xls' is not known: choose one of hdf5, zarr, csv"):
        predict_file(make_model(), source, tmp_path / "out.h5", format="xls")
    with pytest.raises(ParameterError, match="needs a header: give its position"):
        predict_file(make_model(), "new.csv", tmp_path / "out.h5", label_column="kind", header=False)


def test_arrays_that_are_no_rows_of_numbers_are_refused(make_model, tmp_path):
    np.savez(tmp_path / "new.npz", X=np.array(["a", "b"]), Z=np.zeros((3, 4)))
    with pytest.raises(DataError, match="has X of shape"):
        predict_file(make_model(), tmp_path / "new.npz", tmp_path / "out.h5")
    np.savez(tmp_path / "other.npz", Z=np.zeros((3, 4)))
    with pytest.raises(DataError, match="holds no rows under the name X"):
        predict_file(make_model(), tmp_path / "other.npz", tmp_path / "out.h5")
    np.save(tmp_path / "new.npy", np.zeros((3, 5)))
    with pytest.raises(DataError, match="has 5 features per row, but the model was trained with 4"):
        predict_file(make_model(), tmp_path / "new.npy", tmp_path / "out.h5")
    assert not (tmp_path / "out.h5").exists()


def test_a_full_disk_leaves_no_half_a_table(make_model, source, tmp_path, monkeypatch):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("mllkm_scale.model.inference.targets._TextPredictions._open", lambda self, path: Full())
    with pytest.raises(ScratchError, match=r"out\.csv cannot be written \(No space left on device\): free space"):
        predict_file(make_model(), source, tmp_path / "out.csv")
    assert not list(tmp_path.glob("*out*"))
