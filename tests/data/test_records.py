"""CSV as spreadsheets write it: cells in quotes may hold line breaks, wherever such a file is read."""

from __future__ import annotations

import csv
import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale import Dataset, MLLKMClassifier
from mllkm_scale.data import convert
from mllkm_scale.data.readers import streams
from mllkm_scale.data.readers.records import MOST_LINES, in_records
from mllkm_scale.errors import DataError
from mllkm_scale.online.sources import CSVSamples, open_samples
from mllkm_scale.prediction import predict_file

ROWS = 'note;size;kind\r\n"two\r\nlines";1.5;cat\r\nplain;7;dog\r\n"say ""yes""\r\n\r\nor ""no""";3;cat\r\n'


@given(
    st.lists(st.lists(st.text(st.sampled_from('a",;\n\t '), max_size=6), min_size=2, max_size=2), max_size=8),
    st.sampled_from([",", ";", "\t"]),
    st.integers(1, 4),
)
def test_records_are_those_of_the_csv_module(rows: list[list[str]], delimiter: str, step: int) -> None:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    lines = list(enumerate(text.getvalue().split("\n")[:-1], 1))
    blocks = [lines[i : i + step] for i in range(0, len(lines), step)]
    records = [line for block in in_records(blocks) for line in block]
    assert [next(csv.reader([line], delimiter=delimiter, strict=True)) for _, line in records] == rows
    assert [number for number, _ in records] == list(
        np.cumsum([1] + [1 + sum(cell.count("\n") for cell in row) for row in rows])[:-1]
    )


def test_a_quote_that_nothing_closes_takes_its_own_line_alone() -> None:
    lines = [(1, '"open,1'), *((n, f"{n},2") for n in range(2, MOST_LINES + 20))]
    assert [line for block in in_records([lines]) for line in block] == lines


def test_conversion_training_and_prediction_read_line_breaks(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(streams, "BLOCK_BYTES", 20)  # records go over the ends of blocks
    path = tmp_path / "notes.csv"
    path.write_bytes(b"\xef\xbb\xbf" + ROWS.encode())
    summary = convert(path, tmp_path / "notes.h5")
    assert summary.n_rows == 3
    with Dataset.open(summary.target) as data:
        assert data.columns is not None
        assert data.columns[0].levels == ("two\nlines", "plain", 'say "yes"\n\nor "no"')
        assert data.feature_names == ("note", "size")
    table = pd.read_csv(path, sep=";")
    machine = MLLKMClassifier(n_jobs=1).fit(table[["note", "size"]], table["kind"])
    predict_file(machine.model_, path, tmp_path / "labels.csv", label_column="kind")
    assert pd.read_csv(tmp_path / "labels.csv")["prediction"].tolist() == list(machine.predict(table[["note", "size"]]))


def test_streams_read_line_breaks() -> None:
    samples = CSVSamples(io.BytesIO(ROWS.encode()), label_column="kind")
    [chunk] = samples.chunks()
    assert chunk.X[:, 1].tolist() == [1.5, 7, 3]
    assert samples.columns is not None
    assert samples.columns[0].levels[0] == "two\nlines"


def test_an_error_names_the_first_line_of_its_record(tmp_path) -> None:
    path = tmp_path / "notes.csv"
    path.write_text('note,size,kind\n"two\nlines",1,cat\n"a\nb",2\n')
    with pytest.raises(DataError, match="line 4 has 2 cells instead of 3"):
        convert(path, tmp_path / "notes.h5")
    path.write_text('note,size,kind\nplain,1,cat\n"open,2,dog\nplain,1,cat\n')
    with pytest.raises(DataError, match="line 3 has quotes that do not match"):
        convert(path, tmp_path / "notes.h5")


def test_a_stream_skips_the_line_of_a_quote_alone(tmp_path) -> None:
    path = tmp_path / "notes.csv"
    path.write_text('1,1,cat\n2,2,dog\n"open,2,dog\n3,1,cat\n')
    samples = open_samples(path, bad_lines="skip")
    assert np.concatenate([chunk.X for chunk in samples.chunks()]).tolist() == [[1, 1], [2, 2], [3, 1]]
    assert samples.skipped == 1
    samples.close()


@pytest.mark.parametrize("header", ["size;price;kind\n", ""])
def test_numbers_may_have_decimal_commas_between_semicolons(tmp_path, header: str) -> None:
    path = tmp_path / "prices.csv"
    lines = [f"{n},5;-0,{n};{'cat' if n % 2 else 'dog'}\n" for n in range(100)]
    path.write_text(header + "".join(lines))
    convert(path, tmp_path / "prices.h5")
    expected = [[n + 0.5, -float(f"0.{n}")] for n in range(100)]
    with Dataset.open(tmp_path / "prices.h5") as data:
        assert data.columns is None
        np.testing.assert_array_equal(data.part(0, 100), expected)
        model = MLLKMClassifier(anchors=5, C=1.0, n_jobs=1).fit(data).model_
    predict_file(model, path, tmp_path / "labels.csv", label_column="kind" if header else -1)
    found = pd.read_csv(tmp_path / "labels.csv")["prediction"].tolist()
    assert found == list(model.predict(np.array(expected)))
    samples = open_samples(path)
    np.testing.assert_array_equal(np.concatenate([chunk.X for chunk in samples.chunks()]), expected)
    samples.close()
    assert samples.columns is None


def test_commas_between_commas_stay_text(tmp_path) -> None:
    path = tmp_path / "sizes.csv"
    path.write_text('size,kind\n"1,5",cat\n"2,5",dog\n')
    convert(path, tmp_path / "sizes.h5")
    with Dataset.open(tmp_path / "sizes.h5") as data:
        assert data.columns is not None
        assert data.columns[0].levels == ("1,5", "2,5")
