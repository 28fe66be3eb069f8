"""A support that is read in runs from a file: the bits of one in memory, in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale.base.executor import ThreadExecutor
from mllkm_scale.base.threads import Threads, one_blas_thread
from mllkm_scale.data import Dataset
from mllkm_scale.errors import ScratchError
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.picked_rows import PickedRows, pick
from mllkm_scale.scan import support, work
from mllkm_scale.scan.matrix_file import ColumnFile
from mllkm_scale.scan.products import scan_block, scan_blocks
from mllkm_scale.scan.scanner import Scanner
from mllkm_scale.scan.support import Support
from mllkm_scale.scan.work import block_bytes, block_height, blocks_at_once

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


@pytest.fixture
def small_parts(monkeypatch):
    """Several parts, blocks and units, also of the few rows of the tests."""
    monkeypatch.setattr(support, "PART_ROWS", 7)
    monkeypatch.setattr(work, "_MOST_HEIGHT", 8)
    monkeypatch.setattr(work, "_MOST_BLOCKS", 3)
    monkeypatch.setattr(work, "COMPONENT_HEIGHT", 8)
    monkeypatch.setattr(work, "COMPONENT_UNIT_BYTES", 20_000)


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_a_support_in_a_file_gives_the_bits_of_one_in_memory(small_parts, problem, dtype, tmp_path):
    grid, rows = problem.grid, np.flatnonzero(problem.signed_duals.any(axis=1))
    duals = problem.signed_duals[rows]
    lazy = PickedRows(Dataset.from_arrays(problem.X, chunk_rows=13), rows)
    for threads in (1, 2):
        with one_blas_thread(), Threads(threads) as threads:
            executor = ThreadExecutor(threads)
            in_memory = Scanner(grid, executor, dtype).scan(problem.X[rows], duals, count=20)
            streamed = Scanner(grid, executor, dtype, 100, tmp_path / "scratch").scan(lazy, duals, count=20)
        np.testing.assert_array_equal(streamed.ids, in_memory.ids)
        np.testing.assert_array_equal(streamed.values, in_memory.values)
        assert streamed.maximum == in_memory.maximum
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_blocks_that_walk_together_have_the_bits_that_they_have_alone(small_parts, problem, dtype):
    grid, together = problem.grid, Support.of(*problem.support, dtype)
    bounds = [slice(0, 30), slice(30, 31), slice(31, 90)]
    blocks, scales = [problem.X[b] for b in bounds], [grid.scales[b] for b in bounds]
    forms = scan_blocks(grid.family, blocks, grid.gammas, scales, together)
    for anchors, factors, q in zip(blocks, scales, forms, strict=True):
        alone = scan_block(grid.family, anchors, grid.gammas, factors, Support.of(*problem.support, dtype))
        np.testing.assert_array_equal(q, alone)


def test_a_support_in_a_file_is_saved_by_name_and_read_where_it_is_loaded(small_parts, tmp_path):
    X, duals = np.random.default_rng(0).normal(size=(30, 4)), np.ones((30, 2))
    streamed = Support.of(X, duals, SINGLE, tmp_path / "rows")
    streamed.save(tmp_path / "support")
    loaded = Support.load(tmp_path / "support")
    rows = np.concatenate([part.X.copy() for part in loaded.parts()])
    np.testing.assert_array_equal(rows, Support.of(X, duals, SINGLE).X)
    assert (tmp_path / "support").stat().st_size < 4000
    with pytest.raises(TypeError, match="in a file"):
        _ = loaded.X


def test_columns_in_a_file_are_saved_by_name_and_are_those_of_the_rows(small_parts, tmp_path):
    X, duals = np.random.default_rng(0).normal(size=(30, 4)), np.ones((30, 2))
    Support.of(X, duals, DOUBLE, tmp_path / "columns", by_column=True).save(tmp_path / "support")
    loaded, held = Support.load(tmp_path / "support"), Support.of(X, duals, DOUBLE)
    assert isinstance(loaded.rows, ColumnFile)
    for l in range(4):
        np.testing.assert_array_equal(loaded.rows.column(l), held.X[:, l])


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
@pytest.mark.parametrize("by_column", [False, True])
def test_a_damaged_file_of_rows_is_an_error_that_names_it(small_parts, tmp_path, damage, by_column):
    file = tmp_path / "rows"
    X = np.random.default_rng(0).normal(size=(30, 4))
    streamed = Support.of(X, np.ones((30, 1)), SINGLE, file, by_column=by_column)
    raw = bytearray(file.read_bytes())
    raw[200] ^= 1
    if damage == "remove":
        file.unlink()
    else:
        file.write_bytes(raw if damage == "flip" else raw[:-3])
    with pytest.raises(ScratchError, match=r"rows (is damaged|cannot be read)"):
        _ = [streamed.rows.column(l) for l in range(4)] if by_column else list(streamed.parts())


def test_a_folder_that_cannot_be_written_is_named(problem, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ScratchError, match="file cannot be written"):
        Scanner(problem.grid, support_bytes=100, scratch_dir=tmp_path / "file").scan(*problem.support, count=5)


def test_rows_are_picked_into_memory_if_they_fit():
    X = np.arange(20.0).reshape(10, 2)
    data, numbers = Dataset.from_arrays(X, chunk_rows=3), np.array([1, 4, 8])
    np.testing.assert_array_equal(pick(data, numbers, 48), X[numbers])
    lazy = pick(data, numbers, 47)
    assert isinstance(lazy, PickedRows)
    assert len(lazy) == 3
    np.testing.assert_array_equal(lazy[1:], X[[4, 8]])
    np.testing.assert_array_equal(lazy[np.array([2, 0])], X[[8, 1]])
    assert pick(data, numbers[:0], 0).shape == (0, 2)


def test_kernels_sum_over_rows_on_disk_as_over_rows_in_memory(problem, family):
    kernels = problem.grid.take(np.array([5, 100, 3]))
    rows = np.flatnonzero(problem.signed_duals.any(axis=1))
    lazy, duals = PickedRows(Dataset.from_arrays(problem.X), rows), problem.signed_duals[rows]
    held = problem.X[rows]
    np.testing.assert_array_equal(kernels.quadratic_forms(lazy, duals), kernels.quadratic_forms(held, duals))
    for a, b in zip(
        kernels.coefficients(lazy, duals, np.ones(3)), kernels.coefficients(held, duals, np.ones(3)), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    some = np.array([0, 2, 5])
    np.testing.assert_array_equal(
        kernels.responses(lazy[some], lazy, duals), kernels.responses(held[some], held, duals)
    )


@pytest.mark.parametrize(("n_features", "n_classes"), [(2, 1), (30, 4), (50, 10), (300, 10)])
def test_the_arithmetic_bounds_the_bytes_of_blocks_that_walk_together(tmp_path, n_features, n_classes):
    rng = np.random.default_rng(0)
    n = support.PART_ROWS + 50
    X, duals = rng.normal(size=(n, n_features)), rng.normal(size=(n, n_classes))
    duals[: n // 2, 0] = 0.0
    height, at_once = block_height(n_features, n_classes, 3), blocks_at_once(n_features, n_classes, 3)
    streamed = Support.of(X, duals, SINGLE, tmp_path / "rows")
    scales = [np.ones((height, 3))] * at_once
    scan_blocks(Family("gaussian"), [X[:height]] * at_once, np.array([0.1, 0.2, 0.3]), scales, streamed)
    held = sum(flat.nbytes for flat in streamed.buffers._flat.values())
    assert held <= block_bytes(n_features, n_classes, 3)
