"""Tables of component-wise models are off by no more than they say: on any row, and against the formula itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale import MLLKMClassifier
from mllkm_scale.data import Dataset, Preprocessor
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import MAPS
from mllkm_scale.model import Model, ModelRecord
from mllkm_scale.model.tables.additive import MAX_BYTES, compile_additive
from mllkm_scale.model.tables.cells import NotTabulated
from mllkm_scale.model.tables.shapes import tallest_term

RECORD = ModelRecord(2.0, 1.99, 0.005, 0.01, "converged", 90, 30, 0)


def formula(model, Z):
    """f (n, K) by the formula, in extended precision where the machine has it."""
    wide = np.longdouble
    offsets = Z[:, None, :].astype(wide) - model.anchors.astype(wide)
    t, gammas = np.abs(offsets), model.gammas.astype(wide)[:, None]
    with np.errstate(over="ignore", under="ignore"):
        H = {
            "exponential": lambda: np.exp(-gammas * t),
            "gaussian": lambda: np.exp(-gammas * t * t),
            "linear": lambda: np.maximum(0, 1 - gammas * t),
            "squared": lambda: np.maximum(0, 1 - gammas * t * t),
        }[model.family.map]()
        slopes = np.einsum("nsd,ksd->nk", H * offsets, model.coef.astype(wide))
        return slopes + np.einsum("ns,ks->nk", H.mean(axis=2), model.local_coef.astype(wide))


def made_of(map, anchors, gammas, coef, local_coef):
    """A model with these arrays, which sees rows as they are."""
    anchors = np.atleast_2d(anchors)
    s, d = anchors.shape
    return Model(
        family=Family(map, True, 1.0),
        classes=np.arange(max(2, len(coef))),
        anchors=anchors,
        gammas=np.asarray(gammas),
        kernel_scale=np.ones(s),
        weights=np.full(s, 1.0 / s),
        coef=np.asarray(coef),
        local_coef=np.asarray(local_coef),
        preprocessor=Preprocessor.fit(Dataset.from_arrays(np.zeros((2, d))), "none"),
        certificate=RECORD,
    )


def tables_or_refusal(model):
    """The tables, or the message that there are none."""
    try:
        return compile_additive(model), ""
    except NotTabulated as why:
        return None, str(why)


def delicate_rows(model, seed=0):
    """Anchors, ends of reaches, the floats next to them, values among them, and values far away."""
    random = np.random.default_rng(seed)
    plain = model.gammas if model.family.map in ("exponential", "linear") else np.sqrt(model.gammas)
    reach = 1.0 / plain[:, None]
    special = [model.anchors, model.anchors - reach, model.anchors + reach]
    special += [np.nextafter(values, side) for values in special for side in (-np.inf, np.inf)]
    special += [model.anchors + reach * random.normal(size=model.anchors.shape) * width for width in (0.01, 0.3, 3, 30)]
    low, high = model.anchors.min(axis=0), model.anchors.max(axis=0)
    special.append(random.uniform(low - 1, high + 1, (50, len(low))))
    special.append(np.outer([1e6, -1e6, 1e30, -1e30, 1e150, -1e150], np.ones(len(low))))
    rows = np.concatenate(special)
    return np.concatenate([rows, random.permuted(rows, axis=0)])


def largest_difference(tables, model, Z):
    return float(np.abs(tables.decide(Z) - formula(model, Z)).max())


@pytest.fixture(scope="module")
def trained(real_data):
    """Models by data set and parameters, each trained once."""
    models = {}

    def get(name, **parameters):
        key = (name, *sorted(parameters.items()))
        if key not in models:
            X, y = (values[::2] for values in real_data(name))
            models[key] = MLLKMClassifier(anchors="all", componentwise=True, n_jobs=1, **parameters).fit(X, y).model_, X
        return models[key]

    return get


@pytest.mark.parametrize("local_bias", [0.0, "auto"])
@pytest.mark.parametrize("name", ["breast_cancer", "wine"], ids=["two classes", "three classes"])
@pytest.mark.parametrize("map", MAPS)
def test_trained_models_deviate_by_no_more_than_is_stated(trained, map, name, local_bias):
    model, X = trained(name, map=map, local_bias=local_bias)
    tables = compile_additive(model)
    assert 0 < tables.deviation <= 1e-6
    far = X * 1e6
    rows = np.concatenate([X, X[:50] * 1.3 - 2, far, -far])
    direct = model.direct().decision_function(rows)
    found = tables.decide(model.preprocessor.transform(rows, np.float64))
    assert np.abs(found - direct.reshape(found.shape)).max() <= tables.deviation
    assert largest_difference(tables, model, delicate_rows(model)) <= tables.deviation


@pytest.mark.filterwarnings("ignore:feature 12")
@pytest.mark.parametrize("scaling", ["none", "standard", "minmax", "unit-norm"])
@pytest.mark.parametrize("n_components", [None, 5])
def test_scalings_and_projections_come_before_the_tables(trained, scaling, n_components):
    model, X = trained("wine", map="exponential", scaling=scaling, n_components=n_components, multi_class="ovr")
    model = enough_kernels(model)
    assert model.form.tables is not None
    difference = model.decision_function(X * 1.1) - model.direct().decision_function(X * 1.1)
    assert 0 < np.abs(difference).max() <= model.form.tables.deviation


def enough_kernels(model):
    """The same function with kernels repeated until tables pay."""
    times = -(-64 // model.n_kernels)
    return replace(
        model,
        **{name: np.repeat(getattr(model, name), times, axis=0) for name in ("anchors", "gammas", "kernel_scale")},
        weights=np.repeat(model.weights, times, axis=-1) / times,
        coef=np.repeat(model.coef, times, axis=1) / times,
        local_coef=np.repeat(model.local_coef, times, axis=1) / times,
    )


@st.composite
def small_models(draw):
    """Few kernels: gammas of many magnitudes, anchors that coincide or nearly so, coefficients that cancel."""
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    s, d, K = draw(st.integers(1, 8)), draw(st.integers(1, 3)), draw(st.sampled_from([1, 3]))
    spread = 10.0 ** draw(st.integers(-2, 3))
    anchors = spread * random.normal(size=(s, d))
    if draw(st.booleans()):
        anchors[s // 2 :] = anchors[: s - s // 2]
        anchors[-1] = np.nextafter(anchors[0], np.inf)
    magnitude = draw(st.sampled_from([0.0, 2.0, 6.0, 9.0]))
    gammas = 10.0 ** random.uniform(-magnitude, magnitude, s)
    coef = random.normal(size=(K, s, d)) * 10.0 ** random.uniform(-3, draw(st.sampled_from([0.0, 3.0])), (K, s, 1))
    local_coef = random.normal(size=(K, s)) * draw(st.sampled_from([0.0, 1.0, 100.0]))
    if draw(st.booleans()):  # what one half adds, the other takes away
        half = s // 2
        coef[:, half : 2 * half], local_coef[:, half : 2 * half] = -coef[:, :half], -local_coef[:, :half]
    return made_of(draw(st.sampled_from(MAPS)), anchors, gammas, coef, local_coef)


@settings(max_examples=300)
@given(small_models())
def test_random_models_deviate_by_no_more_than_is_stated_or_have_no_tables(model):
    tables, refusal = tables_or_refusal(model)
    if tables is None:
        assert "or use the direct form" in refusal
        return
    assert tables.deviation <= 1e-6
    assert tables.bytes <= MAX_BYTES
    rows = delicate_rows(model)
    assert np.isfinite(tables.decide(rows)).all()
    assert largest_difference(tables, model, rows) <= tables.deviation


@pytest.mark.parametrize("deviation", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("map", ["exponential", "gaussian"])
def test_a_smaller_deviation_takes_more_cells(make_model, map, deviation):
    model = make_model(map, True, 0.5, (1, 2, 3), n_kernels=30)
    tables = compile_additive(model, deviation)
    assert tables.deviation <= deviation
    assert largest_difference(tables, model, delicate_rows(model)) <= tables.deviation
    assert tables.cells > compile_additive(model, 1000 * deviation).cells


@pytest.mark.parametrize("map", MAPS)
def test_the_bound_is_not_far_from_the_truth(make_model, map):
    """A bound a thousand times too large would cost cells for nothing."""
    model = make_model(map, True, 0.5, n_kernels=30)
    tables = compile_additive(model)
    Z = np.random.default_rng(0).normal(size=(20_000, 4)) * 2
    assert largest_difference(tables, model, Z) > tables.deviation / 1000


@pytest.mark.parametrize("map", ["linear", "squared"])
def test_bounded_maps_are_exact_but_for_rounding_and_zero_beyond_their_reach(make_model, map):
    model = make_model(map, True, 0.5, n_kernels=30)
    tables = compile_additive(model)
    assert tables.deviation < 1e-11
    edge = np.abs(tables.edges[np.isfinite(tables.edges)]).max()
    assert not tables.decide(np.full((1, 4), edge * 1.0001)).any()


def test_kernels_add_cells_only_where_they_have_kinks(make_model):
    few, many = (compile_additive(make_model("gaussian", True, n_kernels=s)) for s in (20, 400))
    assert many.cells < 2 * few.cells
    coinciding = make_model("linear", True, n_kernels=400)  # of 30 anchors and 3 gammas
    assert compile_additive(coinciding).cells <= 4 * (3 * 3 * 30 + 2)


def test_the_bytes_are_those_of_the_arrays_and_are_bounded(make_model):
    model = make_model("linear", True, 0.5, (1, 2, 3), n_kernels=30)
    tables = compile_additive(model)
    held = sum(values.nbytes for values in vars(tables).values() if isinstance(values, np.ndarray))
    assert tables.bytes == held
    assert compile_additive(model, max_bytes=held).bytes == held
    with pytest.raises(NotTabulated, match=r"no tables within .* as feature 3 needs more cells than are left"):
        compile_additive(model, max_bytes=held - 1)
    with pytest.raises(NotTabulated, match="more cells"):
        compile_additive(make_model("gaussian", True), max_bytes=10_000)
    with pytest.raises(NotTabulated, match="more cells"):
        compile_additive(make_model("gaussian", True), max_bytes=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gammas": np.zeros(7)}, "rounding alone may move"),
        ({"gammas": np.full(7, 1e-24)}, "rounding alone may move"),
        ({"gammas": np.full(7, 1e30)}, "rounding alone may move"),
        ({"coef": np.full((1, 7, 4), 1e9)}, "rounding alone may move"),
        ({"anchors": np.full((7, 4), 1e200)}, "rounding alone may move"),
    ],
)
@pytest.mark.parametrize("map", MAPS)
def test_models_beyond_double_precision_have_no_tables(make_model, map, changes, message):
    with pytest.raises(NotTabulated, match=message):
        compile_additive(replace(make_model(map, True, 0.5), **changes))


@pytest.mark.parametrize("map", ["linear", "squared"])
def test_what_a_narrow_bump_leaves_behind_far_away_is_bounded(map):
    """A sweep without bounds would be off here: the wide bump ends where the rest of the narrow one has grown."""
    for apart in (1e6, 1e10, 1e14, 1e18):
        model = made_of(map, [[3.0], [1.0]], [apart**0.5, apart**-0.5], [[[1.0], [1e-9]]], [[0.0, 0.0]])
        tables, refusal = tables_or_refusal(model)
        if tables is None:
            assert apart > 1e14
            assert "too wide or too narrow" in refusal
        else:
            assert largest_difference(tables, model, delicate_rows(model)) <= tables.deviation


@pytest.mark.parametrize("gamma", [1e-320, 1e-200, 1e-100, 1e100, 1e200, 1e300])
@pytest.mark.parametrize("map", MAPS)
def test_gammas_at_the_ends_of_the_number_range_are_right_or_refused(map, gamma):
    model = made_of(map, [[0.0], [0.0]], [gamma, 1.0], np.zeros((1, 2, 1)), [[1.0, 0.5]])
    tables, _ = tables_or_refusal(model)
    assert tables is None or largest_difference(tables, model, delicate_rows(model)) <= tables.deviation


@pytest.mark.parametrize("map", MAPS)
def test_a_feature_without_coefficients_has_one_cell(make_model, map):
    model = make_model(map, True, n_features=2)
    coef = model.coef.copy()
    coef[:, :, 1] = 0.0
    tables = compile_additive(replace(model, coef=coef, local_coef=np.zeros((1, 7))))
    Z = np.random.default_rng(0).normal(size=(50, 2))
    assert tables.guide_starts.tolist()[-1] - tables.guide_starts.tolist()[-2] == 2
    assert largest_difference(tables, replace(model, coef=coef, local_coef=np.zeros((1, 7))), Z) <= 1e-6


def test_what_is_not_additive_or_no_deviation_is_refused(make_model):
    with pytest.raises(ParameterError, match="no additive model: train with componentwise=True"):
        compile_additive(make_model())
    for deviation in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ParameterError, match="deviation="):
            compile_additive(make_model(componentwise=True), deviation)


@pytest.mark.parametrize("map", MAPS)
def test_the_tallest_term_is_the_largest_on_a_dense_grid(map):
    model = made_of(map, [[0.0]], [2.5], [[[1.0]]], [[0.0]])
    grid = np.linspace(0, 5, 100_001)
    assert formula(model, grid[:, None]).max() == pytest.approx(float(tallest_term(map, np.array([2.5]))[0]), rel=1e-6)


@pytest.mark.parametrize("local_bias", [0.0, 0.7])
@pytest.mark.parametrize("map", MAPS)
def test_shape_functions_add_up_to_the_decision_function(make_problem, map, local_bias):
    for classes in ((0, 1), ("a", "b", "c")):
        problem = make_problem(map, True, local_bias, classes, n_components=3)
        model, Z = problem.model, problem.samples
        parts = [model.shape_function(feature, Z[:, feature]) for feature in range(3)]
        assert parts[0].shape == ((30,) if len(classes) == 2 else (30, 3))
        np.testing.assert_allclose(sum(parts), model.decision_function(problem.raw), rtol=1e-9, atol=1e-12)


def test_shape_functions_of_what_is_not_there_are_refused(make_model):
    with pytest.raises(ParameterError, match="global kernels is no additive model"):
        make_model().shape_function(0, [0.0])
    model = make_model(componentwise=True)
    for feature in (-1, 4):
        with pytest.raises(ParameterError, match="the kernels see 4 features, give one of 0 to 3"):
            model.shape_function(feature, [0.0])
    for grid in ([[0.0]], [np.nan], 1.0):
        with pytest.raises(ParameterError, match="list of finite numbers"):
            model.shape_function(0, grid)
    assert model.shape_function(0, []).shape == (0,)
    assert np.isfinite(model.shape_function(0, [1e300, -1e300])).all()
