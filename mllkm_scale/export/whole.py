"""Exported files: they appear whole or not at all, and replace nothing unless asked to."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mllkm_scale.base.whole_files import cannot_write, whole_file
from mllkm_scale.errors import ParameterError, ScratchError

__all__ = ["ExportSummary", "free_target", "write_bytes"]


@dataclass(frozen=True)
class ExportSummary:
    """What an export has written.

    Attributes
    ----------
    paths : tuple of Path
        The files.
    form : str
        ``"kernels"``, ``"tables"`` of a component-wise machine, or ``"integers"``.
    constant_bytes : int
        Numbers of the machine, as they lie in the memory of whoever runs it.
    deviation : float
        How far the form may be off by itself: 0 for kernels, the proved bound for tables, rounding aside; for integers
        the proved bound with all rounding.
    stack_bytes : int, optional
        Arrays on the stack of a C header.
    """

    paths: tuple[Path, ...]
    form: str
    constant_bytes: int
    deviation: float
    stack_bytes: int | None = None

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(path.stat().st_size for path in self.paths)


def free_target(path: str | os.PathLike[str], suffix: str, *, overwrite: bool) -> Path:
    """The path, if a file of that name may be written."""
    target = Path(path)
    if target.suffix.lower() != suffix:
        raise ParameterError(f"{target.name} is to be a file of type {suffix}: name it {target.stem}{suffix}")
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
    """Write a file beside its name and rename it; after any failure, what stood there before stands there still.

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
