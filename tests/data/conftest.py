"""Files that the tests of the data folder read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest


@pytest.fixture
def write_hdf5(tmp_path: Path) -> Callable[..., Path]:
    """Write arrays by name into an HDF5 file of the test's own folder."""

    def write(name: str = "train.h5", **arrays: Any) -> Path:
        path = tmp_path / name
        with h5py.File(path, "w") as file:
            for key, values in arrays.items():
                file[key] = values
        return path

    return write


@pytest.fixture
def samples() -> np.ndarray:
    """Forty rows of three correlated columns of very different scale."""
    random = np.random.default_rng(7)
    mixing = np.array([[1.0, 0.0, 200.0], [0.5, 0.1, -30.0], [0.0, 0.02, 4.0]])
    return random.normal(size=(40, 3)) @ mixing + [5.0, -100.0, 0.1]
