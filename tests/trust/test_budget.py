"""The budget holds before anything is read: sizes that a file declares are no reason to allocate them."""

from __future__ import annotations

import json
import tracemalloc
from contextlib import closing

import h5py
import numpy as np
import pytest
from scipy import sparse

from mllkm_scale import Dataset, train
from mllkm_scale.data import check, convert, encode_labels
from mllkm_scale.data.labels import LABEL_ROWS
from mllkm_scale.data.sparse.reduction import fit_reduction, reduction_spec
from mllkm_scale.errors import BudgetError, DataError
from mllkm_scale.model import evaluate
from mllkm_scale.online import open_samples
from mllkm_scale.params import resolve
from mllkm_scale.plan.training import make_plan


def peak_of(call):
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def declared(tmp_path):
    """A small file that declares 500 million rows, of which none is stored."""
    path = tmp_path / "declared.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("X", (5 * 10**8, 2), "f4", chunks=(10**6, 2))
        file.create_dataset("y", (5 * 10**8,), "i8", chunks=(10**6,))
    assert path.stat().st_size < 10_000
    return path


def test_rows_that_a_file_declares_are_refused_by_the_plan_and_not_read(declared):
    def refused():
        with Dataset.open(declared) as data, pytest.raises(BudgetError, match="500000000 x 2"):
            make_plan(data, resolve(memory_budget="2GB"))

    assert peak_of(refused) < 5_000_000


def test_one_long_label_is_refused_by_its_row(tmp_path):
    labels = ["a", "b"] * 40_000
    labels[70_001] = "x" * 100_000
    X = np.zeros((len(labels), 1))
    path = tmp_path / "long.h5"
    with h5py.File(path, "w") as file:
        file["X"] = X
        file.create_dataset("y", data=labels, dtype=h5py.string_dtype())
    with Dataset.open(path) as data:

        def refused():
            with pytest.raises(DataError, match="100,000 characters at row 70001"):
                make_plan(data, resolve())

        assert peak_of(refused) < 60_000_000
    with pytest.raises(DataError, match="at row 1"):
        check(Dataset.from_arrays(X[:2], ["a", "x" * 300]))


@pytest.mark.parametrize("classes", [None, ["a", "b"], [3, 4]])
@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_one_long_label_of_a_stream_is_refused_by_its_line(tmp_path, suffix, classes):
    usual, long = ("3", "3." + "0" * 100_000) if classes == [3, 4] else ("a", "a" * 100_000)
    labels = [usual] * 300 + [long] + [usual] * 99
    path = tmp_path / f"samples{suffix}"
    if suffix == ".csv":
        path.write_text("\n".join(["u,v,y", *(f"{i},1,{label}" for i, label in enumerate(labels))]))
    else:
        path.write_text("\n".join(json.dumps({"x": [i, 1], "y": label}) for i, label in enumerate(labels)))

    def read():
        said = pytest.raises(DataError, match=r"line 30[12],.* the label.* has 100,00\d characters")
        with closing(open_samples(path, classes=classes, label_column="y")) as samples, said:
            list(samples.chunks())

    assert peak_of(read) < 40_000_000  # 160 MB, if every label took the memory of this one


@pytest.mark.parametrize("how", ["dictionary", "repeated", "label", "bytes"])
def test_one_long_text_of_a_parquet_file_is_not_written_out_for_every_row(tmp_path, how):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    n, long = 2000, "z" * 1_000_000  # 2 GB written out, and 1 kB in the file
    columns = {"size": np.arange(float(n)), "kind": np.arange(n) % 2}
    if how == "dictionary":
        columns["text"] = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([long]))
    elif how == "repeated":
        columns["text"] = pa.array([long] * 100 + ["a"] * (n - 100))
    else:
        labels = pa.array([long] * 100 + ["a"] * (n - 100))
        columns["kind"] = labels if how == "label" else labels.cast(pa.binary())
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table(columns), path, compression="zstd")
    assert path.stat().st_size < 10_000
    usual, own = pa.default_memory_pool(), pa.system_memory_pool()
    pa.set_memory_pool(own)  # which nobody has used so far, so that its peak is that of the readers
    try:
        with pytest.raises(DataError, match="has a text of more than 1,000 characters"):
            Dataset.open(path, y="kind")
        with pytest.raises(DataError, match="has a text of more than 1,000 characters"):
            convert(path, tmp_path / "rows.h5", label_column="kind")
    finally:
        pa.set_memory_pool(usual)
    assert own.max_memory() < 50_000_000


def test_damaged_metadata_of_a_parquet_column_are_an_error_and_not_the_end_of_the_process(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"size": np.arange(60.0), "kind": ["x", "y"] * 30}), path)
    whole, found = path.read_bytes(), 0
    footer = int.from_bytes(whole[-8:-4], "little")
    for place in range(len(whole) - 8 - footer, len(whole) - 8):
        damaged = whole[:place] + b"\x26" + whole[place + 1 :]
        try:
            parquet.ParquetFile(pa.BufferReader(damaged)).read(use_threads=False)
        except Exception as error:
            if "histogram size mismatch" not in str(error):
                continue
            path.write_bytes(damaged)
            with pytest.raises(DataError, match=r"rows\.parquet cannot be read as Parquet"):
                convert(path, tmp_path / "rows.h5", label_column="kind")
            found += 1
    if not found:
        pytest.skip("this pyarrow writes no histograms of levels")


def test_a_label_of_a_parquet_file_that_is_not_utf_8_is_an_error(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    table = pa.table({"size": np.arange(60.0), "kind": ["other", "same"] * 30})
    parquet.write_table(table, path, compression="none")
    path.write_bytes(path.read_bytes().replace(b"other", b"\xff\xfeher"))
    with pytest.raises(DataError, match="the label column 'kind' has a text that is not UTF-8"):
        Dataset.open(path, y="kind").labels()
    with pytest.raises(DataError, match="UTF-8"):
        convert(path, tmp_path / "rows.h5", label_column="kind")


def test_texts_of_a_parquet_file_are_written_out_for_some_rows_at_a_time(tmp_path, monkeypatch):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    n, rng = 500, np.random.default_rng(0)
    colours = np.array(["red", "blue", "a" * 900])[rng.integers(0, 3, n)]
    table = pa.table({"size": rng.normal(size=n), "colour": colours, "kind": np.where(np.arange(n) % 3, "x", "y")})
    path = tmp_path / "rows.parquet"
    parquet.write_table(table, path, row_group_size=200)

    def rows():
        with Dataset.open(path, y="kind") as data:
            return data.part(0, n), data.part(150, 420), data.labels(), data.columns

    whole, part, labels, columns = rows()
    monkeypatch.setattr("mllkm_scale.data.readers.parquet.WRITTEN_OUT_BYTES", 10_000)
    again = rows()
    assert np.array_equal(again[0], whole)
    assert np.array_equal(again[1], part)
    assert np.array_equal(again[2], labels)
    assert again[3] == columns
    assert np.array_equal(np.array(columns[1].levels)[whole[:, 1].astype(int)], colours)


def test_labels_of_a_wide_type_are_refused_before_they_are_read(tmp_path):
    path = tmp_path / "wide.h5"
    with h5py.File(path, "w") as file:
        file["X"] = np.zeros((1000, 1))
        file.create_dataset("y", (1000,), "S100000", chunks=(1,))
    with Dataset.open(path) as data:

        def refused():
            with pytest.raises(DataError, match="100,000 bytes"):
                data.label_codes()

        assert peak_of(refused) < 1_000_000


@pytest.mark.parametrize("chunks", [None, (16,)])
def test_a_text_that_is_said_to_be_longer_than_its_file_is_not_made_room_for(tmp_path, chunks):
    path = tmp_path / "lengths.h5"
    with h5py.File(path, "w") as file:
        file["X"] = np.zeros((40, 1))
        texts = file.create_dataset("y", data=["a", "b"] * 20, dtype=h5py.string_dtype(), chunks=chunks)
        place = texts.id.get_offset() if chunks is None else texts.id.get_chunk_info_by_coord((32,)).byte_offset
    raw = bytearray(path.read_bytes())
    raw[place + 3] = 0x5B  # the length of a text: 1.5 GB
    path.write_bytes(raw)
    with Dataset.open(path) as data, pytest.raises(DataError, match=r"lengths.h5:y: a text of .* 1,526,726,657 bytes"):
        data.label_codes()


def test_a_heap_of_texts_that_does_not_add_up_is_not_walked_for_ever(tmp_path):
    path = tmp_path / "heap.h5"
    with h5py.File(path, "w") as file:
        file["X"] = np.zeros((4, 1))
        file.create_dataset("y", data=["a", "b"] * 2, dtype=h5py.string_dtype())
    raw = bytearray(path.read_bytes())
    free = raw.index(b"GCOL") + 16 + 4 * 24  # behind four texts of a letter each
    assert raw[free : free + 2] == b"\0\0"
    raw[free + 8 : free + 16] = bytes(8)
    path.write_bytes(raw)
    with (
        Dataset.open(path) as data,
        pytest.raises(DataError, match=r"heap.h5:y: the heap of its texts does not add up"),
    ):
        data.label_codes()


@pytest.mark.parametrize("kind", ["text", "int", "whole floats", "bool"])
def test_codes_of_blocks_are_those_of_all_labels(tmp_path, kind):
    rng = np.random.default_rng(0)
    n = 2 * LABEL_ROWS + 17
    labels = rng.integers(0, 5, n)
    labels[LABEL_ROWS + 5] = 17  # a class that comes late
    labels = {
        "text": np.array([f"class {code}" for code in range(18)])[labels],
        "int": labels - 3,
        "whole floats": labels.astype(float),
        "bool": labels > 2,
    }[kind]
    data = Dataset.from_arrays(np.zeros((n, 1)), labels)
    classes, codes = data.label_codes()
    expected = encode_labels(labels)
    np.testing.assert_array_equal(classes, expected[0])
    np.testing.assert_array_equal(codes, expected[1])
    assert classes.dtype == expected[0].dtype
    np.testing.assert_array_equal(data.labels(), labels)


def test_bad_labels_are_named_by_their_row_in_the_data_set(tmp_path):
    n = LABEL_ROWS + 10
    X, row = np.zeros((n, 1)), LABEL_ROWS + 3
    for wrong, why in [(np.nan, "NaN"), (0.5, "continuous")]:
        labels = np.arange(n) % 2.0
        labels[row] = wrong
        with pytest.raises(DataError, match=rf"{row} \(0-based\)") as caught:
            check(Dataset.from_arrays(X, labels))
        assert why in str(caught.value)
    with pytest.raises(DataError, match="more than 1000"):
        check(Dataset.from_arrays(X, np.arange(n)))


def test_an_evaluation_names_the_row_of_an_unknown_label():
    n = LABEL_ROWS + 10
    X = np.arange(n)[:, None] % 7.0
    labels = (X[:, 0] > 3).astype(int)
    model = train(Dataset.from_arrays(X[:50], labels[:50]), anchors="all", n_jobs=1).model
    assert evaluate(model, Dataset.from_arrays(X, labels)).error == 0
    labels[LABEL_ROWS + 4] = 7
    with pytest.raises(DataError, match=f"row {LABEL_ROWS + 4} "):
        evaluate(model, Dataset.from_arrays(X, labels))


@pytest.mark.parametrize(
    ("shape", "n_classes", "budget"),
    [((50, 20_000), 2, "800MB"), ((5, 900_000), 2, "1.5GB"), ((4000, 5), 1000, "1.1GB")],
)
def test_odd_shapes_are_planned_by_their_own_numbers(shape, n_classes, budget):
    rows = np.broadcast_to(np.float32(0.0), shape)
    data = Dataset.from_arrays(rows, np.arange(shape[0]) % n_classes)
    for threads in (1, 2):
        assert make_plan(data, resolve(memory_budget=budget, n_jobs=threads)).total_bytes


def test_any_number_of_sparse_columns_is_reduced_within_a_small_budget():
    d = 10**9
    rows = sparse.csr_array((np.ones(60), (np.arange(60), np.arange(60) * (d // 60))), shape=(60, d))
    data = Dataset.from_arrays(rows, np.arange(60) % 2)
    reduction = fit_reduction(data, reduction_spec("random:8"), budget_bytes=130_000_000)
    assert reduction.apply(rows).shape == (60, 8)
