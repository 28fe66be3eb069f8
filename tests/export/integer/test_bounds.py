"""The stated deviations hold on rows of any kind, sums are within 32 bits, and 8 bits cost little."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale import Dataset
from mllkm_scale.export import IntegerMachine, integer_machine
from mllkm_scale.export.integer.bump_table import ONE, BumpTable, SquaredBumps
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import MAPS, bumps, uses_plain_distance

Fixture = Any


@pytest.fixture(scope="module")
def exported(digits: Fixture, machine: Fixture) -> dict[tuple[str, bool, int], tuple[Any, IntegerMachine]]:
    """Models of every family, and their integers."""
    X, y = digits
    found = {}
    for map in MAPS:
        for componentwise in (False, True):
            model = machine(X, y % 4, map, componentwise, n_kernels=7, n_components=None if componentwise else 9)
            for bits in (4, 8, 16):
                found[map, componentwise, bits] = model, integer_machine(model, Dataset.from_arrays(X), bits)
    return found


def exact_scores(machine: IntegerMachine, U: np.ndarray) -> np.ndarray:
    """Scores with the constants of the machine, in double precision."""
    preparation = machine.preparation
    W, matrix = preparation.columns_of(U).astype(float), preparation.matrix
    sums = (W * matrix if matrix.ndim == 1 else W @ matrix.T) + preparation.shift
    Z = sums * 2.0**-preparation.downs * machine.step
    rates = machine.bumps.rates * 4.0**machine.scale_bits
    gammas = np.sqrt(rates) if uses_plain_distance(machine.map) else rates
    anchors = (machine.anchors << machine.anchor_shift) * machine.step
    slopes = machine.slopes * machine.units[:, None, None]
    levels = machine.levels * (machine.units * 2.0**machine.level_shift * machine.step)[:, None]
    d = machine.n_features if machine.componentwise else 1
    family = Family(machine.map, machine.componentwise, 1.0)
    return family.kernels(anchors, gammas).decide(Z, slopes.transpose(1, 0, 2), levels.T * d)


@settings(max_examples=40)
@given(
    map=st.sampled_from(MAPS),
    componentwise=st.booleans(),
    bits=st.sampled_from([4, 8, 16]),
    seed=st.integers(0, 2**32 - 1),
)
def test_scores_deviate_by_no_more_than_is_stated(
    map: str, componentwise: bool, bits: int, seed: int, exported: Fixture
) -> None:
    model, integers = exported[map, componentwise, bits]
    inputs, rng = integers.preparation.inputs, np.random.default_rng(seed)
    U = rng.integers(inputs.least, inputs.most + 1, (20, len(inputs.least)))
    Z = integers.preparation.apply(U)
    U = U[(np.abs(Z) < integers.preparation.limit).all(axis=1)]
    found = integers.scores(U) * 2.0**-integers.score_bits
    expected = model.direct().decision_function(inputs.values(U)).reshape(len(U), -1)
    assert np.abs(found - exact_scores(integers, U)).max(initial=0.0) <= integers.arithmetic
    assert np.abs(found - expected).max(initial=0.0) <= integers.deviation


@settings(max_examples=40)
@given(key=st.tuples(st.sampled_from(MAPS), st.booleans(), st.sampled_from([4, 8, 16])), seed=st.integers(0, 2**32 - 1))
def test_no_row_of_integers_leaves_32_bits(key: Any, seed: int, exported: Fixture) -> None:
    _, integers = exported[key]
    inputs, rng = integers.preparation.inputs, np.random.default_rng(seed)
    ends = rng.choice([inputs.low, 0, inputs.high], (20, len(inputs.least)))
    integers.scores(ends)  # raises OverflowError otherwise


@settings(max_examples=200)
@given(
    map=st.sampled_from(MAPS),
    bits=st.sampled_from([8, 16]),
    rate=st.floats(2.0**-45, 0.5),
    D=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20),
)
def test_a_bump_is_off_by_no_more_than_is_stated(map: str, bits: int, rate: float, D: list[int]) -> None:
    kind = SquaredBumps if map == "squared" else BumpTable
    made = kind.of(np.array([rate]), bits) if kind is SquaredBumps else kind.of(map, np.array([rate]), bits)
    q = np.array(D) * made.rates[0]
    expected = bumps(map, q, 1.0)
    found = made.evaluate(np.array(D), 0) / made.heights[0]
    assert np.abs(found - expected).max() <= made.errors[0]
    assert made.heights[0] <= ONE
    assert not found[np.array(D) >= made.reach[0]].any()


@pytest.mark.parametrize("componentwise", [False, True])
@pytest.mark.parametrize("map", MAPS)
def test_labels_stay_where_scores_of_mean_square_one_lead(
    map: str, componentwise: bool, exported: Fixture, digits: Fixture
) -> None:
    X, _ = digits
    for bits, lead in ((16, 0.01), (8, 0.08)):
        model, integers = exported[map, componentwise, bits]
        F = model.direct().decision_function(X)
        sure = np.diff(np.sort(F, axis=1)[:, -2:])[:, 0] > lead
        assert sure.any()
        codes = integers.codes(integers.preparation.inputs.quantise(X))
        np.testing.assert_array_equal(codes[sure], F.argmax(axis=1)[sure])


@pytest.mark.parametrize(("componentwise", "limit"), [(False, 0.02), (True, 0.2)])
@pytest.mark.parametrize("map", MAPS)
def test_4_bits_move_scores_of_mean_square_one_by_little(
    map: str, componentwise: bool, limit: float, exported: Fixture, digits: Fixture
) -> None:
    model, integers = exported[map, componentwise, 4]
    off = integers.decision_function(digits[0]) - model.direct().decision_function(digits[0])
    assert np.sqrt(np.mean(np.square(off))) < limit


def test_8_bits_are_fitted_again(digits: Fixture, machine: Fixture) -> None:
    from mllkm_scale.export.integer.fixed_point import rounded
    from mllkm_scale.export.integer.inputs import extent_of
    from mllkm_scale.export.layout import machine_layout

    X, y = digits
    model = machine(X, y % 4, "gaussian", n_kernels=10, n_components=9)
    data = Dataset.from_arrays(X[:150])
    fitted = integer_machine(model, data, 8)
    plain = rounded(machine_layout(model), extent_of(data), X[:150], 8, 3.0)
    expected = model.direct().decision_function(X)
    errors = [np.square(integers.decision_function(X) - expected).mean() for integers in (fitted, plain)]
    assert errors[0] < 0.5 * errors[1]
