"""HTML from templates: every text of the user is escaped, and the file appears whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mllkm_scale.base.whole_files import write_whole
from mllkm_scale.errors import ParameterError, ScratchError
from mllkm_scale.printable import printable

__all__ = ["render", "require_page", "write_page"]


def render(template: str, **values: Any) -> str:
    """A page from one of the templates of this package."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("mllkm_scale.report"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def _shown(value: Any) -> Any:
    """What a place of a template is filled with: text without control characters; what is made of HTML stays."""
    return printable(value, keep="\n\t") if type(value) is str else value


def require_page(target: Path) -> None:
    """Refuse a place where no file can be, before pictures are drawn for it."""
    if target.is_dir():
        raise ParameterError(f"{target} is a folder: name a file such as {target / 'report.html'}")
    if not target.parent.is_dir():
        raise ScratchError(f"{target} cannot be written: the folder {target.parent} does not exist; make it first")


def write_page(target: Path, text: str) -> Path:
    """Write a page; returns where."""
    try:
        write_whole(target, text.encode("utf-8", "replace").decode("utf-8"))  # names of files need not be text
    except OSError as error:
        raise ScratchError(
            f"{target} cannot be written ({error.strerror or error}): free space, change permissions, or name another"
            " file with --out"
        ) from error
    return target
