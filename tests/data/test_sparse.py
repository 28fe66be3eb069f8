"""Sparse rows in memory and on disk: reduced like dense ones, to singular vectors or with distances kept on average."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from mllkm_scale.data import Dataset
from mllkm_scale.data.sparse import rows as sparse_rows
from mllkm_scale.data.sparse.reduction import Reduction, fit_reduction, reduced, reduction_spec
from mllkm_scale.data.subset import subset
from mllkm_scale.errors import BudgetError, DataError, ModelFileError, ParameterError


def matrix(n=40, d=300, density=0.05, seed=0):
    return sparse.random_array((n, d), density=density, rng=np.random.default_rng(seed), format="csr")


def write(path, X, **changed):
    arrays = {"indptr": X.indptr, "indices": X.indices, "data": X.data, "shape": np.array(X.shape)} | changed
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[f"X_{name}"] = values


@settings(max_examples=25)
@given(
    n=st.integers(1, 30),
    d=st.integers(1, 60),
    density=st.floats(0.0, 1.0),
    seed=st.integers(0, 5),
    kind=st.sampled_from(["random:5", "svd:4"]),
    form=st.sampled_from(["csr_matrix", "csr_array", "csc_array", "coo_array"]),
    entries=st.sampled_from([1, 7, 2**19]),
)
def test_sparse_and_dense_rows_are_reduced_to_the_same_bits(n, d, density, seed, kind, form, entries):
    X = getattr(sparse, form)(matrix(n, d, density, seed))
    data, dense = Dataset.from_arrays(X), Dataset.from_arrays(X.toarray())
    spec = reduction_spec(kind)
    if not X.nnz and kind.startswith("svd"):
        with pytest.raises(DataError, match="zeros alone"):
            fit_reduction(data, spec)
        return
    reduction = fit_reduction(data, spec, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_rows, "BLOCK_ENTRIES", entries)
        made = [reduced(rows, reduction, in_memory=memory) for rows in (data, dense) for memory in (True, False)]
    lazily = reduction.dataset(data)
    whole = reduction.apply(X)
    for rows in (*made, lazily):
        np.testing.assert_array_equal(rows.part(0, n), whole)
        rows.close()
    np.testing.assert_array_equal(reduction.apply(X.toarray()[n // 2 :]), whole[n // 2 :])
    again = Reduction.from_arrays(reduction.to_arrays())
    np.testing.assert_array_equal(again.apply(X), whole)


def test_the_singular_vectors_are_those_of_a_dense_decomposition():
    rng = np.random.default_rng(1)
    X = sparse.csr_array(matrix(80, 200, 0.1).toarray() * np.where(rng.random((80, 200)) < 0.5, 3.0, 1.0))
    U, s, Vt = np.linalg.svd(X.toarray(), full_matrices=False)
    low = sparse.csr_array((U[:, :6] * s[:6]) @ Vt[:6])  # of rank 6: found exactly
    reduction = fit_reduction(Dataset.from_arrays(low), reduction_spec("svd:20"))
    assert reduction.n_features == 6
    np.testing.assert_allclose(np.abs(reduction.components.T @ Vt[:6].T), np.eye(6), atol=1e-6)
    near = fit_reduction(Dataset.from_arrays(X), reduction_spec("svd:10")).components
    kept = np.linalg.norm(X @ near) ** 2
    assert kept > 0.95 * np.square(s[:10]).sum()
    np.testing.assert_allclose(near.T @ near, np.eye(10), atol=1e-10)


def test_random_signs_keep_distances_on_average():
    X = matrix(60, 4000, 0.02, seed=3).toarray()
    ratios = []
    for seed in range(20):
        Z = Reduction("random", 4000, 64, seed).apply(X)
        ratios.append(np.square(Z[:30] - Z[30:]).sum(axis=1) / np.square(X[:30] - X[30:]).sum(axis=1))
    assert abs(np.mean(ratios) - 1.0) < 0.02
    assert np.std(ratios) < 1.2 * np.sqrt(2.0 / 64)


@pytest.mark.parametrize("density", [0.0, 0.02, 0.5])
def test_the_map_of_the_columns_of_a_block_gives_the_bits_of_the_whole_map(monkeypatch, density):
    X, reduction = matrix(60, 300, density), Reduction("random", 300, 16, seed=3)
    whole = reduction.apply(X)
    monkeypatch.setattr("mllkm_scale.data.sparse.reduction.MOST_KEPT", 10)
    assert np.array_equal(reduction.apply(X), whole)
    assert np.array_equal(reduction.apply(X.toarray()), whole)
    assert reduction.size_bytes == 0


def test_columns_that_a_block_does_not_have_take_no_memory():
    d = 2**31 - 1  # 400 GB of hashes, if all were made
    reduction = Reduction("random", d, 8, seed=0)
    Z = reduction.apply(sparse.csr_array(([1.0, 2.0], ([0, 1], [5, d - 1])), shape=(2, d)))
    assert Z.shape == (2, 8)
    assert np.abs(Z).sum(axis=1).tolist() == [2.0, 4.0]
    assert reduction.buffer_bytes < 130_000_000


def test_auto_reduces_wide_sparse_rows_alone_and_within_the_budget():
    wide = Dataset.from_arrays(matrix(20, 3000))
    auto = reduction_spec("auto")
    assert fit_reduction(wide, auto).kind == "svd"
    assert fit_reduction(wide, auto, budget_bytes=8_000_000).kind == "random"
    assert fit_reduction(Dataset.from_arrays(matrix(20, 300)), auto) is None
    assert fit_reduction(Dataset.from_arrays(matrix(20, 3000).toarray()), auto) is None
    assert fit_reduction(wide, reduction_spec("none")) is None
    with pytest.raises(BudgetError, match=r"svd:50.*or reduction='random'"):
        fit_reduction(wide, reduction_spec("svd:50"), budget_bytes=1_000_000)
    for bad in ("svd:0", "auto:3", "pca", "svd:many", ""):
        with pytest.raises(ParameterError, match="give 'auto'"):
            reduction_spec(bad)


def test_stored_rows_are_those_of_the_matrix_and_of_its_subsets(tmp_path):
    X = matrix()
    write(tmp_path / "rows.h5", X)
    with Dataset.open(tmp_path / "rows.h5", y=None) as data:
        assert (data.is_sparse, data.n_rows, data.n_features) == (True, *X.shape)
        np.testing.assert_array_equal(data.part(3, 17), X.toarray()[3:17])
        np.testing.assert_array_equal(data.source.read_sparse(3, 17).toarray(), X.toarray()[3:17])
        rows = np.array([1, 5, 6, 30])
        some = subset(data, rows)
        assert some.is_sparse
        np.testing.assert_array_equal(some.source.read_sparse(1, 4).toarray(), X.toarray()[rows][1:4])


@pytest.mark.parametrize(
    "changed",
    [
        {"indptr": np.arange(41)[::-1]},
        {"indptr": np.arange(40)},
        {"indices": np.full(600, 300)},
        {"indices": np.full(600, -1)},
        {"indices": np.zeros(600, dtype=int)},
        {"shape": np.array([40, 0])},
        {"shape": np.array([40, 2**40])},
        {"shape": np.array([40.0, 300.0])},
        {"data": np.ones(3)},
        {"data": np.full((600, 1), 1.0)},
    ],
)
def test_arrays_that_are_no_sparse_matrix_are_refused(tmp_path, changed):
    write(tmp_path / "rows.h5", matrix(), **changed)
    with pytest.raises(DataError, match=r"rows\.h5:X is a sparse matrix with .*convert it again"):
        list(sparse_rows.sparse_blocks(Dataset.open(tmp_path / "rows.h5", y=None).source))


def test_nan_is_named_by_row_and_column():
    X = matrix()
    X.data[100] = np.nan
    row, column = (int(at[0]) for at in np.nonzero(np.isnan(X.toarray())))
    with pytest.raises(DataError, match=rf"X has NaN at row {row}, column {column} \(0-based\)"):
        fit_reduction(Dataset.from_arrays(X), reduction_spec("svd"))


@pytest.mark.parametrize(
    "changed",
    [
        {"reduction_kind": np.array("pca")},
        {"reduction_shape": np.array([300, 0])},
        {"reduction_shape": np.array([200, 4])},
        {"reduction_components": np.full((300, 4), np.nan)},
        {"reduction_kind": np.array("random")},
        {"reduction_seed": np.array(-1)},
    ],
)
def test_a_reduction_that_does_not_fit_together_is_refused(changed):
    arrays = fit_reduction(Dataset.from_arrays(matrix()), reduction_spec("svd:4")).to_arrays()
    with pytest.raises(ModelFileError, match="reduction that does not fit together"):
        Reduction.from_arrays(arrays | changed)


def test_a_matrix_with_entries_twice_is_summed_and_left_as_it_is():
    X = sparse.csr_array(([1.0, 2.0, 5.0], [2, 2, 0], [0, 2, 3]), shape=(2, 3))
    data = Dataset.from_arrays(X)
    assert data.source.read_sparse(0, 2).toarray().tolist() == [[0.0, 0.0, 3.0], [5.0, 0.0, 0.0]]
    assert X.nnz == 3
