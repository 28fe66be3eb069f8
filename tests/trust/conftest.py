"""What is tried on files that somebody has crafted: checksums are right, and what they hold is not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner, Result

from mllkm_scale import Dataset, train
from mllkm_scale.base.files.archive import read_archive, write_archive
from mllkm_scale.cli import cli
from mllkm_scale.errors import MLLKMError

WRONG: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    float("nan"),
    float("inf"),
    10**400,
    "text",
    "a\x1b[2J",
    [],
    {},
    [[]],
    "x" * 10**5,
)
"""Values that one or another field cannot have."""


@pytest.fixture(scope="session")
def mllkm() -> Callable[..., Result]:
    """Run a command line in this process."""
    return lambda *arguments: CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes, 60 rows of two features."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    path = tmp_path_factory.mktemp("data") / "small.h5"
    with h5py.File(path, "w") as file:
        file["X"], file["y"] = X, np.where(X[:, 0] * X[:, 1] > 0, "same", "other").astype("S")
    return path


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory, small_data: Path) -> Path:
    """The folder of a training that could go on: it ended by its limit of rounds."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    with Dataset.open(small_data) as data:
        train(data, test=data, run_dir=folder, anchors="all", C=1.0, max_rounds=2, tol=1e-4, n_jobs=1, report=False)
    return folder


def tampered(source: Path, target: Path, kind: str, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
    """A archive file with a right checksum and other contents."""
    header, arrays = read_archive(source, kind=kind, version=9, error=MLLKMError)
    header, arrays = copy.deepcopy(header), dict(arrays)
    change(header, arrays)
    write_archive(target, kind=kind, version=1, header=header, arrays=arrays)
    return target


def fields_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all fields of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from fields_of(item, (*path, key))


def with_field(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy in which one field is another."""
    changed = copy.deepcopy(value)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return changed
