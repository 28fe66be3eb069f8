"""The four conformal maps against the formulas of the paper's Table 1."""

from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.maps import MAPS, bumps, check_map, gamma_of_half_width, uses_plain_distance

DISTANCES = np.array([0.0, 1e-9, 0.3, 0.5, 1.0, 2.0, 7.0, 1e6])


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("gamma", [0.01, 0.5, 1.0, 10.0])
def test_bumps_are_those_of_the_table(mkl_reference, name, gamma):
    expected = [float(mkl_reference.BUMPS[name](t, gamma)) for t in DISTANCES]
    np.testing.assert_allclose(bumps(name, DISTANCES**2, gamma), expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", MAPS)
def test_bumps_take_one_gamma_per_column(name):
    D = np.tile(DISTANCES[:, None] ** 2, 3)
    gammas = np.array([0.1, 1.0, 4.0])
    expected = np.stack([bumps(name, DISTANCES**2, float(gamma)) for gamma in gammas], axis=1)
    np.testing.assert_array_equal(bumps(name, D, gammas), expected)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bumps_can_overwrite_the_distances_and_keep_their_precision(name, dtype):
    D = (DISTANCES**2).astype(dtype)
    expected = bumps(name, D.copy(), dtype(0.7))
    out = bumps(name, D, dtype(0.7), out=D)
    assert out is D
    assert expected.dtype == dtype
    np.testing.assert_array_equal(D, expected)


def test_bumps_leave_the_distances_alone_without_out():
    D = DISTANCES**2
    bumps("gaussian", D, 1.0)
    np.testing.assert_array_equal(D, DISTANCES**2)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("half_width", [0.01, 1.0, 30.0])
def test_a_bump_falls_to_one_half_at_its_half_width(name, half_width):
    gamma = gamma_of_half_width(name, half_width)
    assert bumps(name, np.array([half_width**2]), gamma)[0] == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize("name", ["linear", "squared"])
def test_bounded_maps_vanish_beyond_their_radius(name):
    gamma = 0.25
    radius = 1 / gamma if uses_plain_distance(name) else gamma**-0.5
    inside, outside = bumps(name, np.array([0.999 * radius, 1.001 * radius]) ** 2, gamma)
    assert inside > 0
    assert outside == 0


def test_an_unknown_map_is_refused_with_the_known_ones():
    with pytest.raises(ParameterError, match=r"'cubic'.*exponential, gaussian, linear, squared"):
        check_map("cubic")
