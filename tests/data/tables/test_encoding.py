"""Features of a table: compared with a plain loop, without a row's own label, and read back from files."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale import Dataset
from mllkm_scale.data import Preprocessor
from mllkm_scale.data.first_step import training_rows
from mllkm_scale.data.tables import steps as steps_of_numbers
from mllkm_scale.data.tables.encoding import Encoding, folds_of_rows
from mllkm_scale.data.tables.fitting import SMOOTHING, fit_encoding
from mllkm_scale.data.tables.frames import table_dataset
from mllkm_scale.errors import BudgetError, DataError, ModelFileError

LETTERS = "abcdefgh"


def numbers(dataset: Dataset) -> np.ndarray:
    return dataset.part(0, dataset.n_rows)


def test_numbers_are_filled_by_the_median_and_marked():
    table = pa.table({"a": [5.0, None, 1.0, 3.0, None], "b": [1, 2, 3, 4, 5]})
    encoding, _ = fit_encoding(table_dataset(table, [0, 1, 0, 1, 0]))
    assert encoding.feature_names == ("a", "a missing", "b")
    new = pa.table({"a": [None, 9.0], "b": [None, 7]})
    assert numbers(encoding.dataset(table_dataset(new))).tolist() == [[3, 1, 3], [9, 0, 7]]


def test_booleans_are_filled_by_the_mode_and_dates_are_days():
    table = pa.table({"b": [True, True, False, None], "d": pa.array([0, 1, 2, None], pa.date32())})
    encoding, _ = fit_encoding(table_dataset(table, [0, 1, 0, 1]))
    assert numbers(encoding.dataset(table_dataset(table)))[3].tolist() == [1, 1, 1, 1]


def test_columns_that_tell_nothing_are_left_out():
    table = pa.table({"a": pa.array([None, None], pa.float64()), "b": ["u", "u"], "c": ["u", "v"], "d": ["u", None]})
    with pytest.raises(DataError, match="no column with information"):
        fit_encoding(table_dataset(table.select(["a", "b"]), [0, 1]))
    encoding, _ = fit_encoding(table_dataset(table, [0, 1]), least_rows=1)
    assert encoding.feature_names == ("c=v", "d missing")
    assert "left out, because it has no information" in encoding.describe()[0]


def one_hot_by_hand(cells, given, least_rows):
    """Indicators of the levels of `given`, as a loop makes them."""
    kept = [level for level in dict.fromkeys(c for c in cells if c is not None) if cells.count(level) >= least_rows]
    others = any(cell is not None and cell not in kept for cell in cells)
    places = [*kept, *(["(other)"] if others else []), *([None] if None in cells else [])]
    mode = max(kept, key=lambda level: (cells.count(level), -kept.index(level))) if kept else "(other)"
    rows = []
    for cell in given:
        if cell is None and None not in places:
            cell = mode
        if cell is not None and cell not in kept:
            cell = "(other)"
        rows.append([float(cell == place) for place in places])
    return np.array(rows).reshape(len(given), len(places))


cell = st.one_of(st.none(), st.sampled_from(LETTERS))


@settings(max_examples=60)
@given(
    cells=st.lists(cell, min_size=2, max_size=30), new=st.lists(cell, min_size=1, max_size=8), least=st.integers(1, 3)
)
def test_indicators_are_those_of_a_plain_loop(cells, new, least):
    data = table_dataset(
        pa.table({"a": pa.array(cells, pa.string()), "n": range(len(cells))}), [i % 2 for i in range(len(cells))]
    )
    encoding, _ = fit_encoding(data, least_rows=least)
    given = table_dataset(pa.table({"a": pa.array(new, pa.string()), "n": range(len(new))}))
    if not new or all(cell is None for cell in new):
        return  # such a column has no type of its own
    found, expected = numbers(encoding.dataset(given))[:, :-1], one_hot_by_hand(cells, new, least)
    if expected.shape[1] == 2:  # one of two says it all; a level that is neither lies between
        known = expected.sum(axis=1) > 0
        np.testing.assert_array_equal(found[known], expected[known, 1:])
        assert ((found[~known] > 0) & (found[~known] < 1)).all()
    elif expected.shape[1] > 2:
        np.testing.assert_array_equal(found, expected)
    else:
        assert found.shape[1] == 0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_numbers_that_come_back_have_statistics_of_their_steps(n_classes, monkeypatch):
    monkeypatch.setattr(steps_of_numbers, "LEAST_TABLE_ROWS", 10)
    rng = np.random.default_rng(1)
    x = np.concatenate([np.repeat([0.0, 3.5, 100.0], [40, 20, 30]), np.arange(5.0, 17.0)])
    order = rng.permutation(len(x) + 8)
    x, labels = np.append(x, [np.nan] * 8)[order], rng.integers(0, n_classes, len(order))
    # Values of one row each are runs of five, but a run ends before a value that stands for itself.
    steps = [{0.0: 0, 3.5: 1, 100.0: 5}.get(v, 2 + (v >= 10) + (v >= 15)) for v in x[~np.isnan(x)]]
    cells = [None] * len(x)
    for row, step in zip(np.flatnonzero(~np.isnan(x)), steps, strict=True):
        cells[row] = step
    data = table_dataset(pa.table({"a": pa.array(x, from_pandas=True)}), labels)
    encoding, folds = fit_encoding(data, seed=5)
    assert encoding.methods == ("number+steps",)
    assert "of 6 steps" in encoding.describe()[0]
    found, fold = numbers(encoding.dataset(data, folds)), folds_of_rows(0, len(x), 5)
    counted = [1] if n_classes == 2 else range(n_classes)
    labels = labels.tolist()
    for i, (value, step) in enumerate(zip(x, cells, strict=True)):
        others = [k for k in range(len(x)) if fold[k] != fold[i]]
        mean = [np.mean([labels[k] == label for k in others]) for label in counted]
        told = mean if step is None else [statistics_by_hand(cells, labels, others, step, label) for label in counted]
        fill = encoding.fills[0] if np.isnan(value) else value
        np.testing.assert_allclose(found[i], [fill, np.isnan(value), *told])
    new = pa.table({"a": [0.0, 1.0, 4.9, 1e9]})
    apart = numbers(encoding.dataset(table_dataset(new)))[:, 2]
    everyone = range(len(x))
    expected = [statistics_by_hand(cells, labels, everyone, step, counted[0]) for step in (0, 0, 2, 5)]
    np.testing.assert_allclose(apart, expected)
    again = Encoding.from_arrays(encoding.to_arrays())
    np.testing.assert_array_equal(
        numbers(again.dataset(table_dataset(new))), numbers(encoding.dataset(table_dataset(new)))
    )
    assert again.feature_names == encoding.feature_names
    for name, wrong in (
        ("step_edges", encoding.to_arrays()["step_edges"][::-1]),
        ("step_edge_counts", np.array([4])),
        ("step_widths", np.array([n_classes + 3])),
    ):
        with pytest.raises(ModelFileError):
            Encoding.from_arrays(encoding.to_arrays() | {name: wrong})


def test_numbers_that_hardly_come_back_have_no_steps():
    rng = np.random.default_rng(0)
    n = steps_of_numbers.LEAST_TABLE_ROWS
    y, ages = rng.integers(0, 2, n), rng.integers(18, 80, n)
    table = pa.table(
        {"measured": rng.normal(size=n), "two": rng.integers(0, 2, n), "age": ages, "c": ["u", "v"] * (n // 2)}
    )
    methods = ("number", "number", "number+steps", "one-hot")
    assert fit_encoding(table_dataset(table, y))[0].methods == methods
    few = fit_encoding(table_dataset(table.slice(1), y[1:]))[0]
    assert few.methods == ("number", "number", "number", "one-hot")


def statistics_by_hand(cells, labels, rows, cell, label):
    """The smoothed share of a label among some rows with a level."""
    prior = np.mean([labels[i] == label for i in rows])
    same = [i for i in rows if cells[i] == cell]
    return (sum(labels[i] == label for i in same) + SMOOTHING * prior) / (len(same) + SMOOTHING)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_statistics_of_training_rows_leave_out_their_own_fold(n_classes):
    rng = np.random.default_rng(0)
    cells, labels = rng.choice(list(LETTERS), 80).tolist(), rng.integers(0, n_classes, 80).tolist()
    data = table_dataset(pa.table({"a": cells}), labels)
    encoding, folds = fit_encoding(data, most_indicators=4, seed=3)
    assert encoding.methods == ("target",)
    fold = folds_of_rows(0, 80, 3)
    found = numbers(encoding.dataset(data, folds))
    counted = [1] if n_classes == 2 else range(n_classes)
    for i in range(80):
        others = [k for k in range(80) if fold[k] != fold[i]]
        np.testing.assert_allclose(
            found[i], [statistics_by_hand(cells, labels, others, cells[i], label) for label in counted]
        )
    new = numbers(encoding.dataset(table_dataset(pa.table({"a": [cells[0], "new"]}))))
    everyone = range(80)
    np.testing.assert_allclose(
        new,
        [[statistics_by_hand(cells, labels, everyone, text, label) for label in counted] for text in (cells[0], "new")],
    )


def test_a_label_moves_no_statistic_of_its_own_row():
    cells, labels = [f"level {i % 50}" for i in range(100)], [i % 2 for i in range(100)]
    flipped = [1 - labels[0], *labels[1:]]
    rows = []
    for y in (labels, flipped):
        data = table_dataset(pa.table({"a": cells}), y)
        encoding, folds = fit_encoding(data, least_rows=1)
        rows.append(numbers(encoding.dataset(data, folds))[0])
    np.testing.assert_array_equal(*rows)


def test_with_many_classes_the_most_frequent_levels_have_indicators():
    cells = ["a"] * 20 + ["b"] * 15 + ["c"] * 5 + ["d"] * 5
    data = table_dataset(pa.table({"a": cells}), list(range(9)) * 5)
    encoding, _ = fit_encoding(data, most_indicators=2)
    assert encoding.feature_names == ("a=a", "a=b", "a=(other)")


def test_reading_in_parts_gives_the_same_bits():
    rng = np.random.default_rng(1)
    table = pa.table({"a": rng.choice(list(LETTERS), 500), "b": rng.normal(size=500)})
    data = table_dataset(table, rng.integers(0, 2, 500))
    encoded, _, _ = training_rows(data, None, 10**9, ExitStack())
    encoding, folds = fit_encoding(data, most_indicators=4)
    for source in (encoded, encoding.dataset(data, folds)):
        whole = numbers(source)
        parts = [source.part(i, min(i + 37, 500)) for i in range(0, 500, 37)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
        np.testing.assert_array_equal(source.rows([400, 3, 3]), whole[[400, 3, 3]])


def test_an_encoding_comes_back_from_its_arrays_and_damage_is_refused():
    rng = np.random.default_rng(1)
    table = pa.table({"a": rng.choice(list(LETTERS), 200), "b": [None, *rng.normal(size=199)], "c": ["u", "v"] * 100})
    encoding, _ = fit_encoding(table_dataset(table, rng.integers(0, 2, 200)), most_indicators=4)
    arrays = encoding.to_arrays()
    again = Encoding.from_arrays(arrays)
    rows = encoding.dataset(table_dataset(table))
    np.testing.assert_array_equal(numbers(again.dataset(table_dataset(table))), numbers(rows))
    assert again.describe() == encoding.describe()
    for name, values in arrays.items():
        with pytest.raises(ModelFileError):
            Encoding.from_arrays({key: kept for key, kept in arrays.items() if key != name})
        with pytest.raises(ModelFileError):
            Encoding.from_arrays(arrays | {name: values[:-1]})
    for name, values in {
        "column_fills": np.array([0.0, np.nan, 0.0]),
        "column_methods": np.array(["number", "number", "one-hot"]),
        "column_widths": np.array([1, 3, 1]),
    }.items():
        with pytest.raises(ModelFileError):
            Encoding.from_arrays(arrays | {name: values})


def test_what_a_data_set_holds_otherwise_is_refused_by_its_cell():
    data = table_dataset(pa.table({"a": ["u", "v"] * 5, "b": [1.0, 2.0] * 5, "c": [True, False] * 5}), [0, 1] * 5)
    encoding, _ = fit_encoding(data)

    def refused(message, **columns):
        whole = {"a": ["u"], "b": [1.0], "c": [True]} | columns
        with pytest.raises(DataError, match=message):
            numbers(encoding.dataset(table_dataset(pa.table(whole))))

    refused(r"row 0, column 0 'a' \(0-based\) is a number, but .* a category in this column: convert it", a=[1])
    refused(r"column 1 'b' .* is a category, but .* a number", b=["x"])
    refused(r"column 1 'b' .* is infinity", b=[np.inf])
    refused(r"column 2 'c' .* is 3, but the model was trained with true and false", c=[3])
    missing = pa.table({"a": pa.array([None], pa.float64()), "b": pa.array([None], pa.string()), "c": [0]})
    assert numbers(encoding.dataset(table_dataset(missing))).tolist() == [[0, 1, 0]]
    with pytest.raises(DataError, match="has 1 features per row, but the model was trained with 3"):
        encoding.dataset(table_dataset(pa.table({"a": ["u"]})))
    with pytest.raises(DataError, match="is a number, but the model was trained with a category"):
        numbers(encoding.dataset(Dataset.from_arrays(np.zeros((1, 3)))))


def test_numbers_stand_for_levels_that_are_numbers_and_for_no_others():
    data = table_dataset(pa.table({"a": [1, 3, 2.5, None] * 5}), [0, 1] * 10, categories=["a"])
    encoding, _ = fit_encoding(data)
    expected = numbers(encoding.dataset(data))
    np.testing.assert_array_equal(numbers(encoding.dataset(Dataset.from_arrays([[1.0], [3.0], [2.5]]))), expected[:3])
    table = Dataset.from_arrays([[np.nan], [9.0]])
    np.testing.assert_array_equal(numbers(encoding.dataset(table)), [expected[3], np.zeros(4)])
    encoding, _ = fit_encoding(table_dataset(pa.table({"a": ["01", "2"] * 10}), [0, 1] * 10))
    with pytest.raises(DataError, match="is a number, but"):
        numbers(encoding.dataset(Dataset.from_arrays([[1.0]])))


def test_rare_levels_are_scaled_as_frequent_ones():
    table = pa.table({"a": ["u"] * 60 + ["v"] * 35 + ["w"] * 5, "n": np.arange(100.0)})
    data, _, _ = training_rows(table_dataset(table, [0, 1] * 50), None, 10**9, ExitStack())
    for kind in ("standard", "auto"):
        scaled = Preprocessor.fit(data, kind).transform(data.part(0, 100))[:, :4]
        np.testing.assert_allclose(np.ptp(scaled[:, :3], axis=0), 2.0)
        np.testing.assert_allclose(scaled.mean(axis=0), 0.0, atol=1e-12)
        assert scaled[:, 3].std() == pytest.approx(1.0)


def test_counts_that_do_not_fit_the_budget_are_refused():
    data = table_dataset(pa.table({"a": [f"level {i}" for i in range(2000)]}), [0, 1] * 1000)
    with pytest.raises(BudgetError, match=r"need .* to be counted"):
        training_rows(data, None, 100_000, ExitStack())


def test_infinity_and_wrong_codes_are_refused_before_training():
    from mllkm_scale.data.tables.columns import Column, Columns

    columns = Columns((Column("n"), Column("c", "category", ("u", "v"))))
    for row, message in (
        ([np.inf, 0], "infinity at row 1, column 0 'n'"),
        ([0, 2], "2, which no category is coded by"),
    ):
        data = Dataset.from_arrays([[1.0, 0.0], row], [0, 1]).with_columns(columns)
        with pytest.raises(DataError, match=message):
            fit_encoding(data)
