"""The machine in z', and its tables in single precision, against what they are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.errors import ParameterError
from mllkm_scale.export.forms import find_tables
from mllkm_scale.export.layout import TableLayout, machine_layout, table_layout
from mllkm_scale.export.npz_file import probe_rows
from mllkm_scale.export.single import require_single, single_tables, substituted
from mllkm_scale.kernels.grid import Family

Fixture = Any


def prepared(preparation: Fixture, rows: np.ndarray) -> np.ndarray:
    if preparation.unit_norm:
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows / np.where(norms == 0, 1, norms)
    rows = rows if preparation.columns is None else rows[:, preparation.columns]
    centred = rows - preparation.centre
    if preparation.knots is not None:
        centred = preparation.knots.apply(centred)
    return (
        centred * preparation.factors if preparation.matrix is None else centred @ preparation.matrix.T
    ) + preparation.shift


def by_tables(tables: TableLayout, Z: np.ndarray) -> np.ndarray:
    """Scores in double precision, cell by cell."""
    F = np.zeros((len(Z), tables.coefficients.shape[1]))
    for l in range(Z.shape[1]):
        first, last = tables.starts[l], tables.starts[l + 1]
        edges = tables.edges[first + l : last + l + 1]
        for i, t in enumerate(Z[:, l]):
            j = np.searchsorted(edges, t, side="right") - 1
            if 0 <= j < last - first:
                origin, factor = tables.variables[first + j]
                x = (np.float64(t) - origin) * np.float64(factor)
                F[i] += tables.coefficients[first + j].astype(np.float64) @ x ** np.arange(tables.degree + 1)
    return F


@pytest.mark.parametrize(
    "choice",
    [
        {"scaling": "none"},
        {"scaling": "standard", "map": "exponential"},
        {"scaling": "minmax", "n_components": 9, "map": "linear"},
        {"scaling": "unit-norm", "n_components": 9, "whiten": True, "map": "squared"},
        {"scaling": "unit-norm", "componentwise": True, "map": "exponential"},
        {"scaling": "quantile", "map": "linear"},
        {"scaling": "auto", "n_components": 9},
        {"scaling": "standard+quantile", "fold": "scaled", "map": "squared"},
        {"scaling": "minmax", "fold": "mapped"},
        {"scaling": "unit-norm", "fold": "scaled and mapped"},
    ],
    ids=lambda choice: "-".join(map(str, choice.values())),
)
def test_the_machine_in_its_own_units_decides_alike(choice: dict[str, Any], digits: Fixture, machine: Fixture) -> None:
    X, y = digits
    model = machine(X * 1000 + 7, y % 4, **choice)
    layout = machine_layout(model)
    Z = prepared(layout.preparation, X * 1000 + 7)
    expected = (model.preprocessor.transform(X * 1000 + 7) - layout.origin) / layout.unit
    np.testing.assert_allclose(Z, expected, rtol=0, atol=1e-10)
    assert 0.1 < np.sqrt(np.mean(Z**2)) * np.sqrt(1 if layout.componentwise else Z.shape[1]) < 10
    kernels = Family(layout.map, layout.componentwise, 0.0).kernels(layout.anchors, layout.gammas)
    levels = layout.levels.T * (layout.n_features if layout.componentwise else 1)
    scores = kernels.decide(Z, np.ascontiguousarray(layout.slopes.transpose(1, 0, 2)), np.ascontiguousarray(levels))
    np.testing.assert_allclose(scores, model.direct().decision_function(X * 1000 + 7), rtol=0, atol=1e-9)


def test_the_centre_is_a_number_of_single_precision(digits: Fixture, machine: Fixture) -> None:
    for n_components in (None, 5):
        preparation = machine_layout(machine(digits[0] / 3, digits[1] % 2, n_components=n_components)).preparation
        np.testing.assert_array_equal(preparation.centre, preparation.centre.astype(np.float32))


@pytest.mark.parametrize("map", ["exponential", "gaussian", "linear", "squared"])
def test_tables_in_single_precision_are_within_their_deviation(map: str, digits: Fixture, machine: Fixture) -> None:
    X, y = digits
    model = machine(X, y % 3, map, True, n_kernels=8, n_components=6)
    tables, layout = find_tables(model), machine_layout(model)
    assert tables is not None
    Z = prepared(layout.preparation, X[:40])
    cells = table_layout(tables, layout)
    exact = model.direct().decision_function(X[:40])
    assert np.abs(by_tables(cells, Z) - exact).max() <= tables.deviation
    single = single_tables(cells)
    assert {values.dtype for values in (single.edges, single.variables, single.coefficients)} == {np.dtype("f4")}
    assert np.abs(by_tables(single, Z) - exact).max() <= tables.deviation + 1e-6


def tabulated(f: Callable[[np.ndarray], np.ndarray], edges: np.ndarray) -> TableLayout:
    """A table of polynomials through six nodes of each cell, after a feature without cells."""
    centres, halves = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    nodes = np.cos(np.pi * (np.arange(6) + 0.5) / 6)
    coefficients = f(centres[:, None] + halves[:, None] * nodes) @ np.linalg.inv(np.vander(nodes, increasing=True)).T
    variables = np.stack([centres, 1 / halves], axis=1)
    starts = np.array([0, 0, len(centres)])
    return TableLayout(starts, np.concatenate([[0.0], edges]), variables, coefficients[:, None, :])


def test_cells_that_single_precision_cannot_tell_apart_are_left_out() -> None:
    edges = np.concatenate([np.linspace(0, 1, 8), 1 + np.cumsum(np.full(40, 1e-8)), [1.5, 2.0]])
    single = single_tables(tabulated(np.sin, edges))
    assert single.starts[1] == 0
    assert single.cells == len(single.edges) - 2 < 20
    assert (np.diff(single.edges[1:]) > 0).all()
    points = np.float32(np.concatenate([np.linspace(0, 1.99, 200), 1 + np.arange(-4, 12) * 2.0**-23]))
    found = by_tables(single, np.stack([points, points], axis=1))[:, 0]
    np.testing.assert_allclose(found, np.sin(np.float64(points)), rtol=0, atol=1e-6)


def test_narrow_cells_far_from_zero_lose_nothing_to_rounded_origins() -> None:
    def steep(t: np.ndarray) -> np.ndarray:
        return np.sin(5000 * t)

    points = np.float32(np.linspace(1, 1.009, 300))
    found = by_tables(single_tables(tabulated(steep, np.linspace(1, 1.01, 173))), np.stack([points, points], axis=1))
    np.testing.assert_allclose(found[:, 0], steep(np.float64(points)), rtol=0, atol=2e-6)


@given(st.lists(st.floats(-3, 3), min_size=4, max_size=4), st.floats(0.5, 2), st.floats(-1, 1), st.floats(-2, 2))
def test_a_polynomial_keeps_its_values_in_another_variable(c: list[float], a: float, b: float, x: float) -> None:
    moved = substituted(np.array([[c]]), np.array([a]), np.array([b]))[0, 0]
    powers = np.arange(4)
    np.testing.assert_allclose(moved @ x**powers, np.array(c) @ (a * x + b) ** powers, rtol=0, atol=1e-9)


def test_numbers_that_vanish_or_overflow_in_single_precision_are_refused() -> None:
    np.testing.assert_array_equal(require_single(np.array([1.0, 1e-60, -np.inf]), "it"), np.float32([1, 0, -np.inf]))
    for value in (1e39, 1e-60):
        with pytest.raises(ParameterError, match="it is up to 1e"):
            require_single(np.array([0.0, value]), "it")


@pytest.mark.parametrize("field", ["gammas", "coef"])
def test_numbers_that_overflow_in_units_of_the_machine_are_refused(
    field: str, digits: Fixture, machine: Fixture
) -> None:
    X, y = digits
    model = machine(1000.0 * X, y % 2, scaling="none", n_kernels=4)
    model = replace(model, **{field: np.full_like(getattr(model, field), 1e308)})
    with pytest.raises(ParameterError, match="beyond double precision"):
        machine_layout(model)


@pytest.mark.parametrize("choice", [{}, {"n_components": 5, "whiten": True}, {"scaling": "minmax", "n_components": 9}])
def test_probes_are_prepared_to_anchors(choice: dict[str, Any], digits: Fixture, machine: Fixture) -> None:
    model = machine(digits[0], digits[1] % 2, n_kernels=7, **choice)
    Z = model.preprocessor.transform(probe_rows(model))
    for m, row in zip((0, 3, 6), Z, strict=False):
        np.testing.assert_allclose(row, model.anchors[m], rtol=0, atol=1e-4)
