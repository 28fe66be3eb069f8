"""Data for an experiment: a set of the catalogue by name, or a file of one's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.data import Dataset
from mllkm_scale.data.catalogue import ENTRIES, find, load

__all__ = ["samples"]


def samples(name: str, tell: Callable[[str], None]) -> tuple[Array, Array]:
    """X (n, d) and y (n,) of a data set of the catalogue, or of an HDF5 or zarr file with these names."""
    if name not in ENTRIES and (Path(name).suffix or Path(name).exists()):
        with Dataset.open(name) as dataset:
            return dataset.part(0, dataset.n_rows).astype(np.float64), dataset.labels()
    found = load(find(name).name, notice=tell, progress=tell)
    return found.X.astype(np.float64), found.y
