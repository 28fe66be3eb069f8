"""Where the gammas come from: the paper's segment, the distances of the data, or the user."""

from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.gammas import GAMMA_NAMES, HALF_WIDTHS, auto_gammas, logspace, resolve_gammas
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import MAPS, bumps, uses_plain_distance


def test_logspace_has_equal_ratios_over_the_papers_segment():
    gammas = logspace()
    assert len(gammas) == 10
    assert (gammas[0], gammas[-1]) == (0.01, 10.0)
    np.testing.assert_allclose(gammas[1:] / gammas[:-1], 1000 ** (1 / 9), rtol=1e-9)


@pytest.mark.parametrize("segment", [(0.0, 1.0, 3), (2.0, 1.0, 3), (1.0, 2.0, 0), (-1.0, 1.0, 2)])
def test_logspace_refuses_segments_that_are_none(segment):
    with pytest.raises(ParameterError, match="logspace"):
        logspace(*segment)


@pytest.mark.parametrize("map", MAPS)
@pytest.mark.parametrize("componentwise", [False, True])
def test_auto_gammas_fall_to_one_half_at_multiples_of_the_median_distance(real_data, map, componentwise):
    X, _ = real_data("wine")
    X = X[:120]
    left, right = X[:60], X[60:]
    if componentwise:
        distances = np.abs(left - right).ravel()
    else:
        distances = np.array([np.linalg.norm(x - z) for x in left for z in right])
    median = np.median(distances[distances > 0])
    gammas = auto_gammas(Family(map, componentwise), X)
    assert len(gammas) == len(HALF_WIDTHS["auto"])
    for gamma, factor in zip(gammas, HALF_WIDTHS["auto"], strict=True):
        assert bumps(map, np.array([(factor * median) ** 2]), gamma)[0] == pytest.approx(0.5, rel=1e-9)


@pytest.mark.parametrize("map", MAPS)
@pytest.mark.parametrize("componentwise", [False, True])
def test_auto_gammas_follow_the_unit_of_the_data(real_data, map, componentwise):
    X, _ = real_data("iris")
    power = 1 if uses_plain_distance(map) else 2
    family = Family(map, componentwise)
    np.testing.assert_allclose(auto_gammas(family, 10.0 * X) * 10.0**power, auto_gammas(family, X), rtol=1e-9)


@pytest.mark.parametrize("componentwise", [False, True])
@pytest.mark.parametrize("X", [np.ones((6, 2)), np.ones((1, 2))], ids=["all-equal", "one-row"])
def test_auto_gammas_of_data_without_distances_are_one(X, componentwise):
    assert auto_gammas(Family("gaussian", componentwise), X).tolist() == [1.0]


def test_given_gammas_are_sorted_and_single():
    X, family = np.eye(3), Family("gaussian")
    assert resolve_gammas([3.0, 1.0, 3.0], family, X).tolist() == [1.0, 3.0]
    assert resolve_gammas(0.5, family, X).tolist() == [0.5]
    np.testing.assert_array_equal(resolve_gammas("auto", family, X), auto_gammas(family, X))


def test_wide_gammas_are_those_of_the_wider_bumps():
    X, family = np.random.default_rng(0).normal(size=(20, 3)), Family("gaussian")
    assert GAMMA_NAMES == ("auto", "wide", "narrow")
    wide, every = resolve_gammas("wide", family, X), resolve_gammas("auto", family, X)
    np.testing.assert_array_equal(wide, every[-len(wide) :])
    assert resolve_gammas("narrow", family, X).max() > every.max()


@pytest.mark.parametrize("gammas", [[], [0.0], [-1.0, 2.0], [np.nan], [np.inf], [[1.0, 2.0]], "slim"])
def test_gammas_that_cannot_work_are_refused(gammas):
    with pytest.raises(ParameterError, match="gammas="):
        resolve_gammas(gammas, Family("gaussian"), np.eye(3))
