"""run.log: what the package logs while a training runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mllkm_scale.base.regular_files import open_to_append
from mllkm_scale.printable import printable

__all__ = ["LOGGER", "log_to"]

LOGGER = logging.getLogger("mllkm_scale")
LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"


class _Printable(logging.Formatter):
    """Lines in which control characters are escaped: messages name files and data sets."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n")


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Block in which what the package logs, from level INFO on, is appended to a file as well.

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
