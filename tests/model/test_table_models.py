"""A machine trained on a table as it is: from pandas, Arrow and what else hands over columns; saved and served."""

from __future__ import annotations

import datetime
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from mllkm_scale import MLLKMClassifier, load_model, train
from mllkm_scale.data.tables.frames import table_dataset
from mllkm_scale.errors import DataError, ModelFileError
from mllkm_scale.estimators.cross_validation import MLLKMClassifierCV
from mllkm_scale.model import describe, evaluate
from mllkm_scale.path import train_path

QUICK: dict[str, Any] = {"anchors": "all", "C": 1.0, "n_jobs": 1}


def people(n: int = 120, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """A table of every kind of column, some of it missing, and labels that follow from it."""
    rng = np.random.default_rng(seed)
    town = rng.choice(["Lyon", "Łódź", "Graz"], n)
    income = rng.normal(30.0, 8.0, n)
    member = rng.random(n) < 0.5
    since = np.datetime64("2020-01-01") + rng.integers(0, 900, n).astype("timedelta64[D]")
    y = np.where((town == "Łódź") | ((income > 30) & member), "yes", "no")
    table = pd.DataFrame(
        {
            "name": [f"person {i}" for i in range(n)],
            "town": town,
            "income": income,
            "member": member,
            "since": since.astype("datetime64[us]"),
            "nothing": np.full(n, np.nan),
        }
    )
    table.loc[::17, "income"] = np.nan
    table.loc[::13, "town"] = None
    return table, y


class Columnar:
    """What another library hands over: a table by the interface of Arrow, with columns but without pandas."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.columns = table.column_names
        self.dtypes = table.schema.types
        self.shape = table.num_rows, table.num_columns

    def __len__(self) -> int:
        return len(self._table)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.fixture(scope="module")
def fitted() -> MLLKMClassifier:
    X, y = people()
    return MLLKMClassifier(**QUICK).fit(X, y)


def test_a_table_is_learned_as_it_is(fitted):
    new, truth = people(seed=1)
    assert fitted.score(new, truth) > 0.85
    assert fitted.n_features_in_ == 6
    assert fitted.feature_names_in_.tolist() == list(new.columns)
    told = fitted.model_.encoding.describe()
    assert told[1].startswith("town: category of 3 levels ('Graz'") or "'Lyon'" in told[1]
    assert told[5] == "nothing: left out, because it has no information"
    assert "6 columns of a table as" in describe(fitted.model_).preprocessing


def test_every_kind_of_table_gives_the_same_scores(fitted):
    new, _ = people(seed=1)
    scores = fitted.decision_function(new)
    table = pa.Table.from_pandas(new, preserve_index=False)
    categorical = new.assign(town=new["town"].astype("category"))
    rows = new.astype(object).where(new.notna(), None).to_numpy()
    with_text = new.assign(income=new["income"].astype(str), member=new["member"].map({True: "true", False: "FALSE"}))
    for other in (table, Columnar(table), categorical, with_text):
        np.testing.assert_array_equal(fitted.model_.decision_function(other), scores)
    np.testing.assert_array_equal(fitted.model_.decision_function(rows), scores)
    np.testing.assert_array_equal(fitted.decision_function(table_dataset(new)), scores)
    np.testing.assert_array_equal(fitted.model_.predict(new), fitted.classes_[(scores > 0).astype(int)])


def test_the_training_does_not_depend_on_who_hands_over_the_table(fitted):
    X, y = people()
    table = pa.Table.from_pandas(X, preserve_index=False)
    scores = MLLKMClassifier(**QUICK).fit(Columnar(table), y).model_.decision_function(X)
    np.testing.assert_array_equal(scores, fitted.decision_function(X))


def test_unknown_and_missing_values_have_a_place_of_their_own(fitted):
    new, _ = people(seed=1)
    odd = new.head(2).assign(town=["Atlantis", None], income=[np.nan, np.nan], name=["x", "y"])
    assert np.isfinite(fitted.decision_function(odd)).all()
    encoding = fitted.model_.encoding
    features = encoding.dataset(table_dataset(odd)).part(0, 2)
    names = encoding.feature_names
    assert features[:, names.index("income missing")].tolist() == [1, 1]
    assert features[:, names.index("town missing")].tolist() == [0, 1]
    assert features[0, [names.index(f"town={town}") for town in ("Lyon", "Łódź", "Graz")]].tolist() == [0, 0, 0]


def test_a_saved_model_decides_with_the_same_bits_and_older_ones_stay_as_they_are(fitted, tmp_path):
    new, truth = people(seed=1)
    fitted.model_.save(tmp_path / "a.mllkm")
    loaded = load_model(tmp_path / "a.mllkm")
    np.testing.assert_array_equal(loaded.decision_function(new), fitted.decision_function(new))
    loaded.save(tmp_path / "b.mllkm")
    assert (tmp_path / "a.mllkm").read_bytes() == (tmp_path / "b.mllkm").read_bytes()
    assert pickle.loads(pickle.dumps(loaded)).predict(new).tolist() == fitted.predict(new).tolist()
    data = table_dataset(new, truth)
    assert evaluate(loaded, data).error == pytest.approx(1 - fitted.score(new, truth))
    plain = MLLKMClassifier(**QUICK).fit(new[["income"]].fillna(0.0), truth)
    plain.model_.save(tmp_path / "plain.mllkm")
    assert load_model(tmp_path / "plain.mllkm").encoding is None


def test_a_damaged_encoding_is_no_model(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr("mllkm_scale.data.tables.encoding.METHODS", ("dropped",))
    fitted.model_.save(tmp_path / "a.mllkm")
    with pytest.raises(ModelFileError, match="holds no model that fits together"):
        load_model(tmp_path / "a.mllkm")


def test_a_server_answers_for_rows_of_the_table(fitted):
    new, _ = people(30, seed=2)
    server = fitted.model_.server()
    scores = fitted.decision_function(new)
    for expected, row in zip(scores, new.itertuples(index=False), strict=True):
        assert server.scores(list(row)) == pytest.approx(expected, abs=1e-9)
    np.testing.assert_allclose(server.decision_function(new), scores, atol=1e-9)
    written = ["anyone", " Graz ", "31.5", "true", "2021-05-01", ""]
    typed = ["anyone", "Graz", 31.5, True, datetime.date(2021, 5, 1), None]
    assert server.scores(written) == server.scores(typed)
    with pytest.raises(DataError, match="x has 2 features per row"):
        server.scores(["a", "b"])
    with pytest.raises(DataError, match="column 2 'income' is 'much', not a number"):
        server.scores(["a", "Graz", "much", True, None, None])


def test_rows_that_do_not_fit_are_refused_by_their_cell(fitted):
    new, _ = people(5, seed=2)
    with pytest.raises(DataError, match=r"row 2, column 'income' \(0-based\) is 'x', not a number"):
        fitted.model_.predict(new.assign(income=["1", "2", "x", "4", "5"]))
    with pytest.raises(DataError, match=r"column 2 'income' .* is infinity"):
        fitted.model_.predict(new.assign(income=np.inf))
    with pytest.raises(DataError, match="lacks 4 of the 6 features of the model: 'income'"):
        fitted.model_.predict(new[["name", "town"]])
    with pytest.raises(DataError, match="is a number, but the model was trained with a category"):
        fitted.model_.predict(np.zeros((2, 6)))
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(new.rename(columns={"town": "city"}))


def test_a_model_of_numbers_refuses_categories():
    X, y = people()
    plain = MLLKMClassifier(**QUICK).fit(X[["income"]].fillna(0.0), y).model_
    data = table_dataset(pa.table({"income": ["much", "little"]}), ["yes", "no"])
    with pytest.raises(DataError, match=r"column 0 'income' \(0-based\) is a category, but the model was trained with"):
        evaluate(plain, data)


def test_columns_are_categories_or_numbers_as_they_are_named():
    rng = np.random.default_rng(0)
    zone = rng.integers(0, 6, 150)
    y = np.isin(zone, (0, 3, 4))
    X = np.column_stack([zone, rng.normal(size=150)])
    named = MLLKMClassifier(categories=[0], **QUICK).fit(X, y)
    assert named.model_.encoding.methods == ("one-hot", "number")
    assert named.score(X, y) == 1.0
    assert clone(named).get_params()["categories"] == [0]
    text = pd.DataFrame({"zone": zone.astype(str)})
    assert MLLKMClassifier(**QUICK).fit(text, y).model_.encoding.methods == ("one-hot",)
    assert MLLKMClassifier(as_number=["zone"], **QUICK).fit(text, y).model_.encoding.methods == ("number",)


def test_tables_go_through_pipelines_and_cross_validation():
    X, y = people(90)
    assert cross_val_score(make_pipeline(MLLKMClassifier(**QUICK)), X, y, cv=2).mean() > 0.7
    machine = MLLKMClassifierCV(MLLKMClassifier(**QUICK), kernel_counts=[2, 8], cv=2).fit(X, y)
    assert machine.model_.encoding is not None
    assert machine.score(X, y) > 0.7


def test_paths_measure_models_on_rows_of_the_table():
    X, y = people(90)
    path = train_path(table_dataset(X, y), 0.3, kernel_counts=[8, 2], **QUICK)
    assert all(model.encoding is not None for model in path.models)
    assert path.points[0].error < 0.4


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_bits_do_not_depend_on_threads(jobs, fitted):
    X, y = people()
    result = train(table_dataset(X, y), **(QUICK | {"n_jobs": jobs}))
    np.testing.assert_array_equal(result.model.decision_function(X), fitted.decision_function(X))


def test_a_resumed_training_on_a_table_has_the_same_bits(fitted, tmp_path):
    X, y = people()
    data = table_dataset(X, y)
    train(data, run_dir=tmp_path / "run", report=False, max_rounds=1, **QUICK)
    resumed = train(data, run_dir=tmp_path / "run", report=False, resume=True, **QUICK)
    np.testing.assert_array_equal(resumed.model.decision_function(X), fitted.decision_function(X))
    whole = load_model(tmp_path / "run" / "model.mllkm")
    np.testing.assert_array_equal(whole.decision_function(X), fitted.decision_function(X))


def test_verbose_trainings_tell_a_line_a_column(capsys):
    X, y = people(40)
    MLLKMClassifier(verbose=1, **QUICK).fit(X, y)
    told = capsys.readouterr()
    assert "town: category of 3 levels" in told.err + told.out


def test_labels_that_are_not_one_a_row_are_refused():
    X, y = people(20)
    with pytest.raises(ValueError, match="y has 19 labels, but X has 20 rows"):
        MLLKMClassifier().fit(X, y[:19])
    with pytest.raises(ValueError, match="requires y to be passed"):
        MLLKMClassifier().fit(X)
