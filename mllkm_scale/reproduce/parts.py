"""Records of a long evaluation, and how they are told.

Each part is a JSON file of its own, so that an evaluation that was interrupted goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from mllkm_scale.base.folders import writing
from mllkm_scale.base.version import __version__
from mllkm_scale.base.whole_files import write_whole

__all__ = ["Parts", "figure", "markdown_table"]

Record = dict[str, Any]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table.

    >>> print(*markdown_table(["a", "b"], [["1", "2"]]), sep="\\n")
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def figure(value: float) -> str:
    """A number with at least two digits that count.

    >>> figure(1234.5), figure(12.34), figure(1.234), figure(0.01234)
    ('1,234', '12', '1.2', '0.012')
    """
    return f"{value:,.0f}" if value >= 10.0 else f"{value:.2g}"


class Parts:
    """A folder of records by name, each with the setting that it was made with.

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
        """The record of that name, if it was made with this setting by this version."""
        try:
            stored = json.loads(self._path(name).read_text(encoding="utf-8"))
            same = (stored["setting"], stored["version"]) == (json.loads(json.dumps(setting)), __version__)
            record: Record = stored["record"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return record if same else None

    def keep(self, name: str, setting: Record, record: Record) -> None:
        """Write a record, whole or not at all."""
        text = json.dumps({"version": __version__, "setting": setting, "record": record}, indent=1)
        with writing(self.folder):
            write_whole(self._path(name), text)

    def get(self, name: str, setting: Record, make: Callable[[], Record]) -> Record:
        """The record of that name, made now if it is not there."""
        record = self.found(name, setting)
        if record is None:
            record = make()
            self.keep(name, setting, record)
        return record

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"
