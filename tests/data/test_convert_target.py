"""The target of a conversion appears whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from mllkm_scale.data import Dataset, convert
from mllkm_scale.data.converters.whole_file import WholeFile
from mllkm_scale.data.readers import streams
from mllkm_scale.errors import DataError, ParameterError, ScratchError


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("1,2,0\n3,4,1\n" * 50)
    return path


def test_an_existing_target_is_kept_unless_overwriting_is_allowed(source, tmp_path):
    target = tmp_path / "out.h5"
    target.write_text("precious")
    with pytest.raises(ParameterError, match=r"out\.h5 exists already"):
        convert(source, target)
    assert target.read_text() == "precious"
    convert(source, target, overwrite=True)
    with Dataset.open(target) as data:
        assert data.n_rows == 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.h5"]


def test_a_target_that_appears_meanwhile_is_kept(source, tmp_path):
    target = tmp_path / "out.h5"
    with pytest.raises(ParameterError, match="exists already"):
        convert(source, target, progress=lambda done, total: target.write_text("precious"))
    assert target.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.h5"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interruption_leaves_the_old_target_and_no_other_file(source, tmp_path, monkeypatch, error):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 100)
    target = tmp_path / "out.h5"
    target.write_text("precious")
    seen = []

    def interrupt(done, total):
        seen.extend(path.name for path in tmp_path.glob(".out.h5.*"))
        raise error

    with pytest.raises(error):
        convert(source, target, overwrite=True, progress=interrupt)
    assert len(seen) == 1
    assert target.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.h5"]


FULL_DISK = """
import resource, sys
from mllkm_scale.data import convert
from mllkm_scale.errors import ScratchError
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    convert(sys.argv[1], sys.argv[2])
except ScratchError as error:
    sys.stdout.write(str(error))
"""


def test_a_disk_that_fills_up_is_reported_and_nothing_is_left(tmp_path):
    source = tmp_path / "in.csv"
    source.write_text("1,2,0\n" * 20_000)
    run = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(source), str(tmp_path / "out.h5")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "out.h5 cannot be written" in run.stdout, run.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_folders_that_are_missing_are_named(source, tmp_path):
    with pytest.raises(ScratchError, match="none does not exist: make it first"):
        convert(source, tmp_path / "none" / "out.h5")
    (tmp_path / "folder.h5").mkdir()
    with pytest.raises(ParameterError, match="is a folder"):
        convert(source, tmp_path / "folder.h5", overwrite=True)


def test_the_target_has_chunks_of_a_megabyte_and_the_usual_permissions(tmp_path):
    np.save(tmp_path / "in.npy", np.zeros((5000, 100)))
    convert(tmp_path / "in.npy", tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5", "r") as file:
        assert file["X"].chunks == (1310, 100)
        assert file["X"].compression is None
        assert file["X"].maxshape == (None, 100)
    plain = tmp_path / "plain"
    plain.touch()
    assert os.stat(tmp_path / "out.h5").st_mode == plain.stat().st_mode


def test_small_files_stay_small(source, tmp_path):
    assert convert(source, tmp_path / "out.h5").size_bytes < 50_000


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("in.xls", {}, "not clear from its name: name one of csv, tsv, libsvm, npz, npy, idx, parquet"),
        ("in.csv", {"format": "arff"}, "'arff' is not a format: choose one of csv, tsv"),
        ("in.csv", {"x": "a"}, "x does not belong to the format csv"),
        (
            "in.csv",
            {"y": "a"},
            "y does not belong to the format csv, which knows as_number, categories, header, label_column",
        ),
        ("in.npy", {"label_column": 2}, "label_column does not belong to the format npy"),
        ("in.npz", {"header": True}, "header does not belong to the format npz"),
        ("in.csv", {"label_column": True}, "label_column must be"),
        ("in.csv", {"label_column": 1.5}, "label_column must be"),
    ],
)
def test_options_that_cannot_work_are_refused(tmp_path, name, options, message):
    (tmp_path / name).write_text("1,2,0\n")
    with pytest.raises(ParameterError, match=message):
        convert(tmp_path / name, tmp_path / "out.h5", **options)


def test_a_target_of_another_format_is_refused(source, tmp_path):
    with pytest.raises(ParameterError, match=r"name it out\.h5"):
        convert(source, tmp_path / "out.zarr")


def test_sources_that_are_no_file_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"none\.csv does not exist"):
        convert(tmp_path / "none.csv", tmp_path / "out.h5")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match=r"folder\.csv is not a file"):
        convert(tmp_path / "folder.csv", tmp_path / "out.h5")
    (tmp_path / "empty.csv").touch()
    with pytest.raises(DataError, match=r"empty\.csv is empty"):
        convert(tmp_path / "empty.csv", tmp_path / "out.h5")
    (tmp_path / "in.npy.gz").write_bytes(b"\x1f\x8b\0\0")
    with pytest.raises(DataError, match=r"in\.npy\.gz is packed by gzip.*gunzip"):
        convert(tmp_path / "in.npy.gz", tmp_path / "out.h5")


def test_an_explicit_format_wins_over_the_name(tmp_path):
    (tmp_path / "mnist.scale").write_text("1 1:2\n")
    assert convert(tmp_path / "mnist.scale", tmp_path / "out.h5", format="libsvm").format == "libsvm"


def test_an_interrupt_while_the_file_is_made_leaves_nothing(tmp_path: Path) -> None:
    class Interrupted(WholeFile):
        def _open(self, path: Path) -> None:
            path.touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Interrupted(tmp_path / "out.csv"):
        pass
    assert list(tmp_path.iterdir()) == []
