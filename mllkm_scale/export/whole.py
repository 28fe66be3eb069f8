"""Exported files, which appear completely or not at all, and replace existing files only with `overwrite`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mllkm_scale.base.files.whole import cannot_write, whole_file
from mllkm_scale.errors import ParameterError, ScratchError

__all__ = ["ExportSummary", "free_target", "write_bytes"]


@dataclass(frozen=True)
class ExportSummary:
    """A summary of an export.

    Attributes
    ----------
    paths : tuple of Path
        The files.
    form : str
        ``"kernels"``, ``"tables"`` of a component-wise machine, or ``"integers"``.
    constant_bytes : int
        Bytes of the constants of the machine in memory.
    deviation : float
        Bound on the error of the form: 0 for kernels, the proved bound for tables (without rounding of the target), and
        the proved bound including all rounding for integers.
    stack_bytes : int, optional
        Bytes of arrays on the stack, for a C header.
    """

    paths: tuple[Path, ...]
    form: str
    constant_bytes: int
    deviation: float
    stack_bytes: int | None = None

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return sum(path.stat().st_size for path in self.paths)


def free_target(path: str | os.PathLike[str], suffix: str, *, overwrite: bool) -> Path:
    """The path, after checking that the file may be written."""
    target = Path(path)
    if target.suffix.lower() != suffix:
        raise ParameterError(f"{target.name} must be a file of type {suffix}: name it {target.stem}{suffix}")
    if target.is_dir():
        raise ParameterError(f"{target} is a folder: name a file in it, such as {target / ('model' + suffix)}")
    if target.exists() and not overwrite:
        raise ParameterError(
            f"{target} exists already: choose another name, or replace it with --overwrite (overwrite=True)"
        )
    if not target.parent.is_dir():
        raise ScratchError(f"the folder {target.parent} does not exist: make it, or choose another")
    return target


def write_bytes(target: Path, content: bytes) -> None:
    """Write a file atomically; after any failure, an existing file is unchanged.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_bytes(Path(folder, "model.h"), b"/* */")
    ...     [file.name for file in Path(folder).iterdir()]
    ['model.h']
    """
    try:
        with whole_file(target) as file:
            file.write(content)
    except OSError as error:
        raise cannot_write(target, error) from error
