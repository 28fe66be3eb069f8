"""Tables of polars, and what estimators say of tables that cannot be trained on."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mllkm_scale import MLLKMClassifier
from mllkm_scale.data.tables.frames import is_frame, table_dataset
from mllkm_scale.errors import DataError

N = 80


@pytest.fixture
def people() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "Größe (cm)": np.where(rng.random(N) < 0.1, np.nan, rng.normal(170, 9, N)),
            "town name": rng.choice(["Lyon", "Graz", None, "São Paulo"], N),
            "paid?": rng.random(N) < 0.5,
            "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, N), "D"),
            "grade": pd.Categorical(rng.choice(["a", "b", "c"], N)),
        }
    )


@pytest.fixture
def labels(people: pd.DataFrame) -> np.ndarray:
    return np.where(people["town name"] == "Lyon", "sold", "free")


def machine() -> MLLKMClassifier:
    return MLLKMClassifier(anchors=10, C=1.0, max_rounds=2, tol=0.5, n_jobs=1)


def test_polars_gives_the_bits_of_pandas(people: pd.DataFrame, labels: np.ndarray) -> None:
    polars = pytest.importorskip("polars")
    of_polars = polars.from_pandas(people)
    assert of_polars.schema["grade"] == polars.Categorical
    expected = machine().fit(people, labels)
    found = machine().fit(of_polars, polars.Series(labels))
    np.testing.assert_array_equal(found.decision_function(of_polars), expected.decision_function(people))
    np.testing.assert_array_equal(expected.predict(of_polars), expected.predict(people))
    assert found.feature_names_in_.tolist() == list(people)


def test_categories_may_be_views_of_text() -> None:
    grades = pa.array(["a", "b", None, "a"], pa.string_view()).cast(pa.string()).dictionary_encode()
    views = pa.DictionaryArray.from_arrays(grades.indices, grades.dictionary.cast(pa.string_view()))
    table = pa.table({"grade": views, "town": pa.array(["x", None, "y", "x"], pa.string_view())})
    data = table_dataset(table)
    assert data.columns is not None
    assert data.columns.describe() == [
        "grade: category of 2 levels ('a', 'b')",
        "town: category of 2 levels ('x', 'y')",
    ]
    np.testing.assert_array_equal(data.chunk(0), [[0, 0], [1, np.nan], [np.nan, 1], [0, 0]])


def test_a_series_is_no_table(people: pd.DataFrame, labels: np.ndarray) -> None:
    assert not is_frame(people["grade"])
    assert not is_frame(pa.chunked_array([[1, 2]]))
    with pytest.raises(ValueError, match="Expected a 2-dimensional container"):
        machine().fit(people["Größe (cm)"], labels)


def test_two_columns_of_one_name_are_refused(people: pd.DataFrame, labels: np.ndarray) -> None:
    for frame in (people, people[["Größe (cm)"]].fillna(0)):
        with pytest.raises(DataError, match=r"X has two columns of the name 'Größe \(cm\)': rename one"):
            machine().fit(pd.concat([frame, people[["Größe (cm)"]]], axis=1), labels)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_a_missing_label_is_named_by_its_row(people: pd.DataFrame, labels: np.ndarray, missing: object) -> None:
    y = labels.astype(object)
    y[7] = missing
    for X in (people, people[["Größe (cm)"]].fillna(0)):
        with pytest.raises(DataError, match=r"y has a missing label at row 7 \(0-based\): label it"):
            machine().fit(X, y)


def test_a_column_of_several_types_is_named_once(people: pd.DataFrame, labels: np.ndarray) -> None:
    with pytest.raises(DataError) as caught:
        machine().fit(people.assign(mixed=[1, "a"] * (N // 2)), labels)
    assert str(caught.value).count("'mixed'") == 1
    assert str(caught.value).endswith("give it values of one type, as .astype(str) does")
