"""What the tests of the baselines share: data with their official test rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent.parent
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@pytest.fixture(scope="session")
def split_data() -> Callable[[str], Split]:
    """X, y, X_test and y_test of NAME.npz in the folder MLLKM_DATA."""

    def load(name: str) -> Split:
        path = Path(os.environ.get("MLLKM_DATA", ROOT.parent / "shared" / "data")) / f"{name}.npz"
        if not path.exists():
            pytest.skip(f"{name}.npz is not in the folder MLLKM_DATA")
        with np.load(path, allow_pickle=False) as arrays:
            return arrays["X"], arrays["y"], arrays["X_test"], arrays["y_test"]

    return load
