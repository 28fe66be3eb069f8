"""Devices, pipes and links in the place of files: named errors at once, and nothing is touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mllkm_scale import Dataset, load_model, train
from mllkm_scale.data import convert
from mllkm_scale.data.converters.conversion import converted_once
from mllkm_scale.data.converters.options import ConvertOptions
from mllkm_scale.errors import MLLKMError, ScratchError
from mllkm_scale.kernels.anchors import read_anchors
from mllkm_scale.prediction import predict_file
from mllkm_scale.report.run_files import read_run
from mllkm_scale.run.checkpoint import load_checkpoint
from mllkm_scale.run.folder import RunFolder
from mllkm_scale.run.history import History
from mllkm_scale.run.job import load_job

READERS = {
    "model": load_model,
    "checkpoint": lambda path: load_checkpoint(path, "f"),
    "data": Dataset.open,
    "job": load_job,
    "anchors": lambda path: read_anchors(str(path)),
}


@pytest.fixture(params=["zero", "pipe"])
def special(request, tmp_path):
    """A device that never ends, and a pipe that nobody writes to, as a file with the suffix of an array."""
    path = tmp_path / "special.npy"
    if request.param == "zero":
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(path)
    return path


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_waits_for_a_device_or_a_pipe(special, reader):
    with pytest.raises(MLLKMError, match=r"regular|device|pipe"):
        READERS[reader](special)


@pytest.mark.parametrize("name", ["run.json", "plan.json", "evaluation.json", "history.jsonl"])
def test_a_report_reads_regular_files_alone(special, small_run, tmp_path, name):
    run = tmp_path / "run"
    run.mkdir()
    (run / "model.mllkm").write_bytes((small_run / "model.mllkm").read_bytes())
    special.rename(run / name)
    with pytest.raises(MLLKMError, match=r"device|pipe"):
        read_run(run)


@pytest.mark.parametrize("path", ["a\x00b", "x" * 5000], ids=["NUL", "long"])
@pytest.mark.parametrize("reader", READERS)
def test_names_that_are_no_paths_are_refused(reader, path):
    with pytest.raises(MLLKMError):
        READERS[reader](Path(f"{path}.npy"))


def test_names_with_a_NUL_character_are_refused_wherever_they_are_given(small_data, small_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = load_model(small_run / "model.mllkm")
    with Dataset.open(small_data) as data:
        calls = [
            lambda: train(data, run_dir="a\0b"),
            lambda: train(data, scratch_dir="a\0b"),
            lambda: model.save("a\0b"),
            lambda: predict_file(model, small_data, "a\0b.csv"),
            lambda: convert(small_data, "a\0b.h5"),
            lambda: Dataset.open(small_data, x="X\0"),
            lambda: Dataset.open(small_data, y="y\0"),
        ]
        for call in calls:
            with pytest.raises(MLLKMError):
                call()
    Path("job.toml").write_text('data.path = "data.h5"\noutput.run = "a\\u0000b"\n')
    with pytest.raises(MLLKMError, match=r"job.toml:2: run has a NUL character: remove it"):
        load_job(Path("job.toml"))


@pytest.mark.parametrize("name", [".lock", "run.log"])
@pytest.mark.parametrize("kind", ["link", "dangling", "pipe"])
def test_what_lies_in_the_place_of_lock_and_log_is_not_touched(tmp_path, name, kind):
    target = tmp_path / "precious"
    if kind == "link":
        target.write_text("precious")
    run = tmp_path / "run"
    run.mkdir()
    if kind == "pipe":
        os.mkfifo(run / name)
    else:
        (run / name).symlink_to(target)
    with pytest.raises(ScratchError, match="remove it"), RunFolder.create(run):
        pass
    assert os.path.lexists(run / name)
    assert target.exists() == (kind == "link")
    assert kind != "link" or target.read_text() == "precious"


@pytest.mark.parametrize("kind", ["pipe", "link", "damaged"])
def test_a_stored_conversion_that_cannot_be_read_is_made_again(tmp_path, kind):
    source = tmp_path / "rows.csv"
    source.write_text("a,b,kind\n1,2,x\n3,4,y\n5,6,x\n")
    stored, first = converted_once(source, tmp_path / "run", ConvertOptions())
    assert first is not None
    whole, other = stored.read_bytes(), tmp_path / "other.h5"
    other.write_bytes(b"other")
    stored.unlink()
    if kind == "pipe":
        os.mkfifo(stored)
    elif kind == "link":
        stored.symlink_to(other)
    else:  # in the object header of the root group: h5py raises a KeyError when its attributes are looked at
        damaged = bytearray(whole)
        damaged[112] ^= 8
        stored.write_bytes(damaged)
    again, made = converted_once(source, tmp_path / "run", ConvertOptions())
    assert (again, made is not None) == (stored, True)
    assert stored.read_bytes() == whole
    assert other.read_bytes() == b"other"


def test_a_history_is_not_appended_to_another_file(tmp_path, small_run):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "history.jsonl").symlink_to(tmp_path / "precious")
    event = read_run(small_run).rounds[0]
    with pytest.raises(ScratchError, match="symbolic link"):
        History(tmp_path / "history.jsonl", type(event)).append(event)
    assert (tmp_path / "precious").read_text() == "precious"
