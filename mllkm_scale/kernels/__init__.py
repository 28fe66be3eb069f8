"""The kernels: maps, families, the grid of candidates, anchors, gammas and normalisation."""

from mllkm_scale.kernels.gammas import logspace
from mllkm_scale.kernels.generic import GenericFamily
from mllkm_scale.kernels.grid import Family, KernelGrid
from mllkm_scale.kernels.maps import MAPS

__all__ = ["MAPS", "Family", "GenericFamily", "KernelGrid", "logspace"]
