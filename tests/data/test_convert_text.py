"""CSV, TSV and LIBSVM text becomes HDF5 with the same values, or an error that names line and column."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mllkm_scale.data import Dataset, convert
from mllkm_scale.data.readers import streams
from mllkm_scale.errors import DataError, ParameterError, ScratchError

finite = st.floats(allow_nan=False, allow_infinity=False, width=64)
matrices = hnp.arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 5)), elements=finite)
fresh_folder = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def converted(tmp_path):
    """Write text to a file, convert it, and return samples and labels."""

    def run(text, name="in.csv", **options):
        source = tmp_path / name
        data = text.encode() if isinstance(text, str) else text
        source.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        summary = convert(source, tmp_path / "out.h5", overwrite=True, **options)
        with Dataset.open(tmp_path / "out.h5", y="y" if "y" in summary.arrays else None) as dataset:
            assert (summary.n_rows, summary.n_features) == (dataset.n_rows, dataset.n_features)
            labels = dataset.labels() if dataset.has_labels else None
            return dataset.rows(np.arange(dataset.n_rows)), labels

    return run


def refused(converted, tmp_path, message, text, **options):
    with pytest.raises(DataError, match=message) as caught:
        converted(text, **options)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == [options.get("name", "in.csv")]


@fresh_folder
@given(
    X=matrices,
    delimiter=st.sampled_from([",", ";", "\t"]),
    end=st.sampled_from(["\n", "\r\n"]),
    seed=st.integers(0, 99),
)
@pytest.mark.parametrize("block_bytes", [1, 40, 2**22])
def test_csv_round_trip_is_exact_for_any_block(converted, monkeypatch, block_bytes, X, delimiter, end, seed):
    monkeypatch.setattr(streams, "BLOCK_BYTES", block_bytes)
    y = np.random.default_rng(seed).integers(-5, 5, size=len(X))
    lines = [delimiter.join([*map(repr, row), str(label)]) for row, label in zip(X.tolist(), y, strict=True)]
    samples, labels = converted(end.join(lines) + end, name="in.tsv" if delimiter == "\t" else "in.csv")
    np.testing.assert_array_equal(samples, X)
    np.testing.assert_array_equal(labels, y)
    assert labels.dtype == np.int64


@pytest.mark.parametrize(
    ("text", "options", "samples", "labels"),
    [
        ("1,2,0\n3,4,1\n", {}, [[1, 2], [3, 4]], [0, 1]),
        ("a,b,c\n1,2,0\n3,4,1\n", {}, [[1, 2], [3, 4]], [0, 1]),
        ("\ufeffa,b,c\n\n1,2,0\n\n 3 ,4, 1 ", {}, [[1, 2], [3, 4]], [0, 1]),
        ("0,1,kind\n1,2,0\n", {}, [[1, 2]], [0]),
        ("0,1,2\n1,2,0\n", {"header": True}, [[1, 2]], [0]),
        ("1,2,cat\n3,4,dog\n", {}, [[1, 2], [3, 4]], ["cat", "dog"]),
        ("a,b,kind\n1,2,cat\n3,4,żółw\n", {}, [[1, 2], [3, 4]], ["cat", "żółw"]),
        ("kind,a,b\ncat,1,2\ndog,3,4\n", {"label_column": "kind"}, [[1, 2], [3, 4]], ["cat", "dog"]),
        ("cat,1,2\ndog,3,4\n", {"label_column": 0}, [[1, 2], [3, 4]], ["cat", "dog"]),
        ("1,cat,2\n3,dog,4\n", {"label_column": -2}, [[1, 2], [3, 4]], ["cat", "dog"]),
        ('1,2,"cat, old"\n3,4,"a ""b"""\n', {}, [[1, 2], [3, 4]], ["cat, old", 'a "b"']),
        ('"a","b","c"\n"1","2","5"\n', {}, [[1, 2]], [5]),
        ("1,2\n3,4\n", {"label_column": None}, [[1, 2], [3, 4]], None),
        ("1,2,0.5\n3,4,1\n", {}, [[1, 2], [3, 4]], [0.5, 1.0]),
        ("1,2,1.0\n3,4,2.0\n", {}, [[1, 2], [3, 4]], [1, 2]),
        ("1,2,1_0\n3,4,10\n", {}, [[1, 2], [3, 4]], ["1_0", "10"]),
        ("1,2,9007199254740993\n3,4,1\n", {}, [[1, 2], [3, 4]], ["9007199254740993", "1"]),
        ("1;2;0\n3;4;1\n", {}, [[1, 2], [3, 4]], [0, 1]),
        ("1,nan,0\n3,inf,1\n", {}, [[1, np.nan], [3, np.inf]], [0, 1]),
    ],
)
def test_csv_of_many_shapes(converted, text, options, samples, labels):
    found, found_labels = converted(text, **options)
    np.testing.assert_array_equal(found, np.array(samples, dtype=float))
    if labels is None:
        assert found_labels is None
    else:
        assert found_labels.tolist() == labels
        assert found_labels.dtype.kind == np.array(labels).dtype.kind


@pytest.mark.parametrize("late", ["cat", "0.5"])
def test_labels_that_change_their_type_late_are_all_stored_alike(converted, monkeypatch, late):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 16)
    early = ["1", "01", "1"] * 10
    samples, labels = converted("".join(f"{i},{text}\n" for i, text in enumerate([*early, late, "01"])))
    np.testing.assert_array_equal(samples[:, 0], np.arange(32))
    assert labels.tolist() == ([*early, late, "01"] if late == "cat" else [1.0] * 30 + [0.5, 1.0])


def test_packed_text_is_read(converted):
    samples, labels = converted("1,2,0\n3,4,1\n", name="in.csv.gz")
    assert (samples.tolist(), labels.tolist()) == ([[1, 2], [3, 4]], [0, 1])
    samples, labels = converted("1 1:2\n", name="in.svm.gz")
    assert (samples.tolist(), labels.tolist()) == ([[2]], [1])


@pytest.mark.parametrize(
    ("text", "message", "options"),
    [
        ("1,2,0\n3,4,\n", r"line 2, column 3 \(from 1\), the label, is empty", {}),
        ("1,2,0\n3,4,nan\n", r"line 2, column 3 \(from 1\), the label, is 'nan'", {}),
        ("1,2,0\n3,x,1\n", r"line 2, column 2 \(from 1\) is 'x', not a number", {"as_number": [1]}),
        ("1,x,0\n3,4,1\n", r"line 1, column 2 .*'x', not a number", {"as_number": [1]}),
        ("1,2,0\n3,4,5,1\n", "line 2 has 4 cells instead of 3", {}),
        ("1,2,0\n3,1\n", "line 2 has 2 cells instead of 3", {}),
        ('1,2,"a"\n3,1\n', "line 2 has 2 cells instead of 3", {}),
        ('1,2,0\n3,4,"a\nb\n', "line 2 has quotes that do not match", {}),
        ("1\n2\n", "no columns of features", {}),
        ("a,b,c\n", "header but no rows", {}),
        ("\n \n", "is empty", {}),
        ("a,b,c\n1,2,0\n", "'z' is not in the header .*a, b, c", {"label_column": "z"}),
        ("a,b,a\n1,2,0\n", "'a' is twice in the header", {"label_column": "a"}),
        ("1,2,0\n", "no column 3 among 3", {"label_column": 3}),
        (b"1,2,0\n3,4,\xff\xfe\n", "not UTF-8", {}),
        ("\t\t\n1\t2\t0\n", "line 1, column 3", {"name": "in.tsv", "header": False}),
    ],
)
def test_malformed_csv_is_refused_with_line_and_column_and_leaves_nothing(converted, tmp_path, text, message, options):
    refused(converted, tmp_path, message, text, **options)


def test_lines_are_counted_across_blocks(converted, tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 10)
    text = "".join(f"{row},2\n" for row in range(50)) + "x,2\n"
    refused(converted, tmp_path, r"line 51, column 1 \(from 1\) is 'x', not a number, though 98.0% of", text)


def test_a_packed_file_that_is_cut_short_is_refused(tmp_path):
    source = tmp_path / "in.csv.gz"
    source.write_bytes(gzip.compress(b"1,2,0\n3,4,1\n" * 100)[:-12])
    with pytest.raises(DataError, match=r"in\.csv\.gz cannot be unpacked"):
        convert(source, tmp_path / "out.h5")


@fresh_folder
@given(
    X=matrices,
    base=st.sampled_from([0, 1]),
    block_bytes=st.sampled_from([1, 30, 2**22]),
    shuffle=st.booleans(),
)
def test_libsvm_round_trip_is_exact(converted, X, base, block_bytes, shuffle):
    X[0, [0, -1]] = 1.0
    order = np.arange(X.shape[1])[:: -1 if shuffle else 1]
    lines = []
    for i, row in enumerate(X.tolist()):
        pairs = " ".join(f"{j + base}:{row[j]!r}" for j in order if row[j] != 0)
        lines.append(f"{i % 3 - 1} {pairs}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK_BYTES", block_bytes)
        samples, labels = converted("\n".join(lines), name="in.libsvm")
    np.testing.assert_array_equal(samples, X)
    assert labels.tolist() == [i % 3 - 1 for i in range(len(X))]


def test_libsvm_comments_queries_tabs_and_blank_lines_are_understood(converted):
    text = "# head\n+1 qid:3 1:0.5 3:2 # note: 9:9\n\n-1\t2:1e3\t\n2\n"
    samples, labels = converted(text, name="in.svm")
    assert samples.tolist() == [[0.5, 0, 2], [0, 1000, 0], [0, 0, 0]]
    assert labels.tolist() == [1, -1, 2]


def test_libsvm_labels_with_fractions_are_stored_as_floats(converted):
    assert converted("1 1:1\n0.5 1:2\n", name="in.svm")[1].tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1:2\n1:2 3:4\n", "line 2 begins with '1:2'"),
        ("1 1:2\ncat 3:4\n", "line 2 begins with 'cat'"),
        ("1 1:2\nnan 3:4\n", "line 2 begins with 'nan'"),
        ("1,2 1:2\n", "line 1 begins with '1,2'"),
        ("1 1:2\n1 3\n", "line 2 has '3'"),
        ("1 3 3:4:5\n", "line 1 has '3'"),
        ("1 3: :4\n", "line 1 has '3:'"),
        ("1 1:2\n1 3:x\n", "line 2 has '3:x'"),
        ("1 -1:2\n", "line 1 has '-1:2'"),
        ("1 1.5:2\n", "line 1 has '1.5:2'"),
        ("1 99999999999999999999:2\n", "line 1 has '9999"),
        ("1 1:2 2:1\n1 4:2 2:1 4:3\n", "line 2 has index 4 twice"),
        ("1\n0\n", "no rows with features"),
        ("# nothing\n", "no rows with features"),
    ],
)
def test_malformed_libsvm_is_refused_with_its_line(converted, tmp_path, text, message):
    refused(converted, tmp_path, message, text, name="in.svm")


def test_a_width_that_no_disk_can_hold_is_refused_before_writing(converted, tmp_path):
    with pytest.raises(ScratchError, match="would need"):
        converted("1 2000000000:1\n" * 100_000, name="in.svm")


def test_a_label_column_by_name_needs_a_header(converted):
    with pytest.raises(ParameterError, match="needs a header"):
        converted("a,b\n1,2\n", label_column="a", header=False)


def test_progress_reaches_its_total(converted, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 1)
    calls = []
    converted("1,2,0\n" * 100, progress=lambda done, total: calls.append((done, total)))
    assert len(calls) == 100
    assert calls[-1] == (600, 600)
    assert calls == sorted(calls)
    calls.clear()
    converted("1 1:2\n" * 100, name="in.svm", progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (1200, 1200)
    assert calls == sorted(calls)
