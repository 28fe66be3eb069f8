"""Streamed scaling and projection equal what NumPy computes on the whole matrix."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mllkm_scale.data import Dataset, Preprocessor, fit_projection, fit_scaling
from mllkm_scale.data.preparation.scaling import SCALINGS
from mllkm_scale.errors import DataError, ModelFileError, ParameterError
from mllkm_scale.params import Params

matrices = hnp.arrays(
    st.sampled_from([np.float64, np.float32]),
    st.tuples(st.integers(2, 40), st.integers(1, 5)),
    elements=st.integers(-1000, 1000).map(lambda value: value / 8),
)


@settings(max_examples=60, deadline=None)
@given(X=matrices, chunk_rows=st.integers(1, 41), shift=st.sampled_from([0.0, 1e4]))
def test_streamed_mean_and_variance_equal_numpy(X, chunk_rows, shift):
    X = (X + shift).astype(X.dtype)
    scaling = fit_scaling(Dataset.from_arrays(X, chunk_rows=chunk_rows), "standard")
    whole = X.astype(np.float64)
    deviation = np.where(np.ptp(whole, axis=0) == 0, 1.0, whole.std(axis=0))
    np.testing.assert_allclose(scaling.offset, whole.mean(axis=0), rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(scaling.factor, 1 / deviation, rtol=1e-8)


@settings(max_examples=40, deadline=None)
@given(X=matrices, chunk_rows=st.integers(1, 41))
def test_minmax_reaches_from_zero_to_one(X, chunk_rows):
    scaled = fit_scaling(Dataset.from_arrays(X, chunk_rows=chunk_rows), "minmax").apply(X)
    changing = np.ptp(X, axis=0) > 0
    np.testing.assert_array_equal(scaled.min(axis=0), 0.0)
    np.testing.assert_allclose(scaled.max(axis=0), changing.astype(float), rtol=1e-15)


@settings(max_examples=40, deadline=None)
@given(X=matrices, scale=st.sampled_from([1e-200, 1.0, 1e200]))
def test_unit_norm_rows_have_norm_one_and_zero_rows_stay(X, scale):
    X = X.astype(np.float64) * scale
    scaled = fit_scaling(Dataset.from_arrays(X), "unit-norm").apply(X)
    norms = np.linalg.norm(scaled, axis=1)
    np.testing.assert_allclose(norms, np.any(X != 0, axis=1).astype(float), rtol=1e-14)


def test_a_constant_column_becomes_exactly_zero():
    X = np.full((1000, 2), 0.1)
    X[:, 1] = np.arange(1000)
    for kind in ("standard", "minmax"):
        scaling = fit_scaling(Dataset.from_arrays(X, chunk_rows=7), kind)
        assert scaling.factor[0] == 1.0
        np.testing.assert_array_equal(scaling.apply(X)[:, 0], 0.0)


def test_variance_survives_a_mean_a_hundred_million_times_larger():
    X = np.random.default_rng(0).normal(size=(2000, 1)) + 1e8
    scaling = fit_scaling(Dataset.from_arrays(X, chunk_rows=13), "standard")
    assert 1 / scaling.factor[0] == pytest.approx(X.std(), rel=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_columns_that_cannot_be_scaled_are_named(bad):
    X = np.zeros((5, 3))
    X[2, 1] = bad
    with pytest.raises(DataError, match=r"X: column 1 \(0-based\)"):
        fit_scaling(Dataset.from_arrays(X, chunk_rows=2), "standard")
    with pytest.raises(DataError, match=r"X: column 1 \(0-based\)"):
        Preprocessor.fit(Dataset.from_arrays(X, chunk_rows=2), "none", n_components=2)


@pytest.mark.parametrize("kind", ["", "Standard", None, 3])
def test_an_unknown_scaling_is_refused(kind):
    with pytest.raises(ParameterError, match="none, standard, minmax, unit-norm"):
        fit_scaling(Dataset.from_arrays(np.eye(2)), kind)


def test_every_scaling_is_a_choice_of_the_parameter():
    [spec] = [spec for spec in fields(Params) if spec.name == "scaling"]
    assert spec.metadata["choices"] == SCALINGS


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), chunk_rows=st.integers(1, 61), scaling=st.sampled_from(SCALINGS))
def test_streamed_projection_equals_the_singular_values_of_the_whole_matrix(seed, chunk_rows, scaling):
    random = np.random.default_rng(seed)
    X = random.normal(size=(60, 4)) @ np.diag([5.0, 3.0, 2.0, 1.0]) + random.normal(size=4) * 10
    data = Dataset.from_arrays(X, chunk_rows=chunk_rows)
    fitted = fit_scaling(data, scaling)
    projection = fit_projection(data, fitted, n_components=3)
    scaled = fitted.apply(X)
    centred = scaled - scaled.mean(axis=0)
    _, singular, right = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(projection.mean, scaled.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(projection.variances, singular[:3] ** 2 / 60, rtol=1e-9)
    np.testing.assert_allclose(np.abs(np.sum(projection.components * right[:3], axis=1)), 1.0, rtol=1e-7)
    peaks = np.argmax(np.abs(projection.components), axis=1)
    assert (projection.components[np.arange(3), peaks] > 0).all()


def test_a_share_of_variance_keeps_the_fewest_components_that_reach_it(samples):
    data = Dataset.from_arrays(samples)
    fitted = fit_scaling(data, "standard")
    variances = fit_projection(data, fitted, n_components=3).variances
    shares = np.cumsum(variances) / variances.sum()
    for kept in (1, 2):
        assert len(fit_projection(data, fitted, shares[kept - 1] - 1e-9).variances) == kept
        assert len(fit_projection(data, fitted, shares[kept - 1] + 1e-9).variances) == kept + 1
    assert len(fit_projection(data, fitted, 1 - 1e-16).variances) <= 3


def test_whitened_components_are_uncorrelated_with_variance_one(samples):
    preprocessor = Preprocessor.fit(Dataset.from_arrays(samples), "none", n_components=3, whiten=True)
    np.testing.assert_allclose(np.cov(preprocessor.transform(samples).T, bias=True), np.eye(3), atol=1e-9)


def test_components_without_variance_are_not_blown_up():
    X = np.outer(np.arange(20.0), [1.0, 2.0, 3.0])
    preprocessor = Preprocessor.fit(Dataset.from_arrays(X), "none", n_components=3, whiten=True)
    assert np.abs(preprocessor.transform(X)[:, 1:]).max() < 1e-10
    flat = Preprocessor.fit(Dataset.from_arrays(np.ones((4, 2))), "none", n_components=0.5, whiten=True)
    np.testing.assert_array_equal(flat.transform(np.ones((4, 2))), 0.0)


@pytest.mark.parametrize("n_components", [0, 4, -1, 0.0, 1.0, 1.5, -0.2, np.nan, True, "2", np.int64(9)])
def test_numbers_of_components_that_cannot_work_are_refused(n_components, samples):
    with pytest.raises(ParameterError, match="n_components must be an integer from 1 to 3"):
        Preprocessor.fit(Dataset.from_arrays(samples), "standard", n_components=n_components)


def test_numpy_integers_and_floats_are_numbers_of_components(samples):
    for n_components in (np.int32(2), np.float32(0.999999)):
        assert Preprocessor.fit(Dataset.from_arrays(samples), n_components=n_components).n_features_out >= 1


@pytest.mark.parametrize(("dtype", "expected"), [("f8", "f8"), ("f4", "f4"), ("u1", "f4"), ("i8", "f8")])
def test_the_type_of_the_output_follows_the_input(dtype, expected, samples):
    preprocessor = Preprocessor.fit(Dataset.from_arrays(samples), n_components=2)
    X = np.abs(samples).astype(dtype)
    assert preprocessor.transform(X).dtype == np.dtype(expected)
    assert preprocessor.transform(X, dtype=np.float64).dtype == np.float64
    assert (preprocessor.n_features_in, preprocessor.n_features_out) == (3, 2)
    np.testing.assert_array_equal(
        preprocessor.transform(X), preprocessor.transform(X, dtype=np.float64).astype(expected)
    )


def test_transform_leaves_its_input_alone(samples):
    for kind in SCALINGS:
        before = samples.copy()
        Preprocessor.fit(Dataset.from_arrays(samples), kind, n_components=2, whiten=True).transform(samples)
        np.testing.assert_array_equal(samples, before)


@pytest.mark.parametrize("shape", [(2, 2), (2, 4), (3,)])
def test_rows_of_another_width_are_refused(shape, samples):
    with pytest.raises(DataError, match="3 features"):
        Preprocessor.fit(Dataset.from_arrays(samples)).transform(np.zeros(shape))


@pytest.mark.parametrize("kind", SCALINGS)
@pytest.mark.parametrize(("n_components", "whiten"), [(None, False), (2, False), (0.9, True)])
def test_a_preprocessor_survives_a_file_bit_for_bit(kind, n_components, whiten, samples, tmp_path):
    preprocessor = Preprocessor.fit(Dataset.from_arrays(samples), kind, n_components, whiten)
    np.savez(tmp_path / "model.npz", **preprocessor.to_arrays())
    with np.load(tmp_path / "model.npz", allow_pickle=False) as arrays:
        again = Preprocessor.from_arrays(dict(arrays))
    assert again.scaling.kind == kind
    np.testing.assert_array_equal(again.transform(samples), preprocessor.transform(samples))
    for key, values in again.to_arrays().items():
        np.testing.assert_array_equal(values, preprocessor.to_arrays()[key])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("scaling_kind", None),
        ("scaling_kind", np.array("cubic")),
        ("scaling_kind", np.array(3)),
        ("scaling_offset", np.zeros(2)),
        ("scaling_offset", np.zeros((3, 1))),
        ("scaling_factor", np.array([1.0, np.nan, 1.0])),
        ("scaling_factor", np.array([1, 1, 1])),
        ("projection_mean", None),
        ("projection_components", np.zeros((3, 3))),
        ("projection_variances", np.zeros(0)),
        ("projection_whiten", np.array(1.0)),
    ],
)
def test_damaged_arrays_are_refused_by_name(key, value, samples):
    arrays = Preprocessor.fit(Dataset.from_arrays(samples), n_components=2).to_arrays()
    if value is None:
        del arrays[key]
    else:
        arrays[key] = value
    with pytest.raises(ModelFileError, match=key.split("_")[0]):
        Preprocessor.from_arrays(arrays)


# A learned metric, folded into the preparation


@st.composite
def folded(draw):
    """Rows, a preparation of them, and the output that a fold of it should have."""
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    X = random.lognormal(size=(40, draw(st.integers(1, 5)))) + random.choice([0.0, 100.0])
    whiten = draw(st.booleans())
    n_components = 1 if draw(st.booleans()) else None
    before = Preprocessor.fit(Dataset.from_arrays(X), draw(st.sampled_from(SCALINGS)), n_components, whiten)
    after, expected = before, before.transform(X)
    for _ in range(draw(st.integers(1, 3))):
        p = after.n_features_out
        if draw(st.booleans()):
            factors, keep = random.uniform(0.1, 10.0, p), random.uniform(size=p) < 0.7
            keep[random.integers(p)] = True
            after, expected = after.scaled(factors, keep), (expected * factors)[:, keep]
        else:
            matrix = random.normal(size=(draw(st.integers(1, 6)), p))
            after, expected = after.mapped(matrix), expected @ matrix.T
    return X, after, expected


@settings(max_examples=120)
@given(case=folded())
def test_a_folded_metric_commutes_with_the_transform(case):
    X, preprocessor, expected = case
    assert preprocessor.n_features_out == expected.shape[1]
    size = np.abs(expected).max() + 1
    np.testing.assert_allclose(preprocessor.transform(X), expected, rtol=0, atol=1e-10 * size)
    again = Preprocessor.from_arrays(preprocessor.to_arrays())
    np.testing.assert_array_equal(again.transform(X), preprocessor.transform(X))
    raw = preprocessor.invert(expected)
    assert raw.shape == X.shape
    assert np.isfinite(raw).all()
    if preprocessor.invertible:
        np.testing.assert_allclose(preprocessor.transform(raw), expected, rtol=0, atol=1e-6 * size)


def test_features_that_no_column_is_made_of_are_not_read(samples):
    for kind in ("standard", "minmax", "none", "auto"):
        preprocessor = Preprocessor.fit(Dataset.from_arrays(samples), kind)
        keep = np.array([preprocessor.scaling.feature(j) != 1 for j in range(preprocessor.n_features_out)])
        kept = preprocessor.scaled(np.ones(len(keep)), keep)
        assert 1 not in kept.scaling.columns
        other = samples.copy()
        other[:, 1] = np.nan
        np.testing.assert_array_equal(kept.transform(other), kept.transform(samples))
        middle = kept.invert(kept.transform(samples))[:, 1]
        assert np.ptp(middle) == 0
        assert samples[:, 1].min() <= middle[0] <= samples[:, 1].max() or kind == "none"


def test_scaling_all_of_the_standard_columns_keeps_the_plain_form(samples):
    preprocessor = Preprocessor.fit(Dataset.from_arrays(samples)).scaled([2.0, 3.0, 4.0])
    assert preprocessor.is_plain
    assert set(preprocessor.to_arrays()) == {"scaling_kind", "scaling_offset", "scaling_factor"}


@pytest.mark.parametrize(
    ("factors", "keep", "match"),
    [
        ([1.0, 1.0], None, "factors have shape"),
        ([1.0, -1.0, 1.0], None, "positive"),
        ([1.0, np.nan, 1.0], None, "positive"),
        ([1.0, 1.0, 1.0], [True, False], "keep has shape"),
        ([1.0, 1.0, 1.0], [0, 1, 2], "booleans"),
        ([1.0, 1.0, 1.0], [False] * 3, "at least one"),
    ],
)
def test_factors_that_cannot_work_are_refused(factors, keep, match, samples):
    with pytest.raises(ParameterError, match=match):
        Preprocessor.fit(Dataset.from_arrays(samples)).scaled(factors, keep)


@pytest.mark.parametrize("matrix", [np.ones(3), np.ones((2, 2)), np.ones((0, 3)), np.full((1, 3), np.inf)])
def test_matrices_that_cannot_work_are_refused(matrix, samples):
    with pytest.raises(ParameterError, match="matrix has shape"):
        Preprocessor.fit(Dataset.from_arrays(samples)).mapped(matrix)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("scaling_columns", None),
        ("scaling_centres", None),
        ("scaling_columns", np.array([0, 1, 2, 0, 1, 3])),
        ("scaling_columns", np.array([0, 1, 2, 0, 1, -1])),
        ("scaling_columns", np.array([0.0, 1, 2, 0, 1, 2])),
        ("scaling_centres", np.array([0.0, np.nan, 0.0])),
        ("scaling_factor", np.zeros(6)),
        ("quantile_starts", None),
        ("quantile_starts", np.array([0, 0, 0, 0, 64, 32, 192])),
        ("quantile_starts", np.array([0, 0, 0, 0, 64, 128, 191])),
        ("quantile_starts", np.array([1, 1, 1, 1, 64, 128, 192])),
        ("quantile_values", np.zeros(192)),
        ("quantile_values", np.linspace(1, 0, 192)),
        ("quantile_values", np.arange(192) * 1e-315),
        ("quantile_levels", np.linspace(0, 1.5, 192)),
        ("quantile_levels", np.linspace(1, 0, 192)),
        ("quantile_levels", np.zeros(3)),
        ("projection_orthonormal", np.array(3)),
    ],
)
def test_damaged_columns_and_quantiles_are_refused_by_name(key, value):
    X = np.random.default_rng(0).lognormal(size=(300, 3))
    arrays = Preprocessor.fit(Dataset.from_arrays(X), "standard+quantile").mapped(np.eye(6)).to_arrays()
    assert len(arrays["quantile_values"]) == 192
    if value is None:
        del arrays[key]
    else:
        arrays[key] = value
    with pytest.raises(ModelFileError, match=key.split("_")[0]):
        Preprocessor.from_arrays(arrays)
