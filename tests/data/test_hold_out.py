"""Rows held out by a conversion: the share of each class, the same rows whatever the blocks, nothing lost or moved."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from mllkm_scale.data import convert
from mllkm_scale.data.converters.hold_out import HoldOut
from mllkm_scale.data.readers import records, streams
from mllkm_scale.errors import DataError, ParameterError

N = 400


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    """Rows that are all different, of three classes, one of them rare."""
    random = np.random.default_rng(0)
    X = np.column_stack([np.arange(N, dtype=float), random.normal(size=N)])
    return X, random.choice(3, size=N, p=[0.6, 0.35, 0.05])


def write_csv(folder: Path, X: np.ndarray, y: np.ndarray) -> tuple[Path, dict[str, object]]:
    lines = [",".join([*map(repr, row.tolist()), str(label)]) for row, label in zip(X, y, strict=True)]
    (folder / "a.csv").write_text("a,b,kind\n" + "\n".join(lines) + "\n")
    return folder / "a.csv", {}


def write_csv_of_texts(folder: Path, X: np.ndarray, y: np.ndarray) -> tuple[Path, dict[str, object]]:
    return write_csv(folder, X, np.where(np.arange(len(y)) < len(y) - 1, y.astype(str), "late"))


def write_libsvm(folder: Path, X: np.ndarray, y: np.ndarray) -> tuple[Path, dict[str, object]]:
    text = "\n".join(f"{label} 1:{a!r} 2:{b!r}" for (a, b), label in zip(X.tolist(), y, strict=True))
    (folder / "a.libsvm.gz").write_bytes(gzip.compress(text.encode()))
    return folder / "a.libsvm.gz", {}


def write_npy(folder: Path, X: np.ndarray, y: np.ndarray) -> tuple[Path, dict[str, object]]:
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    return folder / "X.npy", {"y": folder / "y.npy"}


def write_npz(folder: Path, X: np.ndarray, y: np.ndarray) -> tuple[Path, dict[str, object]]:
    np.savez(folder / "a.npz", X=X, y=y, note=np.array("kept"))
    return folder / "a.npz", {}


def write_idx(folder: Path, X: np.ndarray, y: np.ndarray) -> tuple[Path, dict[str, object]]:
    (folder / "x.idx").write_bytes(b"\0\0\x0e\2" + struct.pack(">II", *X.shape) + X.astype(">f8").tobytes())
    (folder / "y.idx").write_bytes(b"\0\0\x08\1" + struct.pack(">I", len(y)) + y.astype(np.uint8).tobytes())
    return folder / "x.idx", {"y": folder / "y.idx"}


def write_parquet(folder: Path, X: np.ndarray, y: np.ndarray) -> tuple[Path, dict[str, object]]:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"a": X[:, 0], "b": X[:, 1], "kind": y}), folder / "a.parquet")
    return folder / "a.parquet", {}


FORMATS = [write_csv, write_csv_of_texts, write_libsvm, write_npy, write_npz, write_idx, write_parquet]


def read(path: Path) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {name: file[name].asstr()[...] if file[name].dtype == object else file[name][...] for name in file}


@pytest.mark.parametrize("write", FORMATS)
def test_every_row_is_in_one_of_the_two_parts_with_its_label(
    write: Callable[..., tuple[Path, dict[str, object]]], rows: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    X, y = rows
    source, options = write(tmp_path, X, y)
    summary = convert(source, tmp_path / "out.h5", hold_out=0.2, **options)
    whole = convert(source, tmp_path / "whole.h5", **options)
    parts, all_of_it = read(tmp_path / "out.h5"), read(tmp_path / "whole.h5")
    assert summary.n_rows == len(parts["X"]) < whole.n_rows == N
    joined = np.concatenate([parts["X"], parts["X_test"]])
    labels = np.concatenate([parts["y"], parts["y_test"]])
    order = np.argsort(joined[:, 0])
    assert np.array_equal(joined[order], all_of_it["X"])
    assert np.array_equal(labels[order], all_of_it["y"])
    for part in ("X", "X_test"):
        assert (np.diff(parts[part][:, 0]) > 0).all()
        assert parts[part].dtype == all_of_it["X"].dtype
    for label, count in zip(*np.unique(all_of_it["y"], return_counts=True), strict=True):
        assert abs(np.sum(parts["y_test"] == label) - 0.2 * count) < 1
    assert set(parts) - {"X_test", "y_test"} == set(all_of_it)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.2, 1 / 3, 0.37, 0.5, 0.75, 0.9])
def test_the_share_of_each_class_is_held_out_whatever_the_blocks(share: float) -> None:
    random = np.random.default_rng(1)
    y = random.choice(["a", "b", "c"], size=3000, p=[0.7, 0.2, 0.1])
    mask = HoldOut(share, seed=3).decide(y)
    in_blocks = HoldOut(share, seed=3)
    cuts = np.unique(random.integers(1, len(y), size=40))
    assert np.array_equal(mask, np.concatenate([in_blocks.decide(part) for part in np.split(y, cuts)]))
    for label in "abc":
        assert abs(mask[y == label].sum() - share * np.sum(y == label)) <= 1
        assert not mask[y == label][0]


def test_rows_that_repeat_with_the_period_of_the_share_are_all_drawn_from() -> None:
    places = np.arange(5000) % 5
    held = places[HoldOut(0.2, seed=0).decide(np.zeros(5000))]
    assert np.bincount(held).min() > 150


def test_the_seed_chooses_the_rows() -> None:
    y = np.zeros(100)
    masks = [HoldOut(0.2, seed).decide(y) for seed in (0, 0, 1)]
    assert np.array_equal(masks[0], masks[1])
    assert not np.array_equal(masks[0], masks[2])


def test_the_rows_do_not_depend_on_the_size_of_the_blocks_of_a_file(
    rows: tuple[np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _ = write_csv_of_texts(tmp_path, *rows)
    convert(source, tmp_path / "one.h5", hold_out=0.25, seed=5)
    monkeypatch.setattr(streams, "BLOCK_BYTES", 500)
    blocks = list(streams.text_blocks(source))
    assert len(blocks) > 10
    assert records.text_blocks is streams.text_blocks
    convert(source, tmp_path / "many.h5", hold_out=0.25, seed=5)
    one, many = read(tmp_path / "one.h5"), read(tmp_path / "many.h5")
    for name in ("X", "y", "X_test", "y_test"):
        assert np.array_equal(one[name], many[name])


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, float("nan"), "0.2", True])
def test_a_share_that_is_none_is_refused(share: object, rows: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    source, _ = write_csv(tmp_path, *rows)
    with pytest.raises(ParameterError, match="hold_out"):
        convert(source, tmp_path / "out.h5", hold_out=share)  # type: ignore[arg-type]
    assert not (tmp_path / "out.h5").exists()


def test_a_source_without_labels_is_refused(rows: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    source, _ = write_csv(tmp_path, *rows)
    with pytest.raises(ParameterError, match="needs labels: name their column"):
        convert(source, tmp_path / "out.h5", hold_out=0.2, label_column=None)
    source, _ = write_npy(tmp_path, *rows)
    with pytest.raises(ParameterError, match="name the file of the labels"):
        convert(source, tmp_path / "out.h5", hold_out=0.2)
    np.savez(tmp_path / "b.npz", X=rows[0])
    with pytest.raises(DataError, match="label every row"):
        convert(tmp_path / "b.npz", tmp_path / "out.h5", hold_out=0.2)
    np.save(tmp_path / "y.npy", rows[1][:50])
    with pytest.raises(DataError, match="label every row"):
        convert(tmp_path / "X.npy", tmp_path / "out.h5", y=tmp_path / "y.npy", hold_out=0.2)


def test_a_source_that_has_test_rows_is_refused(rows: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    X, y = rows
    np.savez(tmp_path / "a.npz", X=X, y=y, X_test=X, y_test=y)
    with pytest.raises(DataError, match="X_test"):
        convert(tmp_path / "a.npz", tmp_path / "out.h5", hold_out=0.2)


def test_a_file_of_few_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2,no\n3,4,yes\n")
    with pytest.raises(DataError, match="too few rows"):
        convert(tmp_path / "a.csv", tmp_path / "out.h5", hold_out=0.2)


def test_labels_that_are_measurements_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n".join(f"{n},{n + 0.5}" for n in range(3000)))
    with pytest.raises(DataError, match="different labels"):
        convert(tmp_path / "a.csv", tmp_path / "out.h5", hold_out=0.2)
