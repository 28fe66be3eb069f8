"""HTML from templates: every text of the user is escaped, and the file appears whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mllkm_scale.errors import ParameterError, ScratchError
from mllkm_scale.run.whole_files import write_whole

__all__ = ["render", "write_page"]


def render(template: str, **values: Any) -> str:
    """A page from one of the templates of this package."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("mllkm_scale.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def write_page(target: Path, text: str) -> Path:
    """Write a page; returns where."""
    if target.is_dir():
        raise ParameterError(f"{target} is a folder: name a file such as {target / 'report.html'}")
    try:
        write_whole(target, text.encode("utf-8", "replace").decode("utf-8"))  # names of files need not be text
    except OSError as error:
        raise ScratchError(
            f"{target} cannot be written ({error.strerror or error}): name a file in a folder that exists and can be"
            " written"
        ) from error
    return target
