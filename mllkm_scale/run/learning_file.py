"""learning.npz: the state of the descent that learns kernels, for a resume with the same bits."""

from __future__ import annotations

import time
from pathlib import Path

from mllkm_scale.base.files.archive import read_archive, write_archive
from mllkm_scale.base.schemas import LearningHeader, conform
from mllkm_scale.errors import CheckpointError
from mllkm_scale.learn.descent import DescentState
from mllkm_scale.run.checkpoint import START_AGAIN, checkpoint_seed, fitting
from mllkm_scale.run.folder import RunFolder

__all__ = ["LearningFile", "folder_seed"]

KIND, VERSION = "mllkm-learning", 1
_EVERY_S = 60.0  # interval in which a long epoch is saved


class LearningFile:
    """Keeps the state of a descent in a file; `fingerprint` identifies its rows and parameters."""

    def __init__(self, path: Path, fingerprint: str, seed: int, resume: bool) -> None:
        self.path, self.fingerprint, self.seed, self.resume = path, fingerprint, seed, resume
        self._saved_s = time.monotonic()

    def load(self) -> DescentState | None:
        """The state to continue from, if the training is resumed and there is one."""
        if not self.resume or not self.path.exists():
            return None
        header, arrays = read_archive(self.path, kind=KIND, version=VERSION, error=CheckpointError)
        with fitting(self.path):
            conform(header, LearningHeader)
        if header["fingerprint"] != self.fingerprint:
            raise CheckpointError(
                f"{self.path} belongs to a training run on other data or with other parameters: resume it with those"
                f" that it was started with, or {START_AGAIN}"
            )
        with fitting(self.path):
            return DescentState.from_arrays(arrays)

    def save(self, state: DescentState) -> None:
        """Write the state; the previous one stays until this one is complete."""
        header = {"fingerprint": self.fingerprint, "seed": self.seed}
        write_archive(self.path, kind=KIND, version=VERSION, header=header, arrays=state.to_arrays())
        self._saved_s = time.monotonic()

    def due(self) -> bool:
        return time.monotonic() - self._saved_s > _EVERY_S


def folder_seed(folder: RunFolder) -> int:
    """The seed of the training in a folder, for a run that was started without a seed."""
    if folder.checkpoint.exists() or not folder.learning.exists():
        return checkpoint_seed(folder.checkpoint)
    header, _ = read_archive(folder.learning, kind=KIND, version=VERSION, error=CheckpointError)
    with fitting(folder.learning):
        return conform(header, LearningHeader).seed
