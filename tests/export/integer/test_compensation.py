"""Rounding in turn: the others are fitted anew after each constant, so that far less is lost than by each alone."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from mllkm_scale import Dataset
from mllkm_scale.export import integer_machine
from mllkm_scale.export.integer import compensation, fixed_point
from mllkm_scale.export.integer.compensation import rounded_in_turn

Fixture = Any


def each_for_itself(theta: np.ndarray, units: np.ndarray, tops: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(theta / units), -tops, tops)


def loss(Phi: np.ndarray, theta: np.ndarray, q: np.ndarray) -> float:
    return float(np.square(Phi @ (theta - q)).sum())


def by_fitting_anew(Phi: np.ndarray, theta: np.ndarray, units: np.ndarray, tops: np.ndarray) -> np.ndarray:
    """The slow twin: after each constant, all that are left are solved for."""
    scale = units.mean(axis=1, keepdims=True)
    theta, units = theta / scale, units / scale
    H = (Phi * scale.T).T @ (Phi * scale.T)
    H += 0.01 * np.mean(np.diag(H)) * np.eye(len(H))
    order = np.argsort(-np.diag(H) * np.square(units).max(axis=1), kind="stable")
    left, q = theta.copy(), np.zeros_like(theta)
    for place, i in enumerate(order):
        q[i] = np.clip(np.rint(left[i] / units[i]), -tops[i], tops[i])
        done, rest = order[: place + 1], order[place + 1 :]
        lost = units[done] * q[done] - theta[done]
        left[rest] = theta[rest] - np.linalg.solve(H[np.ix_(rest, rest)], H[np.ix_(rest, done)] @ lost)
    return q


@pytest.mark.parametrize("seed", range(5))
def test_all_that_are_left_are_fitted_anew_after_each(seed: int) -> None:
    rng = np.random.default_rng(seed)
    Phi = rng.normal(size=(40, 3)) @ rng.normal(size=(3, 8)) + 0.1 * rng.normal(size=(40, 8))
    theta, units, tops = rng.uniform(-3, 3, (8, 2)), rng.uniform(0.3, 1, (8, 2)), np.full((8, 2), 7.0)
    found = rounded_in_turn(Phi, theta, units, tops)
    np.testing.assert_array_equal(found, by_fitting_anew(Phi, theta, units, tops))


def test_it_is_about_as_good_as_the_best_of_all_roundings_up_or_down() -> None:
    lost = np.zeros(3)
    for seed in range(30):
        rng = np.random.default_rng(seed)
        Phi = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 5)) + 0.1 * rng.normal(size=(40, 5))
        theta, one, tops = rng.uniform(-3, 3, (5, 1)), np.ones((5, 1)), np.full((5, 1), 7.0)
        near = [(np.floor(v), np.ceil(v)) for v in theta[:, 0]]
        best = min(loss(Phi, theta, np.array(q)[:, None]) for q in product(*near))
        others = rounded_in_turn(Phi, theta, one, tops), each_for_itself(theta, one, tops)
        lost += [best, *(loss(Phi, theta, q) for q in others)]
    assert lost[1] < 1.1 * lost[0]
    assert lost[1] < 0.5 * lost[2]


def test_columns_that_have_nothing_in_common_are_rounded_each_for_itself() -> None:
    theta = np.random.default_rng(0).uniform(-9, 9, (6, 2))
    tops = np.full((6, 1), 7.0)
    found = rounded_in_turn(np.eye(6), theta, np.ones((6, 1)), tops)
    np.testing.assert_array_equal(found, each_for_itself(theta, np.ones((6, 1)), tops))


def test_numbers_are_within_their_tops_for_all_units() -> None:
    rng = np.random.default_rng(1)
    Phi, theta = rng.normal(size=(30, 8)), rng.normal(size=(8, 3))
    found = rounded_in_turn(Phi, theta, np.array([[0.1, 0.5, 2.0]]), np.full((1, 1), 7.0))
    assert np.abs(found).max() <= 7
    np.testing.assert_array_equal(found, np.rint(found))


def test_groups_go_on_with_what_those_before_have_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    Phi = rng.normal(size=(200, 6)) @ rng.normal(size=(6, 40)) + 0.1 * rng.normal(size=(200, 40))
    theta, one, tops = rng.uniform(-3, 3, (40, 3)), np.ones((1, 1)), np.full((1, 1), 7.0)
    whole = loss(Phi, theta, rounded_in_turn(Phi, theta, one, tops))
    monkeypatch.setattr(compensation, "ROUNDED_TOGETHER", 11)
    parts = loss(Phi, theta, rounded_in_turn(Phi, theta, one, tops))
    alone = loss(Phi, theta, each_for_itself(theta, one, tops))
    assert whole < 0.3 * alone
    assert parts < 0.6 * alone


def test_machines_of_4_bits_gain_by_it(digits: Fixture, machine: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = digits
    model = machine(X, y % 4, "squared", n_kernels=12, n_components=9)
    expected, data = model.direct().decision_function(X), Dataset.from_arrays(X[:150])
    found = integer_machine(model, data, 4)
    monkeypatch.setattr(fixed_point, "with_compensation", lambda machine, *rest: machine)
    alone = integer_machine(model, data, 4)
    errors = [np.square(one.decision_function(X) - expected).mean() for one in (found, alone)]
    assert errors[0] < 0.7 * errors[1]
