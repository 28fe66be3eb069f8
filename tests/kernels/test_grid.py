"""Kernels as integers: which anchor and which gamma an id stands for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.data import Dataset
from mllkm_scale.kernels.grid import Family, KernelGrid
from mllkm_scale.kernels.locally_linear import ComponentKernels, GlobalKernels


@pytest.fixture
def grid():
    anchors = np.arange(8, dtype=np.float32).reshape(4, 2)
    scales = np.arange(12.0).reshape(4, 3)
    return KernelGrid(
        Family("squared", local_bias=0.5), Dataset.from_arrays(anchors), np.array([1.0, 2.0, 3.0]), scales
    )


def test_an_id_names_an_anchor_and_a_gamma(grid):
    kernels = grid.take([7, 0, 11])
    assert kernels.anchors.tolist() == [[4.0, 5.0], [0.0, 1.0], [6.0, 7.0]]
    assert kernels.gammas.tolist() == [2.0, 1.0, 3.0]
    assert kernels.scales.tolist() == [7.0, 0.0, 11.0]
    assert (kernels.map, kernels.local_bias) == ("squared", 0.5)
    assert kernels.anchors.dtype == np.float64


def test_the_grid_knows_its_size_and_how_many_kernels_are_open(grid):
    assert len(grid) == 12
    assert grid.n_open == 11


@pytest.mark.parametrize(("componentwise", "kind"), [(False, GlobalKernels), (True, ComponentKernels)])
def test_a_family_makes_its_kind_of_kernels_with_unit_scales(componentwise, kind):
    kernels = Family("linear", componentwise).kernels(np.eye(2), np.ones(2))
    assert isinstance(kernels, kind)
    assert kernels.scales.tolist() == [1.0, 1.0]


@pytest.fixture
def with_list(grid):
    family = grid.family
    listed = family.kernels(np.array([[-1.0, -2.0], [-3.0, -4.0]]), np.array([0.5, 0.25]), np.array([20.0, 30.0]))
    return replace(grid, listed=listed)


def test_listed_kernels_have_the_first_ids_and_those_of_the_grid_follow(with_list):
    kernels = with_list.take([1, 2 + 7, 0, 2, 1])
    assert kernels.anchors.tolist() == [[-3.0, -4.0], [4.0, 5.0], [-1.0, -2.0], [0.0, 1.0], [-3.0, -4.0]]
    assert kernels.gammas.tolist() == [0.25, 2.0, 0.5, 1.0, 0.25]
    assert kernels.scales.tolist() == [30.0, 7.0, 20.0, 0.0, 30.0]
    assert kernels.anchors.dtype == np.float64


@given(st.lists(st.integers(0, 13), max_size=20))
def test_any_ids_of_a_grid_with_a_list_are_those_taken_one_by_one(ids):
    anchors = Dataset.from_arrays(np.arange(8, dtype=np.float32).reshape(4, 2))
    family = Family("gaussian", local_bias=0.5)
    plain = KernelGrid(family, anchors, np.array([1.0, 2.0, 3.0]), np.arange(12.0).reshape(4, 3))
    listed = family.kernels(np.array([[-1.0, -2.0], [-3.0, -4.0]]), np.array([0.5, 0.25]), np.array([20.0, 30.0]))
    taken = replace(plain, listed=listed).take(np.array(ids, np.int64))
    for at, id in enumerate(ids):
        one = listed.take(slice(id, id + 1)) if id < 2 else plain.take([id - 2])
        for name in ("anchors", "gammas", "scales"):
            np.testing.assert_array_equal(getattr(taken, name)[at], getattr(one, name)[0])
    assert len(taken) == len(ids)


def test_listed_kernels_count_among_all_and_among_the_open_ones(grid, with_list):
    assert (len(with_list), with_list.n_open, with_list.n_listed) == (14, 13, 2)
    assert (grid.first_open, with_list.first_open) == (1, 0)
