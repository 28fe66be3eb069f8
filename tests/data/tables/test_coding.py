"""What columns hold is found out from their cells, and rows become numbers and codes."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.data.tables.cells import MISSING
from mllkm_scale.data.tables.coding import Recode, TableCoder, code_rows
from mllkm_scale.data.tables.columns import Column, Columns
from mllkm_scale.errors import DataError, ParameterError


def place(row: int, j: int) -> str:
    return f"table: row {row}, column {j}"


def coded(*blocks, names=None, **options):
    """Columns and rows of blocks of columns, read again where a kind has changed."""
    names = names or [f"c{j}" for j in range(len(blocks[0]))]
    coder = TableCoder(names, "table", **options)
    while True:
        try:
            rows = [coder.code([pa.array(column) for column in block], place) for block in blocks]
            return coder.columns(), np.concatenate(rows), coder.is_plain
        except Recode:
            coder.restart()


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (["1", " 2.5 ", "+3", "1e3"], "number", [1, 2.5, 3, 1000]),
        (["1", "", "NA", "?"], "number", [1, np.nan, np.nan, np.nan]),
        (["true", "FALSE", ""], "boolean", [1, 0, np.nan]),
        (["1970-01-02", "1970-01-01T12:00:00", None], "date", [1, 0.5, np.nan]),
        (["1970-01-02 00:00:00Z"], "date", [1]),
        (["b", "a", "b", ""], "category", [0, 1, 0, np.nan]),
        (["yes", "no"], "category", [0, 1]),
        (["", "NA"], "number", [np.nan, np.nan]),
        (["1", "two", "3"], "category", [0, 1, 2]),
        (["true", "maybe"], "category", [0, 1]),
        ([1, 2, None], "number", [1, 2, np.nan]),
        ([True, None], "boolean", [1, np.nan]),
        ([datetime.date(1970, 1, 3)], "date", [2]),
        ([datetime.datetime(1970, 1, 3, 6)], "date", [2.25]),
        (["żółw", " żółw "], "category", [0, 0]),
    ],
)
def test_a_column_is_what_its_cells_say(cells, kind, values):
    columns, rows, _ = coded([cells])
    assert columns[0].kind == kind
    np.testing.assert_array_equal(rows[:, 0], values)


def test_a_later_cell_changes_the_kind_of_the_whole_column():
    columns, rows, plain = coded([["1", "2"], ["u", "v"]], [["x", "2"], ["w", "u"]])
    assert not plain
    assert columns[0] == Column("c0", "category", ("1", "2", "x"))
    assert rows.tolist() == [[0, 0], [1, 1], [2, 2], [1, 0]]


def test_missing_cells_before_the_first_value_do_not_decide():
    columns, rows, _ = coded([[""], ["NA"]], [["a"], ["2"]])
    assert [column.kind for column in columns.columns] == ["category", "number"]
    np.testing.assert_array_equal(rows, [[np.nan, np.nan], [0, 2]])


def test_columns_are_what_they_are_named_as():
    columns, rows, _ = coded([["01", "1"], [1, 2]], categories=["c0", "1"])
    assert columns.columns == (Column("c0", "category", ("01", "1")), Column("c1", "category", ("1", "2")))
    assert rows.tolist() == [[0, 0], [1, 1]]
    with pytest.raises(DataError, match=r"row 1, column 0 is 'x', not a number: correct it"):
        coded([["1", "x"]], as_number=[0])
    with pytest.raises(ParameterError, match="no column 'z' among its features: it has c0"):
        coded([["1"]], categories=["z"])
    with pytest.raises(ParameterError, match="as a category and as a number"):
        coded([["1"]], categories=["c0"], as_number=["c0"])


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (pa.array([1.0, 2.0]), ["1", "2"]),
        (pa.array([1.5, 2.0]), ["1.5", "2"]),
        (pa.array([True, False]), ["true", "false"]),
    ],
)
def test_typed_values_have_the_levels_of_their_text(typed, text):
    coder = TableCoder(["a"], "table", categories=["a"])
    coder.code([typed], place)
    assert list(coder.columns()[0].levels) == text


def test_few_texts_among_many_numbers_are_taken_for_mistakes():
    cells = [str(i) for i in range(99)] + ["abc"]
    with pytest.raises(DataError, match=r"row 99, column 0 is 'abc', not a number, though 99.0% of the cells"):
        coded([cells])
    columns, _, _ = coded([cells], categories=["c0"])
    assert len(columns[0].levels) == 100


def test_levels_are_bounded_in_number_and_length(monkeypatch):
    with pytest.raises(DataError, match=r"column 'c0' has a text of more than 1,000 characters"):
        coded([["a" * 1001]])
    monkeypatch.setattr("mllkm_scale.data.tables.columns.MAX_LEVELS", 3)
    with pytest.raises(DataError, match=r"column 'c0' has more than 3 levels: remove it if it names the rows"):
        coded([list("abcd")])
    monkeypatch.setattr("mllkm_scale.data.tables.columns.MAX_LEVEL_BYTES", 3)
    with pytest.raises(DataError, match="levels or 3 bytes in all"):
        coded([["aa", "bb"]])


texts = st.one_of(st.sampled_from(["a", "b", "1", "2.5", *MISSING]), st.text(st.characters(codec="utf-8"), max_size=4))


@given(st.lists(texts, min_size=1, max_size=20), st.integers(1, 5))
def test_codes_lead_back_to_the_texts_for_any_blocks(cells, height):
    columns, rows, _ = coded(*[[cells[i : i + height]] for i in range(0, len(cells), height)], categories=[0])
    levels = columns[0].levels
    # Arrow and Python agree on what is blank around a text but for a few controls.
    given = [pa.compute.utf8_trim_whitespace(pa.array([cell]))[0].as_py() for cell in cells]
    found = ["" if np.isnan(code) else levels[int(code)] for code in rows[:, 0]]
    assert found == ["" if cell in MISSING else cell for cell in given]
    again = code_rows([pa.array(cells)], columns, place)
    np.testing.assert_array_equal(again, rows)


def test_known_columns_refuse_what_they_do_not_hold():
    columns = Columns((Column("n"), Column("b", "boolean"), Column("d", "date"), Column("c", "category", ("u",))))
    good = [pa.array(["1"]), pa.array(["true"]), pa.array(["2024-01-01"]), pa.array(["new"])]
    assert code_rows(good, columns, place).tolist() == [[1, 1, 19723, 1]]
    for j, (cell, message) in enumerate([("x", "not a number"), ("2", "not true or false"), ("x", "not a date")]):
        bad = [*good[:j], pa.array([cell]), *good[j + 1 :]]
        with pytest.raises(DataError, match=rf"row 0, column {j} is '{cell}', {message}"):
            code_rows(bad, columns, place)
    with pytest.raises(DataError, match="row 1, column 0 is empty: fill it or remove the row, then predict"):
        code_rows([pa.array(["1", ""])], Columns((Column("n"),)), place, missing_allowed=False)


def test_kinds_and_levels_that_do_not_fit_together_are_refused():
    good = Columns((Column("n"), Column("c", "category", ("u", "v")))).to_arrays()
    damaged = [
        {"column_kinds": np.array(["number", "wrong"])},
        {"column_level_starts": np.array([0, 1, 2])},
        {"column_level_starts": np.array([0, 0, 3])},
        {"column_levels": np.array(["u", "u"])},
        {"column_levels": np.array([1.0, 2.0])},
    ]
    for change in damaged:
        with pytest.raises(DataError, match=r"t\.h5"):
            Columns.from_arrays(good | change, None, "t.h5")
