"""Records of a long evaluation, and their formatting.

Each part is a separate JSON file, so that an interrupted evaluation continues.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from mllkm_scale.base.files.folders import writing
from mllkm_scale.base.files.whole import write_whole
from mllkm_scale.base.version import __version__

__all__ = ["Parts", "figure", "markdown_table"]

Record = dict[str, Any]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table.

    >>> print(*markdown_table(["a", "b"], [["1", "2"]]), sep="\\n")
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def figure(value: float) -> str:
    """A number with at least two significant digits.

    >>> figure(1234.5), figure(12.34), figure(1.234), figure(0.01234)
    ('1,234', '12', '1.2', '0.012')
    """
    return f"{value:,.0f}" if value >= 10.0 else f"{value:.2g}"


class Parts:
    """A folder of records by name, each with its settings.

    >>> import tempfile
    >>> parts = Parts(Path(tempfile.mkdtemp()))
    >>> parts.get("sonar-0", {"C": 100}, lambda: {"accuracy": 90.0})
    {'accuracy': 90.0}
    >>> parts.found("sonar-0", {"C": 100}), parts.found("sonar-0", {"C": 10})
    ({'accuracy': 90.0}, None)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def found(self, name: str, setting: Record) -> Record | None:
        """The record with this name, if it was made with these settings by this version."""
        try:
            stored = json.loads(self._path(name).read_text(encoding="utf-8"))
            same = (stored["setting"], stored["version"]) == (json.loads(json.dumps(setting)), __version__)
            record: Record = stored["record"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return record if same else None

    def keep(self, name: str, setting: Record, record: Record) -> None:
        """Write a record atomically."""
        text = json.dumps({"version": __version__, "setting": setting, "record": record}, indent=1)
        with writing(self.folder):
            write_whole(self._path(name), text)

    def get(self, name: str, setting: Record, make: Callable[[], Record]) -> Record:
        """The record with this name, computed now if it is missing."""
        record = self.found(name, setting)
        if record is None:
            record = make()
            self.keep(name, setting, record)
        return record

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"
