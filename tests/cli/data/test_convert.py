from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import Result

from mllkm_scale.base.location import FORMATS
from mllkm_scale.data.converters import FORMATS as KNOWN

Run = Callable[..., Result]


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    path = tmp_path / "pets.csv"
    path.write_text("kind,weight,height\ncat,3.5,25\ndog,20,60\ndog,8,30\n")
    return path


def test_the_formats_offered_are_those_that_can_be_converted() -> None:
    assert tuple(KNOWN) == FORMATS


@pytest.mark.parametrize("column", ["kind", "0", "-3"])
def test_csv_becomes_hdf5_and_what_was_written_is_told(mllkm: Run, pets: Path, column: str) -> None:
    target = pets.with_suffix(".h5")
    result = mllkm("convert", pets, target, "--label-column", column)
    assert result.exit_code == 0, result.stderr
    assert str(target) in result.stdout
    assert "X             3 x 2            float64" in result.stdout
    assert "y             3                text" in result.stdout
    with h5py.File(target) as file:
        assert file["X"].shape == (3, 2)
        assert file["y"].asstr()[:].tolist() == ["cat", "dog", "dog"]


def test_a_file_without_labels_and_header_is_converted_as_told(mllkm: Run, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("1,2\n3,4\n")
    target = tmp_path / "new.h5"
    options = ["--format", "csv", "--label-column", "none", "--no-header"]
    result = mllkm("convert", tmp_path / "new.txt", target, *options)
    assert result.exit_code == 0, result.stderr
    with h5py.File(target) as file:
        assert list(file) == ["X"]
        assert file["X"][:].tolist() == [[1, 2], [3, 4]]


def test_arrays_of_an_npz_are_named_by_options(mllkm: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.eye(3), digits=np.arange(3))
    result = mllkm("convert", tmp_path / "a.npz", tmp_path / "a.h5", "--x", "images", "--y", "digits")
    assert result.exit_code == 0, result.stderr
    with h5py.File(tmp_path / "a.h5") as file:
        assert set(file) == {"X", "y"}


def test_a_target_that_exists_stays_unless_it_may_be_overwritten(mllkm: Run, pets: Path) -> None:
    target = pets.with_suffix(".h5")
    target.write_text("precious")
    refused = mllkm("convert", pets, target, "--label-column", "kind")
    assert refused.exit_code == 2
    assert "exists already" in refused.stderr
    assert target.read_text() == "precious"
    assert mllkm("convert", pets, target, "--label-column", "kind", "--overwrite").exit_code == 0


def test_a_bad_line_is_named_and_ends_with_the_code_of_data_errors(mllkm: Run, pets: Path) -> None:
    with pets.open("a") as file:
        file.write("cat,3,25,7\n")
    result = mllkm("convert", pets, pets.with_suffix(".h5"), "--label-column", "kind")
    assert result.exit_code == 3
    assert "line 5" in result.stderr
    assert not pets.with_suffix(".h5").exists()


def test_held_out_rows_are_told_and_measured_after_a_training(mllkm: Run, tmp_path: Path) -> None:
    lines = [f"{n % 7},{n % 5 + 10 * (n % 2)},{'odd' if n % 2 else 'even'}" for n in range(100)]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    result = mllkm("convert", tmp_path / "a.csv", tmp_path / "a.h5", "--hold-out", "0.2", "--seed", "3")
    assert result.exit_code == 0, result.output
    assert [line.split()[:4] for line in result.stdout.splitlines()[1:3]] == [
        ["X", "80", "x", "2"],
        ["X_test", "20", "x", "2"],
    ]
    trained = mllkm(
        "train", tmp_path / "a.h5", "--out", tmp_path / "run", "--anchors", "all", "--memory", "1GB", "--jobs", "1"
    )
    assert "20 rows, error 0.00 %" in trained.stdout


@pytest.mark.parametrize("options", [["--seed", "3"], ["--hold-out", "0"], ["--hold-out", "1.2"]])
def test_a_share_that_cannot_be_held_out_is_a_usage_error(mllkm: Run, tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "a.csv").write_text("1,2,no\n3,4,yes\n")
    result = mllkm("convert", tmp_path / "a.csv", tmp_path / "a.h5", *options)
    assert result.exit_code == 2
    assert options[0] in result.stderr
