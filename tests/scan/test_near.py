"""Sums over the rows within reach against a NumPy twin and brute force, from kernels that reach nothing to all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.base.executor import ThreadExecutor
from mllkm_scale.base.threads import Threads, one_blas_thread
from mllkm_scale.data import Dataset
from mllkm_scale.kernels.grid import Family, KernelGrid
from mllkm_scale.scan import products, scanner, support, work
from mllkm_scale.scan.near import add_near, count_near, near_share
from mllkm_scale.scan.products import scan_block
from mllkm_scale.scan.scanner import Scanner
from mllkm_scale.scan.support import PART_ROWS, Support
from mllkm_scale.scan.work import block_bytes, block_height

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
BOUNDED = ["linear", "squared"]
SHARES = [0.0, 0.001, 0.02, 0.1, 0.5, 0.9, 1.0]
ERROR = {SINGLE: 0.2 * scanner._SINGLE_PRECISION_MARGIN, DOUBLE: 1e-12}


def slow_sums(X, duals, t, gammas):
    """V (K, gammas, anchors, d + 1) in double precision."""
    H = np.maximum(0.0, 1.0 - gammas[:, None, None] * t.astype(DOUBLE))
    return np.einsum("gij,ik,il->kgjl", H, duals, np.column_stack([X, np.ones(len(X))]))


def near_sums(X, duals, t, gammas, most):
    """V by the lists, zero for the wide gammas; how many these are."""
    gammas, counts = gammas.astype(t.dtype), np.full((len(gammas), t.shape[1]), -1, np.int32)
    V = np.zeros((duals.shape[1], len(gammas), t.shape[1], X.shape[1] + 1), X.dtype)
    wide = count_near(t, gammas, most, counts)
    if wide < len(gammas):
        add_near(X, duals, t, gammas, wide, counts, np.empty(most, np.uint32), np.empty(most, t.dtype), V)
    return V, wide


def gammas_of_shares(map, X, anchors, shares):
    """Gammas with which that share of the bumps is not zero."""
    t = np.linalg.norm(X[:, None] - anchors, axis=2) ** (1 if map == "linear" else 2)
    ends = np.concatenate([[0.5 * t[t > 0].min()], np.sort(t[t > 0]), [2.0 * t.max()]])
    return 1.0 / ends[[round(share * (len(ends) - 1)) for share in shares]]


def brute_force(family, X, duals, anchors, gammas):
    columns = [family.kernels(anchors, np.full(len(anchors), g)).quadratic_forms(X, duals) for g in gammas]
    return np.stack(columns, axis=1)


@pytest.fixture(scope="module")
def wine(small_problem):
    """Rows, signed duals of three classes, and anchors: most of the rows, and one far away."""
    X, signs = small_problem("wine", 120)
    duals = signs * np.random.default_rng(0).uniform(size=signs.shape)
    duals[:, 1:][signs[:, 1:] < 0] = 0.0  # the first class has all of them
    return X, duals, np.concatenate([X[:97], X[:1] + 1e3])


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 40),
    n_anchors=st.integers(1, 20),
    d=st.integers(1, 40),
    n_classes=st.integers(1, 3),
    shares=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4),
    most=st.floats(0.0, 1.0),
    dtype=st.sampled_from([SINGLE, DOUBLE]),
)
def test_the_lists_give_the_sums_of_their_twin_for_any_shapes(seed, n, n_anchors, d, n_classes, shares, most, dtype):
    rng = np.random.default_rng(seed)
    X, t = rng.normal(size=(n, d)).astype(dtype), rng.uniform(size=(n, n_anchors)).astype(dtype)
    duals = rng.normal(size=(n, n_classes)) * (rng.uniform(size=(n, n_classes)) < 0.6)
    gammas = np.sort(1.0 / np.maximum(shares, 1e-6)).astype(dtype)
    most = int(most * t.size)
    V, wide = near_sums(X, duals, t, gammas, most)
    n_near = [np.count_nonzero(gamma * t < 1) for gamma in gammas]
    assert wide == sum(count > most for count in n_near)
    expected = slow_sums(X, duals, t, gammas)
    # The product in 1 - gamma t is rounded: a bump is off by a unit of 1, however small it is itself.
    near = (gammas[:, None, None] * t.astype(DOUBLE) < 1).astype(float)
    size = np.einsum("gij,ik,il->kgjl", near, np.abs(duals), np.column_stack([np.abs(X), np.ones(len(X))]))
    assert not V[:, :wide].any()
    assert (np.abs(V - expected)[:, wide:] <= 50 * np.finfo(dtype).eps * size[:, wide:]).all()


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("limit", [0.0, None, 1.0], ids=["products", "as-measured", "lists"])
@pytest.mark.parametrize("map", BOUNDED)
def test_forms_are_those_of_brute_force_whatever_the_share_within_reach(monkeypatch, wine, map, limit, dtype):
    X, duals, anchors = wine
    if limit is not None:
        monkeypatch.setattr(products, "near_share", lambda n_features: limit)
    monkeypatch.setattr(support, "PART_ROWS", 50)
    family, gammas = Family(map, local_bias=0.7), gammas_of_shares(map, X, anchors[:-1], SHARES)
    q = scan_block(family, anchors, gammas, np.ones((len(anchors), len(gammas))), Support.of(X, duals, dtype))
    expected = brute_force(family, X, duals, anchors, gammas)
    assert (np.abs(q - expected) <= ERROR[dtype] * expected.max(axis=0)).all()
    assert not q[-1].any()


@pytest.mark.parametrize("map", BOUNDED)
def test_shares_on_both_sides_of_the_limit_are_met(monkeypatch, wine, map):
    X, duals, anchors = wine
    found = []
    count = products.count_near
    monkeypatch.setattr(products, "count_near", lambda *arguments: found.append(count(*arguments)) or found[-1])
    gammas = gammas_of_shares(map, X, anchors[:-1], SHARES)
    scan_block(Family(map), anchors, gammas, np.ones((len(anchors), len(gammas))), Support.of(X, duals, SINGLE))
    assert found == [sum(share > near_share(X.shape[1]) for share in SHARES)]


@pytest.mark.parametrize("map", BOUNDED)
def test_the_order_of_the_gammas_does_not_matter(wine, map):
    X, duals, anchors = wine
    gammas, rows = gammas_of_shares(map, X, anchors[:-1], SHARES), Support.of(X, duals, SINGLE)
    scales = np.random.default_rng(1).uniform(size=(len(anchors), len(gammas)))
    q = scan_block(Family(map), anchors, gammas, scales, rows)
    for order in ([6, 5, 4, 3, 2, 1, 0], [3, 0, 6, 1, 5, 2, 4]):
        np.testing.assert_array_equal(
            scan_block(Family(map), anchors, gammas[order], scales[:, order], rows), q[:, order]
        )


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("map", BOUNDED)
def test_narrow_kernels_have_the_same_bits_with_any_number_of_threads(monkeypatch, wine, map, dtype):
    monkeypatch.setattr(work, "_MOST_HEIGHT", 8)
    X, duals, anchors = wine
    gammas = gammas_of_shares(map, X, anchors[:-1], SHARES)
    grid = KernelGrid(Family(map), Dataset.from_arrays(anchors), gammas, np.ones((len(anchors), len(gammas))))
    results = []
    for size in (1, 2, 3):
        with one_blas_thread(), Threads(size) as threads:
            results.append(Scanner(grid, ThreadExecutor(threads), dtype).scan(X, duals, count=50))
    for other in results[1:]:
        np.testing.assert_array_equal(other.ids, results[0].ids)
        np.testing.assert_array_equal(other.values, results[0].values)
        assert other.maximum == results[0].maximum


@pytest.mark.parametrize("n_features", [2, 30])
@pytest.mark.parametrize("n_classes", [1, 4])
def test_the_arithmetic_bounds_the_bytes_of_blocks_with_products_and_with_lists(n_features, n_classes):
    rng = np.random.default_rng(0)
    X, duals = rng.normal(size=(PART_ROWS + 50, n_features)), rng.normal(size=(PART_ROWS + 50, n_classes))
    duals[rng.uniform(size=len(duals)) < 0.4, 0] = 0.0  # the other classes take all rows
    height = block_height(n_features, n_classes, 3)
    rows = Support.of(X, duals, SINGLE)
    for share in (1.0, 0.8 * near_share(n_features)):
        gammas = np.repeat(gammas_of_shares("linear", X[:200], X[:height], [share]), 3)
        scan_block(Family("linear"), X[:height], gammas, np.ones((height, 3)), rows)
    assert {"picked", "near", "reach"} | ({"bumps"} if n_classes > 1 else set()) <= rows.buffers._flat.keys()
    held = sum(flat.nbytes for flat in rows.buffers._flat.values())
    assert held <= block_bytes(n_features, n_classes, 3)


def test_more_features_are_in_favour_of_lists():
    shares = [near_share(d) for d in (1, 10, 50, 784, 10**6)]
    assert shares == sorted(shares)
    assert 0.02 < shares[0] < shares[-1] < 0.3
