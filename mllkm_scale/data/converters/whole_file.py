"""A file that is written block by block, and appears completely or not at all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mllkm_scale.base.files.whole import cannot_write, commit, partial_of
from mllkm_scale.errors import ParameterError, ScratchError

__all__ = ["WholeFile"]


class WholeFile(ABC):
    """Writes to a temporary file beside the target, and renames it when the block ends without an error.

    After an error or Ctrl-C, the temporary file is removed and the target is unchanged.
    """

    def __init__(self, target: Path, *, overwrite: bool = False) -> None:
        self.target = target
        self.overwrite = overwrite
        self._partial = partial_of(target)
        self._file: Any = None

    @abstractmethod
    def _open(self, path: Path) -> Any:
        """Open a new file for writing."""

    def __enter__(self) -> Self:
        if self.target.is_dir():
            raise ParameterError(f"{self.target} is a folder: name a file such as {self.target / self._example}")
        self._require_free_name()
        if not self.target.parent.is_dir():
            raise ScratchError(f"the folder {self.target.parent} does not exist: make it first")
        try:
            self._file = self._open(self._partial)
        except OSError as error:
            raise cannot_write(self.target, error) from error
        except BaseException:  # Ctrl-C may arrive after the file is made, but before it is stored here
            self._partial.unlink(missing_ok=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._file.close()
            if error is None:
                self._require_free_name()
                commit(self._partial, self.target)
        except (OSError, RuntimeError) as failure:
            # An error while closing must not hide an earlier error.
            if error is None:
                raise cannot_write(self.target, failure) from failure
        finally:
            self._partial.unlink(missing_ok=True)

    @property
    def _example(self) -> str:
        """An example of a file name, for messages."""
        return "train.h5"

    def _require_free_name(self) -> None:
        if self.target.exists() and not self.overwrite:
            raise ParameterError(
                f"{self.target} exists already: choose another name, or replace it with --overwrite (overwrite=True)"
            )
