"""Columns are matched by name where both sides have names: any order, others left out, and nothing missing."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import replace

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from mllkm_scale import Dataset, MLLKMClassifier
from mllkm_scale.errors import DataError, ModelFileError, ParameterError
from mllkm_scale.model import describe, evaluate, load_model, save_model
from mllkm_scale.model.names import Features
from mllkm_scale.prediction import predict_file

NAMES = ("age", "height", "weight", "blood pressure")
ORDER = [2, 0, 3, 1]


@pytest.fixture
def model(make_model):
    return replace(make_model(), feature_names=NAMES)


@pytest.fixture
def rows():
    return np.random.default_rng(1).normal(size=(60, 4)).round(3) * 3


@pytest.fixture
def table(rows):
    """The columns in another order, with a label of text in between and an index."""
    frame = pd.DataFrame(rows, columns=NAMES)[[NAMES[at] for at in ORDER]]
    frame.insert(1, "diagnosis", ["ill", "well"] * 30)
    return frame


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr("mllkm_scale.data.grid.CHUNK_BYTES", 20 * 8 * 4)


def written(table, path):
    """The table as a file of the format that its name says."""
    numbers = table.drop(columns="diagnosis")
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(table.to_csv(index=False, sep=";").encode()))
    elif path.suffix == ".tsv":
        table.to_csv(path, index=False, sep="\t")
    elif path.suffix == ".parquet":
        table.set_index(pd.Index(range(60, 120))).to_parquet(path)
    elif path.suffix == ".npz":
        np.savez(path, X=numbers.to_numpy(), feature_names=np.array(list(numbers.columns)))
    else:
        with h5py.File(path, "w") as file:
            file["X"], file["feature_names"] = numbers.to_numpy(), list(numbers.columns)
            file["y"] = np.zeros(60, int)
    return path


@given(st.permutations(range(5)), st.integers(1, 5))
def test_every_feature_is_found_where_it_stands(order, count):
    found = [f"name {number}" for number in order]
    wanted = tuple(f"name {number}" for number in range(count))
    columns = Features(count, wanted).match(found, "table")
    assert [found[position] for position in columns.positions] == list(wanted)
    assert sorted(columns.ignored) == sorted(set(found) - set(wanted))
    assert columns.in_place == (found == list(wanted))


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv", "a.parquet", "a.npz", "a.h5"])
def test_a_file_with_its_columns_in_another_order_gets_the_same_scores(model, rows, table, tmp_path, name):
    summary = predict_file(model, written(table, tmp_path / name), tmp_path / "out.h5", scores=True)
    assert summary.by_name
    assert summary.ignored == (("diagnosis",) if name[-3:] not in ("npz", ".h5") else ())
    with h5py.File(tmp_path / "out.h5") as file:
        np.testing.assert_allclose(file["scores"][:], model.decision_function(rows), atol=1e-12)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.npz", "a.h5"])
def test_a_missing_feature_is_named_with_the_column_that_may_be_meant(model, table, tmp_path, name):
    table = table.rename(columns={"age": "Age ", "weight": "mass"})
    with pytest.raises(DataError, match=r"lacks 2 of the 4 features.*'age' \(is it 'Age ?'\?\), 'weight'; name its"):
        predict_file(model, written(table, tmp_path / name), tmp_path / "out.h5")
    assert not (tmp_path / "out.h5").exists()


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.npz", "a.h5"])
def test_columns_may_be_taken_by_position(model, table, tmp_path, name):
    numbers = table.drop(columns="diagnosis")
    if name in ("a.csv", "a.parquet"):
        table = numbers.assign(diagnosis=1).drop(columns="diagnosis")
        table.to_csv(tmp_path / name, index=False) if name == "a.csv" else table.to_parquet(tmp_path / name)
    else:
        written(table, tmp_path / name)
    summary = predict_file(model, tmp_path / name, tmp_path / "out.h5", by_position=True, scores=True)
    assert not summary.by_name
    with h5py.File(tmp_path / "out.h5") as file:
        np.testing.assert_allclose(file["scores"][:], model.decision_function(numbers.to_numpy()), atol=1e-12)


def test_rows_without_names_are_taken_by_position(model, rows, tmp_path):
    np.savetxt(tmp_path / "a.csv", rows, delimiter=",")
    np.save(tmp_path / "a.npy", rows)
    for name in ("a.csv", "a.npy"):
        summary = predict_file(model, tmp_path / name, tmp_path / f"{name}.h5", scores=True)
        assert not summary.by_name
        with h5py.File(tmp_path / f"{name}.h5") as file:
            np.testing.assert_allclose(file["scores"][:], model.decision_function(rows), atol=1e-12)


def test_a_header_of_numbers_and_names_is_known_as_such(make_model, rows, tmp_path):
    model = replace(make_model(), feature_names=("1990", "2000", "2010", "mean"))
    frame = pd.DataFrame(rows, columns=model.feature_names)[["mean", "1990", "2000", "2010"]]
    frame.to_csv(tmp_path / "a.csv", index=False)
    summary = predict_file(model, tmp_path / "a.csv", tmp_path / "out.h5", scores=True)
    assert summary.n_rows == len(rows)
    with h5py.File(tmp_path / "out.h5") as file:
        np.testing.assert_allclose(file["scores"][:], model.decision_function(rows), atol=1e-12)


def test_two_columns_of_the_name_of_a_feature_are_refused(model, table, tmp_path):
    header, rest = table.to_csv(index=False).split("\n", 1)
    (tmp_path / "a.csv").write_text(header.replace("diagnosis", "age") + "\n" + rest)
    with pytest.raises(DataError, match="2 columns of the name 'age': rename all but one"):
        predict_file(model, tmp_path / "a.csv", tmp_path / "out.csv")


def test_a_pipe_is_matched_by_name_too(model, rows, table, tmp_path, monkeypatch):
    text = io.TextIOWrapper(io.BytesIO(table.to_csv(index=False).encode()))
    monkeypatch.setattr("sys.stdin", text)
    predict_file(model, "-", tmp_path / "out.h5", scores=True)
    with h5py.File(tmp_path / "out.h5") as file:
        np.testing.assert_allclose(file["scores"][:], model.decision_function(rows), atol=1e-12)


def test_a_column_of_another_type_is_named(model, table, tmp_path):
    table["height"] = "tall"
    with pytest.raises(DataError, match=r"row 0 .*column 'height' is 'tall', not a number"):
        predict_file(model, written(table, tmp_path / "a.parquet"), tmp_path / "out.csv")
    with pytest.raises(DataError, match=r"'height' \(from 1\) is 'tall', not a number"):
        predict_file(model, written(table, tmp_path / "a.csv"), tmp_path / "out.csv")


def test_models_servers_and_evaluations_take_frames_in_any_order(model, rows, table):
    expected = model.decision_function(rows)
    frame = table.drop(columns="diagnosis")
    np.testing.assert_array_equal(model.decision_function(frame), expected)
    np.testing.assert_array_equal(model.predict(frame), model.predict(rows))
    server = model.server()
    np.testing.assert_allclose(server.decision_function(frame), expected, atol=1e-9)
    assert server.scores(dict(frame.iloc[3])) == pytest.approx(expected[3])
    assert server.label(dict(frame.iloc[3])) == model.predict(rows[3:4])[0]
    data = Dataset.from_arrays(frame, model.predict(rows))
    assert data.feature_names == tuple(frame.columns)
    assert evaluate(model, data).error == 0
    np.testing.assert_array_equal(np.concatenate([f for _, f in model.decision_chunks(data)]), expected)
    by_position = evaluate(model, Dataset.from_arrays(frame.to_numpy(), model.predict(rows)))
    assert (evaluate(model, data, by_position=True).confusion == by_position.confusion).all()


def test_columns_of_a_frame_that_are_left_out_are_told_of(model, rows, table):
    with pytest.warns(UserWarning, match=r"X: 1 column is ignored.*'diagnosis'"):
        found = model.predict(table)
    np.testing.assert_array_equal(found, model.predict(rows))
    with pytest.raises(DataError, match=r"X lacks 1 of the 4 features of the model: 'age'; name"):
        model.predict(table.drop(columns="age"))
    with pytest.raises(DataError, match="x lacks 1 of the 4 features of the model: 'age'"):
        model.server().label(dict.fromkeys(NAMES[1:], 0.0))


def test_columns_that_only_have_numbers_are_taken_by_position(model, rows):
    np.testing.assert_array_equal(model.predict(pd.DataFrame(rows)), model.predict(rows))


def test_a_model_without_names_takes_all_by_position(make_model, rows, table):
    frame = table.drop(columns="diagnosis")
    np.testing.assert_array_equal(make_model().predict(frame), make_model().predict(frame.to_numpy()))
    with pytest.raises(DataError, match="x has names, but the model knows none"):
        make_model().server().label(dict(frame.iloc[0]))


def test_names_are_part_of_the_file_and_of_the_description(make_model, model, tmp_path):
    for saved, names in ((model, NAMES), (make_model(), None)):
        save_model(saved, tmp_path / "a.mllkm")
        assert load_model(tmp_path / "a.mllkm").feature_names == names
    assert describe(model).feature_names == NAMES
    assert "age, height, weight, blood pressure" in describe(model).as_text()
    assert json.loads(json.dumps(describe(model).as_dict(), default=str))["feature_names"] == list(NAMES)


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c", "a"), ("a", "b", "c", 4), "abcd", (None,) * 4])
def test_names_that_cannot_be_those_of_the_features_are_refused(make_model, names, tmp_path, monkeypatch):
    with pytest.raises(ParameterError):
        replace(make_model(), feature_names=names)


def test_a_file_whose_names_do_not_fit_is_refused(make_model, tmp_path, monkeypatch):
    model = replace(make_model(), feature_names=NAMES)
    object.__setattr__(model, "feature_names", NAMES[:3])
    save_model(model, tmp_path / "a.mllkm")
    with pytest.raises(ModelFileError, match="3 feature_names for 4 features"):
        load_model(tmp_path / "a.mllkm")


def test_a_fitted_estimator_knows_the_names_of_its_frame():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 3)), columns=["b", "c", "a"])
    y = (X["a"] > 0).to_numpy()
    machine = MLLKMClassifier(n_jobs=1).fit(X, y)
    assert machine.model_.feature_names == ("b", "c", "a")
    with pytest.raises(ValueError, match="feature names should match"):  # scikit-learn's own rule
        machine.predict(X[["a", "b", "c"]])
    assert (machine.model_.predict(X[["a", "b", "c"]]) == machine.predict(X)).all()
    learner = MLLKMClassifier(n_jobs=1).partial_fit(X, y, classes=[False, True])
    assert learner.model_.feature_names == ("b", "c", "a")
    twice = Dataset.from_arrays(X.to_numpy(), y, feature_names=["a", "b", "a"])
    assert MLLKMClassifier(n_jobs=1).fit(twice).model_.feature_names is None


def test_a_table_of_arrow_needs_no_pandas(model, rows, table, tmp_path):
    parquet.write_table(pa.table({name: table[name].to_numpy() for name in table.columns}), tmp_path / "a.parquet")
    summary = predict_file(model, tmp_path / "a.parquet", tmp_path / "out.csv")
    assert summary.n_rows == len(rows)
