from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mllkm_scale.base.files.archive import write_archive
from mllkm_scale.errors import CheckpointError, ParameterError, ScratchError
from mllkm_scale.mkl.starts import cold_start
from mllkm_scale.mkl.state import Settings, State
from mllkm_scale.run.checkpoint import KIND, VERSION, load_checkpoint, save_checkpoint
from mllkm_scale.run.strategy import state_arrays, state_from_arrays

ARRAYS = {"duals": np.linspace(0, 1, 7), "active": np.array([3, 1, 2]), "working": np.eye(3, dtype=bool)}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint.npz"
    save_checkpoint(path, fingerprint="abc", round=4, header={"gap": 0.02, "elapsed_s": 3.5}, arrays=ARRAYS)
    return path


def test_what_is_loaded_is_what_was_saved(checkpoint: Path) -> None:
    header, arrays = load_checkpoint(checkpoint, "abc")
    assert header == {"gap": 0.02, "elapsed_s": 3.5, "round": 4, "fingerprint": "abc"}
    assert arrays.keys() == ARRAYS.keys()
    for name, values in ARRAYS.items():
        assert arrays[name].dtype == values.dtype
        np.testing.assert_array_equal(arrays[name], values)


def test_a_missing_checkpoint_is_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nothing to resume: train without --resume"):
        load_checkpoint(tmp_path / "checkpoint.npz", "abc")


def test_a_checkpoint_of_another_training_is_refused(checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match=r"other data or with other parameters.*--overwrite"):
        load_checkpoint(checkpoint, "abd")


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_checkpoint_is_refused_with_its_name_and_the_remedy(checkpoint: Path, damage: str) -> None:
    raw = bytearray(checkpoint.read_bytes())
    if damage == "cut":
        del raw[len(raw) // 2 :]
    elif damage == "flip":
        raw[raw.index(ARRAYS["duals"].tobytes()) + 9] ^= 1
    else:
        raw.clear()
    checkpoint.write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"checkpoint\.npz is damaged.*--overwrite"):
        load_checkpoint(checkpoint, "abc")


def test_a_checkpoint_of_a_newer_format_is_refused(checkpoint: Path) -> None:
    write_archive(checkpoint, kind=KIND, version=VERSION + 1, header={}, arrays={})
    with pytest.raises(CheckpointError, match="upgrade"):
        load_checkpoint(checkpoint, "abc")


def test_a_checkpoint_without_its_entries_is_damaged(checkpoint: Path) -> None:
    write_archive(checkpoint, kind=KIND, version=VERSION, header={"fingerprint": "abc"}, arrays={})
    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(checkpoint, "abc")


def test_the_entries_of_every_checkpoint_are_taken(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="'round'"):
        save_checkpoint(tmp_path / "c.npz", fingerprint="abc", round=1, header={"round": 2}, arrays={})


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScratchError, match="absent"):
        save_checkpoint(tmp_path / "absent" / "c.npz", fingerprint="abc", round=1, header={}, arrays={})


def test_a_state_of_another_version_is_refused_with_the_remedy() -> None:
    """One whose duals were of a part of the samples, say, would be read as if they were of all."""
    state = cold_start(np.array([[1.0], [-1.0]]), Settings())
    arrays = state_arrays(state, "machine0_")
    assert state_from_arrays(State, arrays, "machine0_").inner_tol == state.inner_tol
    with pytest.raises(CheckpointError, match=r"machine0_in_play.*--overwrite"):
        state_from_arrays(State, arrays | {"machine0_in_play": np.asarray(2)}, "machine0_")
    with pytest.raises(CheckpointError, match=r"no array 'machine0_left'.*--overwrite"):
        state_from_arrays(State, {name: a for name, a in arrays.items() if name != "machine0_left"}, "machine0_")
