"""The text of a job file as tables of values, and the problems that are found in it, each with its line.

What is wrong is collected and told at once, in the order of the lines, as ``jobs/mnist.toml:12: what and remedy``.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from mllkm_scale.errors import JobFileError
from mllkm_scale.run.job_lines import KeyPath, Lines, find_lines, path_text

__all__ = ["JobText"]

MOST_PROBLEMS = 20
_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{([^}]*)\}?")
_REMEDIES = {
    "Invalid value": "put text in quotes, and write true and false in small letters",
    "Unterminated string": "end it with the quotes that it begins with",
    "Invalid statement": "write key = value, or [table]",
}


class JobText:
    """A job file that has been read: its tables, with variables of the environment put in, and its lines.

    Attributes
    ----------
    path : pathlib.Path
        The file, as messages call it.
    tables : dict
        The document.
    lines : Lines
        Where in the file what stands.

    Raises
    ------
    JobFileError
        If it cannot be read, or is no TOML.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._problems: dict[KeyPath, tuple[int, str]] = {}
        text = _read(path)
        self.lines = self._found_lines(text)
        self.tables: dict[str, Any] = self._expanded(self._parsed(text), ())

    def problem(self, message: str, *place: str | int) -> None:
        """Note what is wrong with a key or a table; the first problem of a place is the one that is told."""
        for end in range(1, len(place) + 1):
            if place[:end] in self._problems:
                return
        self._problems[place] = (self.lines.of(*place), " ".join(message.split()))

    def has_problem(self, *place: str | int) -> bool:
        """Whether something is wrong with this key, or with a part of its value."""
        return any(known[: len(place)] == place for known in self._problems)

    def require_none(self) -> None:
        """Raise a JobFileError with one line for each problem, if there is any."""
        if self._problems:
            raise self._error()

    def _error(self) -> JobFileError:
        found = sorted(self._problems.values())
        lines = [f"{self.path}:{line}: {message}" for line, message in found[:MOST_PROBLEMS]]
        if len(found) > MOST_PROBLEMS:
            lines.append(f"{self.path}: {len(found) - MOST_PROBLEMS} more problems: correct these first")
        return JobFileError("\n".join(lines))

    def _found_lines(self, text: str) -> Lines:
        try:
            return find_lines(text)
        except RecursionError:
            raise JobFileError(f"{self.path}:1: brackets are nested too deeply: a job needs lists of numbers") from None

    def _parsed(self, text: str) -> dict[str, Any]:
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            message = str(error)
        except RecursionError:
            message = "brackets are nested too deeply"
        place = _PLACE.fullmatch(message)
        what, line, column = place.groups() if place else (message, None, None)
        if what.startswith(("Cannot", "Duplicate")) and self.lines.repeated:
            for path, first, later in self.lines.repeated:
                self._problems[(*path, later)] = (later, f"{path_text(path)} stands in line {first} too: remove one")
        else:
            at_end = self.lines.unfinished or len(text.rstrip().splitlines()) or 1
            where, spot = (int(line), f" (column {column})") if line else (at_end, "")
            remedy = "".join(f": {remedy}" for start, remedy in _REMEDIES.items() if what.startswith(start))
            self._problems[()] = (where, f"this is not TOML: {what[0].lower()}{what[1:]}{spot}{remedy}")
        raise self._error()

    def _expanded(self, value: Any, place: KeyPath) -> Any:
        """A value with ${NAME} replaced by the variable of the environment, in every text that it holds."""
        if isinstance(value, dict):
            return {name: self._expanded(item, (*place, name)) for name, item in value.items()}
        if isinstance(value, list):
            return [self._expanded(item, (*place, number)) for number, item in enumerate(value)]
        if not isinstance(value, str):
            return value
        for match in _VARIABLE.finditer(value):
            name = match[1]
            if not match[0].endswith("}") or not name:
                self.problem(f"{value!r}: write a variable of the environment as ${{NAME}}", *place)
            elif name not in os.environ:
                self.problem(f"the environment variable {name} is not set: export {name}=...", *place)
        return _VARIABLE.sub(lambda match: os.environ.get(match[1], match[0]), value)


def _read(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        remedy = "check the path" if isinstance(error, FileNotFoundError) else "name a file that can be read"
        raise JobFileError(f"{path}: cannot be read ({error.strerror or error}): {remedy}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise JobFileError(f"{path}:{line}: not a text in UTF-8: a job file is TOML, see mllkm run --help") from None
