"""Samples of CSV and JSON lines: the same numbers and labels however they come, and bad lines refused by number."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import os
import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.online.sources.class_labels import ClassLabels
from mllkm_scale.online.sources.csv_samples import CSVSamples
from mllkm_scale.online.sources.json_samples import JSONSamples
from mllkm_scale.online.sources.opening import open_samples

finite = st.floats(allow_nan=False, allow_infinity=False, width=64)
matrices = hnp.arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 5)), elements=finite)
words = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=6)


class Drips(io.RawIOBase):
    """Bytes that come a few at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._parts = [data[i : i + size] for i in range(0, len(data), size)]

    def read(self, size: int = -1) -> bytes:
        return self._parts.pop(0) if self._parts else b""


def learned(samples, skip=0):
    """All that a source hands out: rows and labels."""
    chunks = list(samples.chunks(skip))
    for before, after in itertools.pairwise(chunks):
        assert before.stop == after.first
    return np.concatenate([c.X for c in chunks]), np.concatenate([c.y for c in chunks])


def quoted(cell):
    return '"' + cell.replace('"', '""') + '"'


def csv_of(X, y, delimiter, header):
    lines = [delimiter.join([*map(repr, row), quoted(label)]) for row, label in zip(X.tolist(), y, strict=True)]
    return [delimiter.join([*(f"f{i}" for i in range(X.shape[1])), "kind"])] * header + lines


def json_of(X, y, form):
    forms = {
        "short": lambda x, label: {"x": x, "y": label},
        "long": lambda x, label: {"features": x, "label": label},
        "named": lambda x, label: {f"f{j}": value for j, value in enumerate(x)} | {"y": label},
    }
    return [json.dumps(forms[form](x, label)) for x, label in zip(X.tolist(), y, strict=True)]


@settings(max_examples=40)
@given(
    X=matrices,
    labels=st.lists(words.filter(lambda w: w.lower() not in ("nan", "inf", "infinity")), min_size=1, max_size=3),
    form=st.sampled_from(["short", "long", "named", ",", ";", "\t"]),
    header=st.booleans(),
    end=st.sampled_from(["\n", "\r\n", "\n\n"]),
    ended=st.booleans(),
    drip=st.integers(1, 60),
    chunk_rows=st.integers(1, 14),
    at=st.floats(0, 1),
    bad_lines=st.sampled_from(["error", "skip"]),
)
def test_round_trips_are_exact_however_the_bytes_come_and_wherever_they_resume(
    X, labels, form, header, end, ended, drip, chunk_rows, at, bad_lines
):
    y = [labels[i % len(labels)] for i in range(len(X))]
    as_csv = form in ",;\t"
    lines = csv_of(X, y, form, header) if as_csv else json_of(X, y, form)
    data = (end.join(lines) + end * ended).encode()

    def source():
        options = {"chunk_rows": chunk_rows, "bad_lines": bad_lines}
        if as_csv:
            return CSVSamples(Drips(data, drip), header=header, delimiter=form, **options)
        return JSONSamples(Drips(data, drip), **options)

    rows, found = learned(source())
    np.testing.assert_array_equal(rows, X)
    assert found.tolist() == [label.strip() for label in y]
    skip = int(at * (len(X) - 1))
    np.testing.assert_array_equal(learned(source(), skip)[0], X[skip:])
    assert list(source().chunks(len(X))) == []


def test_real_data_are_the_same_from_csv_json_and_gzip(real_data, tmp_path):
    X, y = real_data("breast_cancer")
    csv = "\n".join([*csv_of(X, y.astype(str), ",", True), ""]).encode()
    jsonl = "\n".join(json_of(X, y.tolist(), "named")).encode()
    (tmp_path / "in.csv").write_bytes(csv)
    (tmp_path / "in.csv.gz").write_bytes(gzip.compress(csv))
    (tmp_path / "in.jsonl").write_bytes(jsonl)
    for name in ("in.csv", "in.csv.gz", "in.jsonl"):
        samples = open_samples(tmp_path / name, classes=(0, 1), chunk_rows=100)
        rows, labels = learned(samples, 17)
        samples.close()
        np.testing.assert_array_equal(rows, X[17:])
        np.testing.assert_array_equal(labels, y[17:])
        assert labels.dtype == np.int64


def test_standard_input_is_csv_by_default(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbf1,2,0\n\n3,4,1")))
    samples = open_samples("-", classes=[0, 1])
    rows, labels = learned(samples)
    assert (rows.tolist(), labels.tolist(), samples.remark) == ([[1, 2], [3, 4]], [0, 1], "")


@pytest.mark.parametrize(
    ("text", "options", "labels"),
    [
        ("1,2,0\n3,4,1\n", {}, ["0", "1"]),
        ("a,b,c\n1,2,0\n3,4,1\n", {}, ["0", "1"]),
        ("0,1,kind\n1,2,0\n", {}, ["0"]),
        ("0,1,kind\n1,2,0\n", {"classes": ["kind", "0"]}, ["kind", "0"]),
        ("0,1,2\n1,2,0\n", {"header": True}, ["0"]),
        ("1,2,cat\n3,4,dog\n", {}, ["cat", "dog"]),
        ("1,2,cat\n", {}, ["cat"]),
        ("kind;a;b\ncat;1;2\n", {"label_column": "kind"}, ["cat"]),
        ("cat\t1\t2\n", {"label_column": 0}, ["cat"]),
        ("1,cat,2\n3,dog,4\n", {"label_column": -2}, ["cat", "dog"]),
    ],
)
def test_header_separator_and_label_column_are_found_as_the_converter_finds_them(text, options, labels):
    assert learned(CSVSamples(io.StringIO(text), **options))[1].tolist() == labels


CSV_ERRORS = [
    ("1,2,0\n3,4,5,1\n", {}, "line 2 has 4 cells instead of 3"),
    ("1,2,0\n\n3,x,1\n", {}, r"line 3, column 2 \(from 1\) is 'x', not a number"),
    ("a,b,c\n1,2,0\n3,,1\n", {}, r"line 3, column 2 'b' \(from 1\) is empty"),
    ("1,2,0\n3,nan,1\n", {}, r"line 2, column 2 \(from 1\) is NaN"),
    ("1,2,0\n3,-1e999,1\n", {}, r"line 2, column 2 \(from 1\) is infinity"),
    ("1,2,0\n3,4, \n", {}, r"line 2, column 3 \(from 1\), the label, is empty"),
    ("1,2,0\n3,4,nan\n", {}, r"line 2, column 3 \(from 1\), the label, is 'nan'"),
    ("1,2,0\n3,4,7\n", {"classes": [0, 1]}, r"line 2, .* the label, is '7', none of the classes 0, 1"),
    ('1,2,0\n3,4,"1\n', {}, "line 2 has quotes that do not match"),
    ("1,2,0\n3\r,4,1\n", {}, "line 2 has a carriage return within"),
    (b"1,2,0\n3,4,\xff\n", {}, "line 2 is not UTF-8"),
]
JSON_ERRORS = [
    ('{"x": [1, 2], "y": 0}\n{"x": [1], "y": 0}', {}, "line 2 has 1 features instead of 2"),
    ('{"x": [1, 2], "y": 0}\n{"x": [1, "2"], "y": 0}', {}, r'line 2, feature 1 \(0-based\), is "2", not a number'),
    ('{"x": [1, 2], "y": 0}\n{"x": [1, [2]], "y": 0}', {}, r"line 2, feature 1 \(0-based\), is \[2\], not a number"),
    ('{"x": [1, 2], "y": 0}\n{"x": [1, null], "y": 0}', {}, "is null, not a number"),
    ('{"x": [1, 2], "y": 0}\n{"x": [NaN, 2], "y": 0}', {}, r"line 2, feature 0 \(0-based\), is NaN: give a finite"),
    ('{"x": [1, 2], "y": 0}\n{"x": [1, 1e999], "y": 0}', {}, "is Infinity: give a finite"),
    ('{"x": [1, 2], "y": 0}\n{"x": [1, 1' + "0" * 400 + '], "y": 0}', {}, r"is 1000+\.\.\.: give a finite"),
    ('{"x": [1, 2], "y": 0}\n{"x": [1, 2], "y": ""}', {}, "line 2, the label 'y', is empty"),
    ('{"x": [1, 2], "y": 0}\n{"x": [1, 2], "y": null}', {}, "line 2, the label 'y', is null"),
    ('{"x": [1, 2], "y": 0}\n{"x": [1, 2], "y": 2}', {"classes": [0, 1]}, "is '2', none of the classes 0, 1"),
    ('{"x": [1, 2], "y": 0}\n{"x": [1, 2]}', {}, "line 2 has no field 'y'"),
    ('{"x": [1, 2], "y": 0}\n{"y": 0}', {}, "line 2 has no list 'x'"),
    ('{"x": [1, 2], "y": 0}\n{"x": [1, 2', {}, "line 2 is not JSON"),
    ('{"x": [1, 2], "y": 0}\n[1, 2]', {}, "line 2 is a list: give an object"),
    ('{"x": [1, 2], "y": 0}\n' + "[" * 100_000, {}, "line 2 is nested too deeply"),
    ('{"a": 1, "y": 0}\n{"b": 1, "y": 0}', {}, "line 2 has no field 'a', unlike the first line"),
    ('{"a": 1, "y": 0}\n{"a": 1, "b": 1, "y": 0}', {}, "line 2 has the field 'b', unlike the first line"),
    ('{"a": 1, "y": 0}\n{"a": true, "y": {}}', {}, r"the label 'y', is \{\}"),
    ('{"a": 1, "y": 0}\n{"a": 1, "y": "\\ud800"}', {}, "no file can hold"),
]


@pytest.mark.parametrize(
    ("kind", "text", "options", "message"),
    [(CSVSamples, *case) for case in CSV_ERRORS] + [(JSONSamples, *case) for case in JSON_ERRORS],
)
def test_a_bad_line_is_refused_by_number_after_those_before_it_or_skipped_and_counted(kind, text, options, message):
    data = text if isinstance(text, bytes) else text.encode()
    chunks = kind(io.BytesIO(data), name="in", **options).chunks()
    assert len(next(chunks)) == 1
    with pytest.raises(DataError, match=f"^in: .*{message}") as caught:
        next(chunks)
    assert len(str(caught.value)) < 300
    *before, bad = data.removesuffix(b"\n").split(b"\n")
    good = [line for line in before if line][-1]
    samples = kind(io.BytesIO(b"\n".join([*before, bad, good])), name="in", bad_lines="skip", **options)
    rows, _ = learned(samples)
    assert (len(rows), samples.skipped) == (2, 1)
    assert samples.remark.startswith("in: 1 bad line was skipped; the first: line ")


@pytest.mark.parametrize(
    ("kind", "text", "options", "message"),
    [
        (CSVSamples, "", {}, "in holds no samples"),
        (CSVSamples, "\n \n", {}, "in holds no samples"),
        (CSVSamples, "a,b,c\n", {}, "header but no rows"),
        (CSVSamples, "1\n", {}, "no columns of features"),
        (CSVSamples, "a,b\n1,2\n", {"label_column": "z"}, "'z' is not in the header"),
        (JSONSamples, '{"x": [1]}', {}, "line 1 has no field 'y' or 'label'"),
        (JSONSamples, '{"x": [1], "y": 0}', {"label_column": "kind"}, "line 1 has no field 'kind'"),
        (JSONSamples, '{"y": 1}', {}, "line 1 has no features"),
        (JSONSamples, '{"x": [], "y": 1}', {}, "line 1 has no features"),
        (
            JSONSamples,
            "?\n?\n",
            {"bad_lines": "skip"},
            "2 bad lines were skipped; the first: line 1 is not.*no samples",
        ),
    ],
)
def test_a_stream_without_samples_is_refused(kind, text, options, message):
    with pytest.raises(DataError, match=message):
        list(kind(io.StringIO(text), name="in", **options).chunks())


def test_fields_of_json_keep_the_order_of_the_first_good_line():
    lines = ['{"a": "?", "b": 0, "c": 0, "y": 0}', '{"b": 2, "y": 0, "a": 1}', '{"a": 3, "b": 4, "y": 1}']
    samples = JSONSamples(io.StringIO("\n".join(lines)), bad_lines="skip")
    assert learned(samples)[0].tolist() == [[2, 1], [4, 3]]


def test_resuming_with_skipped_lines_counts_samples_and_not_lines():
    text = "".join(f"{i},{i % 2}\n" + "?,?\n" * (i % 3) for i in range(20))
    X, _ = learned(CSVSamples(io.StringIO(text), bad_lines="skip"))
    for skip in (1, 7, 19):
        samples = CSVSamples(io.StringIO(text), bad_lines="skip", chunk_rows=3)
        np.testing.assert_array_equal(learned(samples, skip)[0], X[skip:])
        assert samples.skipped == 19


@pytest.mark.parametrize(
    ("classes", "text", "label"),
    [
        ([3, 5], "3", 3),
        ([3, 5], "3.0", 3),
        ([3, 5], "+5", 5),
        ([0.5, 1.0], "1", 1.0),
        ([2**60, 2**60 + 1], str(2**60 + 1), 2**60 + 1),
        ([0, 1], "True", 1),
        ([False, True], "false", False),
        (["3", "5"], "3", "3"),
        (["nan", "x"], "nan", "nan"),
    ],
)
def test_labels_stand_for_the_classes_of_the_same_value_or_text(classes, text, label):
    [found] = ClassLabels(classes).read([text]).tolist()
    assert found == label
    assert type(found) is type(label)


@pytest.mark.parametrize(("classes", "text"), [([3, 5], "3_0"), ([3, 5], "x"), (["3", "5"], "3.0"), ([1, 2], "nan")])
def test_labels_of_no_class_are_refused(classes, text):
    with pytest.raises(ValueError, match="none of the classes"):
        ClassLabels(classes).read([text])


def test_endless_spellings_of_a_label_are_not_all_remembered():
    labels = ClassLabels([3, 5])
    assert set(labels.read(["0" * (i % 100) + "3." + "0" * (i // 100) for i in range(6000)]).tolist()) == {3}
    assert len(labels._known) < 5000


@pytest.mark.parametrize("bad_lines", ["error", "skip"])
def test_a_line_without_end_is_refused_at_the_limit_and_never_held(bad_lines):
    class Endless(io.RawIOBase):
        sent = 0

        def read(self, size: int = -1) -> bytes:
            self.sent += size
            return b"1,2,0\n" if self.sent == size else b"1" * size

    stream = Endless()
    samples = CSVSamples(stream, bad_lines=bad_lines)
    chunks = samples.chunks()
    assert len(next(chunks)) == 1
    tracemalloc.start()
    with pytest.raises(DataError, match=r"line 2 is longer than 4\.2 MB, the limit of a line"):
        next(chunks)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert stream.sent < 10e6
    assert peak_bytes < 20e6
    with pytest.raises(DataError, match="line 1 is longer than 10 B"):
        list(CSVSamples(io.StringIO("1,2,3,4,5,6,7\n"), max_line_bytes=10).chunks())


def test_memory_is_that_of_a_read_and_not_of_the_stream():
    block = ",".join(["0.12345678"] * 50 + ["1\n"]).encode() * 1500

    class Long(io.RawIOBase):
        left = 12

        def read(self, size: int = -1) -> bytes:
            self.left -= 1
            return block if self.left >= 0 else b""

    tracemalloc.start()
    n_samples = sum(len(chunk) for chunk in CSVSamples(Long()).chunks())
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n_samples == 12 * 1500
    assert peak_bytes < 6 * len(block)


def test_a_text_is_walked_over_once_and_its_options_are_checked(tmp_path):
    samples = CSVSamples(io.StringIO("1,0\n"))
    list(samples.chunks())
    with pytest.raises(ParameterError, match="was already read"):
        samples.chunks()
    with pytest.raises(ParameterError, match="bad_lines='warn' is not known"):
        CSVSamples(io.StringIO(), bad_lines="warn")
    with pytest.raises(ParameterError, match="needs a header"):
        CSVSamples(io.StringIO(), label_column="a", header=False)
    with pytest.raises(ParameterError, match="delimiter="):
        CSVSamples(io.StringIO(), delimiter="ab")
    with pytest.raises(ParameterError, match="passes does not belong to the format csv"):
        open_samples("-", passes=2)
    with pytest.raises(ParameterError, match="standard input cannot be hdf5"):
        open_samples("-", format="hdf5")
    with pytest.raises(ParameterError, match="name of the labels' field"):
        open_samples("-", format="jsonl", label_column=1)
    with pytest.raises(DataError, match="does not exist"):
        open_samples(tmp_path / "none.csv")


def test_a_damaged_packed_file_is_refused(tmp_path):
    (tmp_path / "in.csv.gz").write_bytes(gzip.compress(b"1,2,0\n" * 1000)[:-12])
    samples = open_samples(tmp_path / "in.csv.gz")
    with pytest.raises(DataError, match=r"in\.csv\.gz cannot be read"):
        list(samples.chunks())
    samples.close()


@pytest.mark.parametrize(
    ("kind", "lines", "options"),
    [
        (CSVSamples, ["1,2,0\n", "3,4,1\n", "5,6,0\n"], {}),
        (CSVSamples, ["a,b,c\n1,2,0\n", "3,4,1\n", "5,6,0\n"], {}),
        (CSVSamples, ["1,2,no\n", "3,4,yes\n", "5,6,no\n"], {"classes": ["no", "yes"]}),
        (CSVSamples, ["1,2,no\n", "3,4,yes\n", "5,6,no\n"], {"header": False}),
        (JSONSamples, ['{"x": [1, 2], "y": 0}\n', '{"x": [3, 4], "y": 1}\n', '{"x": [5, 6], "y": 0}\n'], {}),
    ],
)
def test_a_line_is_handed_out_before_the_next_is_written(kind, lines, options):
    inlet, outlet = os.pipe()
    with open(inlet, "rb") as stream:
        chunks = kind(stream, **options).chunks()
        for i, line in enumerate(lines):
            os.write(outlet, line.encode())
            chunk = next(chunks)
            assert (chunk.first, chunk.X.tolist()) == (i, [[2 * i + 1, 2 * i + 2]])
        os.close(outlet)
        assert next(chunks, None) is None


def test_a_pipe_that_does_not_block_is_waited_for():
    inlet, outlet = os.pipe()
    os.set_blocking(inlet, False)
    writer = threading.Timer(0.05, lambda: (os.write(outlet, b"1,2,0\n"), os.close(outlet)))
    writer.start()
    with open(inlet, "rb") as stream:
        assert learned(CSVSamples(stream))[0].tolist() == [[1, 2]]
    writer.join()
