"""Kernels as integers: which anchor and which gamma an id stands for."""

from __future__ import annotations

import numpy as np
import pytest

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
