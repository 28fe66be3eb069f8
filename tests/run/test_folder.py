from __future__ import annotations

import errno
import json
import logging
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mllkm_scale.base.events import Finished, Notice, Phase, Round
from mllkm_scale.errors import CheckpointError, ParameterError, ScratchError
from mllkm_scale.run.folder import RunFolder

MakeRound = Callable[..., Round]


def test_the_files_have_the_names_that_are_documented(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    files = (folder.model, folder.checkpoint, folder.history, folder.plan, folder.run, folder.log)
    assert [file.name for file in files] == [
        "model.mllkm",
        "checkpoint.npz",
        "history.jsonl",
        "plan.json",
        "run.json",
        "run.log",
    ]
    assert not folder.path.exists()


def test_create_makes_the_folder_with_its_parents(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "a" / "b") as folder:
        assert folder.path.is_dir()


@pytest.mark.parametrize("held", ["model.mllkm", "checkpoint.npz"])
def test_create_refuses_a_folder_that_holds_a_training(tmp_path: Path, held: str) -> None:
    (tmp_path / held).write_text("x")
    with pytest.raises(ParameterError, match=rf"{held}.*--resume.*--overwrite"):
        RunFolder.create(tmp_path)
    assert (tmp_path / held).exists()
    RunFolder.create(tmp_path, overwrite=True).close()  # the lock was given back


def test_overwrite_removes_the_files_of_the_training_and_no_others(tmp_path: Path) -> None:
    for name in (
        "model.mllkm",
        "checkpoint.npz",
        "history.jsonl",
        "stream.jsonl",
        "plan.json",
        "run.json",
        "run.log",
        "notes.txt",
    ):
        (tmp_path / name).write_text("old")
    with RunFolder.create(tmp_path, overwrite=True) as folder:
        folder.clear()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "run.log"]
    assert (tmp_path / "run.log").read_text() == "old"  # the log goes on


def test_create_allows_files_of_others_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    RunFolder.create(tmp_path).close()
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("exists", [True, False])
def test_resume_without_a_checkpoint_says_to_train_without_it(tmp_path: Path, exists: bool) -> None:
    path = tmp_path if exists else tmp_path / "absent"
    with pytest.raises(CheckpointError, match="nothing to resume: train without --resume"):
        RunFolder.resume(path)
    assert path.exists() == exists


def test_a_path_that_cannot_be_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ScratchError, match="file/run cannot be written"):
        RunFolder.create(tmp_path / "file" / "run")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere, so no folder is refused")
def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ScratchError, match="Permission denied"):
        RunFolder.create(tmp_path)
    tmp_path.chmod(0o700)


def test_a_second_training_in_the_same_folder_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path), pytest.raises(ScratchError, match=f"in use.*process {os.getpid()}"):
        RunFolder.create(tmp_path)
    assert not (tmp_path / ".lock").exists()
    RunFolder.create(tmp_path).close()


def test_resume_cuts_the_history_after_the_round_of_the_checkpoint(tmp_path: Path, round_event: MakeRound) -> None:
    with RunFolder.create(tmp_path) as folder:
        for number in (1, 2, 3):
            folder.append_history(round_event(number=number))
        folder.checkpoint.write_text("x")
    with RunFolder.resume(tmp_path) as folder:
        assert [event.number for event in folder.cut_history(2)] == [1, 2]
        folder.append_history(round_event(number=3, gap=0.001))
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [(line["event"], line["number"], line["gap"]) for line in lines] == [
        ("round", 1, 0.0119),
        ("round", 2, 0.0119),
        ("round", 3, 0.001),
    ]


def test_json_files_are_replaced_whole(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path) as folder:
        folder.write_json("run.json", {"status": "running"})
        folder.write_json("run.json", {"status": "converged", "gap": math.nan, "path": tmp_path})
        assert json.loads(folder.run.read_text()) == {
            "status": "converged",
            "gap": None,
            "path": str(tmp_path),
        }
        assert not list(tmp_path.glob(".*.partial"))


def test_a_failed_write_leaves_the_old_file_and_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with RunFolder.create(tmp_path) as folder:
        folder.write_json("run.json", 1)
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(ScratchError, match=f"{tmp_path.name}.*No space left.*free space"):
            folder.write_json("run.json", 2)
        assert folder.run.read_text() == "1\n"
        assert not list(tmp_path.glob(".*.partial"))


def test_json_is_written_into_the_folder_only(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run") as folder, pytest.raises(ParameterError, match="without folders"):
        folder.write_json("../run.json", {})


def test_what_a_killed_process_left_half_written_is_swept(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint.npz.12-ab.partial").write_text("half")
    RunFolder.create(tmp_path).close()
    assert not list(tmp_path.glob(".*.partial"))


def test_events_and_log_records_reach_the_log_while_the_folder_is_open(
    tmp_path: Path, round_event: MakeRound, finished: Finished
) -> None:
    logger = logging.getLogger("mllkm_scale.some.part")
    with RunFolder.create(tmp_path) as folder:
        for event in (Phase("check", "X"), Notice("a worker was lost"), round_event(), finished):
            folder.record(event)
        logger.info("tile %d was made again", 7)
    logger.warning("too late")
    lines = folder.log.read_text().splitlines()
    assert [line.split(" ", 3)[3].split(":")[0] for line in lines] == [
        "check",
        "a worker was lost",
        "round 3",
        "converged",
        "tile 7 was made again",
    ]
    assert len(folder.read_history()) == 1


def test_closing_restores_the_logger(tmp_path: Path) -> None:
    logger = logging.getLogger("mllkm_scale")
    before = (logger.level, list(logger.handlers))
    with RunFolder.create(tmp_path):
        assert logger.isEnabledFor(logging.INFO)
    assert (logger.level, logger.handlers) == before


def test_a_resumed_training_appends_to_the_log(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path) as folder:
        folder.record(Phase("first"))
        folder.checkpoint.write_text("x")
    with RunFolder.resume(tmp_path) as folder:
        folder.record(Phase("second"))
    assert [line.split()[-1] for line in folder.log.read_text().splitlines()] == ["first", "second"]
