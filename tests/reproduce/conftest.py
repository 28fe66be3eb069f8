"""What the tests of the experiments share: the catalogue finds the data where the tests do, and asks no network."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def data_there(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Data sets that a test needs, by name: it is skipped if one is not in the folder MLLKM_DATA."""

    def require(*names: str) -> None:
        folder = Path(os.environ.get("MLLKM_DATA", ROOT.parent / "shared" / "data"))
        for name in names:
            if not (folder / f"{name}.npz").exists():
                pytest.skip(f"{name}.npz is not in the folder MLLKM_DATA")
        monkeypatch.setenv("MLLKM_DATA", str(folder))

    return require
