"""The files that grow line by line: history.jsonl, stream.jsonl and run.log.

history.jsonl and stream.jsonl hold the rounds of a training run, or the reports of a stream, one JSON object per line.
Versions of the package differ in the fields of a round. A missing field has its default; an unknown field is ignored,
but stays in the file. The history is only a record: a training run is resumed from its checkpoint. run.log holds the
log messages of the package.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

import msgspec

from mllkm_scale.base.events import Epoch, Round, Streamed, event_fields
from mllkm_scale.base.files.folders import reading, writing
from mllkm_scale.base.files.regular import open_to_append, read_regular
from mllkm_scale.base.files.whole import write_whole
from mllkm_scale.base.schemas import parse_json
from mllkm_scale.errors import DataError
from mllkm_scale.printable import printable

__all__ = ["LOGGER", "History", "log_to"]

LOGGER = logging.getLogger("mllkm_scale")
LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"
Numbered = TypeVar("Numbered", Round, Streamed, Epoch)
MOST_HISTORY_BYTES = 1_000_000_000


class _Printable(logging.Formatter):
    """Lines in which control characters are escaped: messages name files and data sets."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n")


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Context in which log messages of the package, from level INFO on, are also appended to a file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with log_to(Path(folder, "run.log")):
    ...         LOGGER.info("tile %d was made again", 7)
    ...     Path(folder, "run.log").read_text().split(maxsplit=2)[2]
    'INFO tile 7 was made again\\n'
    """
    handler = logging.StreamHandler(open_to_append(path))
    handler.setFormatter(_Printable(LOG_FORMAT))
    handler.setLevel(logging.INFO)
    level_before = LOGGER.level
    LOGGER.addHandler(handler)
    if LOGGER.getEffectiveLevel() > logging.INFO:
        LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level_before)
        handler.close()
        handler.stream.close()


class History(Generic[Numbered]):
    """Numbered events in a file of a run folder; it is opened by the first `append`, and closed by `close`."""

    def __init__(self, path: Path, kind: type[Numbered]) -> None:
        self.path = path
        self._kind: type[Numbered] = kind
        self._file: IO[str] | None = None

    def append(self, event: Numbered) -> None:
        """Add an event, and flush it."""
        with writing(self.path.parent):
            if self._file is None:
                self._file = open_to_append(self.path)
            self._file.write(json.dumps(event_fields(event), allow_nan=False) + "\n")
            self._file.flush()

    def read(self) -> tuple[Numbered, ...]:
        """The events up to the first damaged line; numbers that were not finite are nan."""
        return tuple(event for _, event in self._intact())

    def cut(self, last_number: int) -> tuple[Numbered, ...]:
        """Remove the events after `last_number`, and an incomplete line; return the remaining events."""
        kept = [(line, event) for line, event in self._intact() if event.number <= last_number]
        self.close()
        with writing(self.path.parent):
            write_whole(self.path, "".join(f"{line}\n" for line, _ in kept))
        return tuple(event for _, event in kept)

    def close(self) -> None:
        """Close the file; the next `append` opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _intact(self) -> list[tuple[str, Numbered]]:
        """The lines of the file with their events, up to the first damaged line."""
        if not self.path.exists():
            return []
        with reading(self.path.parent):
            content = read_regular(self.path, DataError, MOST_HISTORY_BYTES)
        lines = content.decode("utf-8", errors="replace").splitlines()
        intact = []
        for line in lines:
            event = _event_from(line, self._kind)
            if event is None:
                break
            intact.append((line, event))
        return intact


def _event_from(line: str, kind: type[Numbered]) -> Numbered | None:
    try:
        found = parse_json(line)
        values = {field.name: found[field.name] for field in dataclasses.fields(kind) if field.name in found}
        for field in dataclasses.fields(kind):
            if field.type == "float" and values.get(field.name, 0.0) is None:
                values[field.name] = math.nan
        event = msgspec.convert(values, kind)
    except (msgspec.ValidationError, ValueError, TypeError, OverflowError):  # no JSON; no object, or a bad field
        return None
    return event if event.number >= 0 and _in_range(event) else None


def _in_range(event: Any) -> bool:
    """Whether all counts are in range: the report draws and adds them."""
    counts = [value for value in vars(event).values() if isinstance(value, int)]
    return all(0 <= count <= 2**62 for count in counts)
