"""A small data set on disk, and a model trained on it by the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import CliRunner, Result

from mllkm_scale.cli import cli

Run = Callable[..., Result]


@pytest.fixture(scope="session")
def mllkm() -> Run:
    """Run a command line in this process."""

    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(cli, [str(argument) for argument in arguments])

    return run


@pytest.fixture(scope="session")
def wine_h5(
    tmp_path_factory: pytest.TempPathFactory, real_data: Callable[[str], tuple[np.ndarray, np.ndarray]]
) -> Path:
    """Wine in HDF5: 138 rows to train on and 40 held out, three classes."""
    X, y = real_data("wine")
    order = np.random.default_rng(0).permutation(len(y))
    path = tmp_path_factory.mktemp("data") / "wine.h5"
    with h5py.File(path, "w") as file:
        for name, values in (("X", X), ("y", y)):
            file[f"{name}_test"], file[name] = values[order[:40]], values[order[40:]]
    return path


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, wine_h5: Path, mllkm: Run) -> tuple[Path, Result]:
    """The run folder of a training, and what the command printed."""
    folder = tmp_path_factory.mktemp("train") / "run"
    result = mllkm("train", wine_h5, "--out", folder, "--anchors", "all", "--memory", "1GB", "--jobs", "1")
    assert result.exit_code == 0, result.output
    return folder, result
