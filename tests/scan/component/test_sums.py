"""Component-wise scans by one-dimensional sums against brute force in extended precision.

What a form may be off by is relative to the largest form of its gamma over the anchors, with |a_i| in place of a_i:
that is the size of the terms that brute force adds up, below whose rounding no sum can go if the duals cancel. Where
they do not cancel, it is the size of the largest form itself.
"""

from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.data import Dataset
from mllkm_scale.kernels.grid import Family, KernelGrid
from mllkm_scale.kernels.maps import MAPS
from mllkm_scale.scan import scanner, work
from mllkm_scale.scan.component import sizes as component_sizes
from mllkm_scale.scan.component.sizes import component_bytes
from mllkm_scale.scan.component.sums import ComponentSums
from mllkm_scale.scan.products import scan_block
from mllkm_scale.scan.scanner import Scanner
from mllkm_scale.scan.support import Support
from mllkm_scale.scan.work import block_height, component_block_bytes, scan_flops

EXACT = 1e-12
DOUBLE = np.dtype(np.float64)
COLUMNS = {
    "plain": lambda rng, n: rng.normal(size=n),
    "far": lambda rng, n: rng.normal(size=n) + 1e3,
    "ties": lambda rng, n: np.round(2 * rng.normal(size=n)) / 2,
    "constant": lambda rng, n: np.full(n, 3.7),
    "outlier": lambda rng, n: np.where(np.arange(n) == n // 2, 1e4, rng.normal(size=n)),
    "clusters": lambda rng, n: rng.normal(size=n) + 1e6 * rng.integers(-1, 2, size=n),
    "narrow": lambda rng, n: 1e-6 * rng.normal(size=n) + 5e-7,
    "wide": lambda rng, n: 1e5 * rng.normal(size=n),
    "heavy": lambda rng, n: rng.standard_cauchy(size=n),
    "skewed": lambda rng, n: np.exp(3 * rng.normal(size=n)),
}
DUALS = {
    "plain": lambda rng, shape: rng.normal(size=shape),
    "cancelling": lambda rng, shape: np.where(np.arange(shape[0]) % 2 == 0, 1.0, -1.0)[:, None] * np.ones(shape),
    "sparse": lambda rng, shape: rng.normal(size=shape) * (rng.uniform(size=shape) < 0.2),
    "uneven": lambda rng, shape: rng.normal(size=shape) * 10.0 ** rng.uniform(-8, 0, size=shape),
}


def brute_force(map, X, signed_duals, anchors, gammas, local_bias):
    """q (anchors, gammas), and the same with |a_i| and |psi|, in extended precision."""
    t = X.astype(np.longdouble)[:, None, :] - anchors.astype(np.longdouble)
    forms = []
    for gamma in gammas.astype(np.longdouble):
        s = gamma * (np.abs(t) if map in ("exponential", "linear") else t * t)
        h = np.exp(-s) if map in ("exponential", "gaussian") else np.maximum(0, 1 - s)
        pair = []
        for a, psi in ((signed_duals, t * h), (np.abs(signed_duals), np.abs(t * h))):
            v = np.einsum("ik,isl->skl", a.astype(np.longdouble), psi)
            r = np.einsum("ik,isl->skl", a.astype(np.longdouble), h).mean(axis=2)
            pair.append((v * v).sum(axis=(1, 2)) + local_bias * (r * r).sum(axis=1))
        forms.append(pair)
    return np.moveaxis(np.array(forms), 0, -1)


def deviation(found, expected, sizes):
    """The largest error of each gamma in units of its largest size."""
    return float(np.max(np.abs(found - expected).max(axis=0) / np.maximum(sizes.max(axis=0), 1e-300)))


def hostile(seed, n, kinds, duals, n_classes):
    """Support, duals, and anchors: some of the support, some near it, and some outside of its range."""
    rng = np.random.default_rng(seed)
    X = np.stack([COLUMNS[kind](rng, n) for kind in kinds], axis=1)
    near = X[rng.permutation(n)[:8]]
    near = near + rng.normal(size=near.shape) * 10.0 ** rng.uniform(-4, 2)
    outside = [X.min(axis=0) - 1.0, X.max(axis=0) + 1.0, X.max(axis=0) + 1e5] if n else [np.zeros(len(kinds))]
    anchors = np.concatenate([X[rng.permutation(n)[:16]], near, outside])
    return X, DUALS[duals](rng, (n, n_classes)), anchors


@given(
    seed=st.integers(0, 10**6),
    map=st.sampled_from(MAPS),
    n=st.sampled_from([0, 1, 2, 15, 16, 17, 31, 33, 100, 257, 600]),
    kinds=st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3),
    duals=st.sampled_from(sorted(DUALS)),
    n_classes=st.sampled_from([1, 3]),
    gammas=st.lists(st.floats(-4, 4).map(lambda e: 10.0**e), min_size=1, max_size=3),
    local_bias=st.sampled_from([0.0, 0.7]),
)
def test_sums_are_those_of_brute_force_for_hostile_columns(seed, map, n, kinds, duals, n_classes, gammas, local_bias):
    X, a, anchors = hostile(seed, n, kinds, duals, n_classes)
    gammas = np.array(gammas)
    q = ComponentSums.of(map, X, a, gammas).forms(anchors, local_bias)
    assert deviation(q, *brute_force(map, X, a, anchors, gammas, local_bias)) < EXACT


@pytest.mark.parametrize("kind", sorted(COLUMNS))
@pytest.mark.parametrize("map", MAPS)
def test_one_column_is_exact_for_windows_of_every_width(map, kind):
    X, a, anchors = hostile(5, 400, [kind], "plain", 2)
    gammas = np.geomspace(1e-9, 1e9, 19)
    q = ComponentSums.of(map, X, a, gammas).forms(anchors, 0.7)
    expected, sizes = brute_force(map, X, a, anchors, gammas, 0.7)
    assert deviation(q, expected, sizes) < EXACT
    assert deviation(q, expected, expected) < 1e3 * EXACT


@pytest.mark.parametrize("map", MAPS)
def test_runs_that_are_long_to_save_memory_change_no_more_than_rounding(monkeypatch, map):
    X, a, anchors = hostile(8, 900, ["plain", "outlier", "ties"], "plain", 2)
    gammas = np.array([0.1, 2.0, 1e3])
    expected, sizes = brute_force(map, X, a, anchors, gammas, 0.7)
    for column_bytes in (20_000, 1000, 1):
        monkeypatch.setattr(component_sizes, "COLUMN_BYTES", column_bytes)
        q = ComponentSums.of(map, X, a, gammas).forms(anchors, 0.7)
        assert deviation(q, expected, sizes) < EXACT


@pytest.mark.parametrize("local_bias", [0.0, 0.5])
@pytest.mark.parametrize("n_classes", [1, 4])
@pytest.mark.parametrize("map", MAPS)
def test_sums_are_the_forms_of_the_explicit_features(real_data, map, n_classes, local_bias):
    X, _ = real_data("breast_cancer")
    X = ((X - X.mean(axis=0)) / X.std(axis=0))[:, :6]
    a = np.random.default_rng(0).normal(size=(len(X), n_classes))
    family, gammas = Family(map, True, local_bias), np.array([0.05, 0.8, 6.0])
    q = scan_block(family, X[::3], gammas, np.full((190, 3), 2.0), Support.of(X, a, DOUBLE))
    for g, gamma in enumerate(gammas):
        kernels = family.kernels(X[::3], np.full(190, gamma), np.full(190, 2.0))
        expected = kernels.quadratic_forms(X, a)
        np.testing.assert_allclose(q[:, g], expected, rtol=1e-9, atol=1e-9 * expected.max())


@pytest.mark.parametrize("map", MAPS)
def test_no_bit_depends_on_the_blocks_that_anchors_come_in(map):
    X, a, _ = hostile(1, 500, ["plain", "outlier", "ties"], "sparse", 3)
    sums = ComponentSums.of(map, X, a, np.array([0.3, 40.0]))
    anchors = np.concatenate([X, X + 0.01])
    whole = sums.forms(anchors, 0.5)
    shuffled = np.random.default_rng(0).permutation(len(anchors))
    np.testing.assert_array_equal(sums.forms(anchors[shuffled], 0.5), whole[shuffled])
    for height in (1, 7, 64):
        parts = [sums.forms(anchors[at : at + height], 0.5) for at in range(0, len(anchors), height)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("map", MAPS)
def test_no_bit_depends_on_the_gammas_that_are_scanned_with_it(map):
    X, a, anchors = hostile(2, 300, ["plain", "heavy"], "plain", 2)
    both = ComponentSums.of(map, X, a, np.array([0.3, 4.0])).forms(anchors, 0.5)
    alone = ComponentSums.of(map, X, a, np.array([4.0])).forms(anchors, 0.5)
    np.testing.assert_array_equal(alone[:, 0], both[:, 1])


def test_threads_share_one_set_of_tables(monkeypatch):
    X, a, anchors = hostile(3, 200, ["plain", "plain"], "plain", 2)
    expected = scan_block(Family("squared", True), anchors, np.ones(1), np.ones((27, 1)), Support.of(X, a, DOUBLE))
    make, made, ready = ComponentSums.of, [], threading.Barrier(6)

    def slowly(*arguments):
        time.sleep(0.02)
        made.append(make(*arguments))
        return made[-1]

    monkeypatch.setattr(ComponentSums, "of", slowly)
    support = Support.of(X, a, DOUBLE)

    def scan(_):
        ready.wait(10)
        return scan_block(Family("squared", True), anchors, np.ones(1), np.ones((27, 1)), support)

    with ThreadPoolExecutor(6) as pool:
        for q in pool.map(scan, range(6)):
            np.testing.assert_array_equal(q, expected)
    assert len(made) == 1
    assert support.component_sums("squared", np.ones(1)) is made[0]
    assert support.component_sums("squared", np.full(1, 2.0)) is not made[0]


def test_tables_stay_behind_when_a_support_travels(tmp_path):
    X, a, _ = hostile(3, 50, ["plain"], "plain", 1)
    support = Support.of(X, a, DOUBLE)
    support.component_sums("linear", np.ones(1))
    support.save(tmp_path / "support.npz")
    for other in (pickle.loads(pickle.dumps(support)), Support.load(tmp_path / "support.npz")):
        assert vars(other).keys() == {"rows", "signed_duals", "origin"}
        np.testing.assert_array_equal(other.X, support.X)


@pytest.mark.parametrize("n_classes", [1, 3])
@pytest.mark.parametrize("map", MAPS)
def test_the_maximum_bounds_every_kernel_also_of_heavy_tails(map, n_classes):
    X, a, _ = hostile(4, 400, ["plain", "outlier", "heavy", "far"], "sparse", n_classes)
    gammas, family = np.array([0.02, 0.5, 9.0]), Family(map, True, 0.5)
    forms, _ = brute_force(map, X, a, X, gammas, 0.5)
    scales = np.asarray(1.0 / forms.mean(axis=0), dtype=np.float64) * np.ones((400, 1))
    forms = (forms * scales).astype(np.float64)
    grid = KernelGrid(family, Dataset.from_arrays(X, chunk_rows=150), gammas, scales)
    rows = np.flatnonzero(a.any(axis=1))
    result = Scanner(grid, dtype=DOUBLE).scan(X[rows], a[rows], count=25)
    assert result.ids[0] == forms.argmax()
    np.testing.assert_allclose(result.values, forms.ravel()[result.ids], rtol=1e-9)
    assert result.maximum == pytest.approx(forms.max(), rel=1e-9)


@pytest.mark.parametrize("map", MAPS)
def test_rows_in_single_precision_err_less_than_the_margin_of_the_scanner(map):
    X, a, _ = hostile(6, 400, ["plain", "skewed"], "plain", 2)
    gammas = np.array([0.1, 1.0])
    forms, _ = brute_force(map, X, a, X, gammas, 0.5)
    support = Support.of(X, a, np.dtype(np.float32))
    q = scan_block(Family(map, True, 0.5), X, gammas, np.ones((400, 2)), support)
    assert np.abs(q - forms).max() < scanner._SINGLE_PRECISION_MARGIN * forms.max()


def arrays_in(value):
    """All arrays within dataclasses and tuples, each once."""
    if isinstance(value, np.ndarray):
        return {id(value): value.nbytes}
    parts = value if isinstance(value, tuple) else vars(value).values() if hasattr(value, "__dict__") else ()
    return {key: size for part in parts for key, size in arrays_in(part).items()}


@pytest.mark.parametrize("duals", ["plain", "sparse"])
@pytest.mark.parametrize("map", MAPS)
@pytest.mark.parametrize("n", [50, 3000])
def test_the_arithmetic_bounds_the_bytes_of_the_tables(map, n, duals):
    X, a, _ = hostile(7, n, ["plain", "wide", "skewed"], duals, 5)
    sums = ComponentSums.of(map, X, a, np.array([0.1, 1.0, 10.0, 1e3]))
    held = sum(size for column in sums.columns for size in arrays_in(column).values())
    bound = component_bytes(n, 3, 5, map, n_gammas=4)
    products = 3 * 4 * 15 * 16 * 16 * 8 if map == "gaussian" else 0  # shared by all columns, and counted with each
    assert held - products <= bound + 200
    if duals == "plain" and n == 3000 and map != "gaussian":
        assert bound < 3 * held


def test_blocks_and_flops_of_component_wise_scans_do_not_grow_with_the_support():
    family = Family("linear", True)
    assert block_height(10, 4, 1, True) == block_height(10**6, 8, 1, True) == work.COMPONENT_HEIGHT
    assert scan_flops(family, 5, 50, 1000, 1500) == scan_flops(family, 5, 50, 10_000, 15_000)
    assert scan_flops(family, 5, 50, 1000, 1000) < scan_flops(family, 5, 50, 1000, 9000)
    assert scan_flops(family, 5, 50, 0, 0) > 0
    assert component_block_bytes(50, 10) < 8 << 20
