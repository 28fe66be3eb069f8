"""The text of a job file: TOML with environment variables, and the line of each key, which `tomllib` does not give."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from mllkm_scale.base.files.regular import read_regular
from mllkm_scale.errors import JobFileError

__all__ = ["JobText", "Keys", "find_lines"]

Keys = tuple[str, ...]
"""Names of tables and keys, from the top of the document."""

MOST_BYTES = 2_000_000  # of a job file
MOST_PROBLEMS = 20
LONGEST_STATEMENT = 500  # lines; a statement is parsed once per line
_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{([^}]*)\}?")
_REMEDIES = {
    "Invalid value": ": put text in quotes, and write true and false in small letters",
    "Unterminated string": ": end it with the quotes that it begins with",
    "Invalid statement": ": write key = value, or [table]",
}


def find_lines(text: str) -> dict[Keys, list[int]]:
    """The lines (from 1) of each key and table; those of () begin a statement without an end.

    A statement ends with the first line at which `tomllib` accepts it.

    >>> find_lines("[data]\\npath = '''\\nx = 1'''\\n[output]\\nrun = 'r'\\n")
    {('data',): [1], ('data', 'path'): [2], ('output',): [4], ('output', 'run'): [5]}
    """
    lines: dict[Keys, list[int]] = {}
    table: Keys = ()
    statement, first = "", 1
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        statement += f"{line}\n"
        try:
            parsed = tomllib.loads(statement)
        except (ValueError, RecursionError):
            if number - first < LONGEST_STATEMENT:
                continue
            break
        header = statement.lstrip().startswith("[")
        for keys in _leaves(parsed, () if header else table):
            table = keys if header else table
            lines.setdefault(keys, []).append(first)
        statement, first = "", number + 1
    return lines | ({(): [first]} if statement else {})


def _leaves(tables: dict[str, Any], above: Keys) -> Iterator[Keys]:
    for key, value in tables.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key)


class JobText:
    """The contents of a job file: its tables, its path, and its problems.

    Raises
    ------
    JobFileError
        If the file cannot be read, or is not TOML.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._problems: dict[Keys, str] = {}
        self._text = _read(path)
        self.tables: dict[str, Any] = self._expanded(self._parsed(), ())

    def table(self, name: str) -> dict[str, Any]:
        """The keys of a table; none if it is missing or not a table."""
        found = self.tables.get(name)
        return found if isinstance(found, dict) else {}

    def line(self, *keys: str) -> int:
        """The line of a key; of its table if the key is missing, and 1 if the table is missing, too."""
        for end in range(len(keys), 0, -1):
            below = [lines[0] for known, lines in self._lines.items() if known[:end] == keys[:end]]
            if below:
                return self._lines.get(keys[:end], below)[0]
        return 1

    def problem(self, message: str, *keys: str) -> None:
        """Record a problem of a key or a table; only the first problem of each is reported."""
        if not any(keys[:end] in self._problems for end in range(1, len(keys) + 1)):
            self._problems[keys] = message

    def has_problem(self, *keys: str) -> bool:
        """Whether a key or a table, or a key in the table, has a problem."""
        return any(known[: len(keys)] == keys for known in self._problems)

    def require_no_problem(self) -> None:
        """Raise a JobFileError with one line for each problem, in the order of the lines."""
        if self._problems:
            raise self._error([(self.line(*keys), message) for keys, message in self._problems.items()])

    @cached_property
    def _lines(self) -> dict[Keys, list[int]]:
        return find_lines(self._text)

    def _error(self, problems: list[tuple[int, str]]) -> JobFileError:
        problems.sort()
        lines = [f"{self.path}:{line}: {' '.join(message.split())}" for line, message in problems[:MOST_PROBLEMS]]
        if len(problems) > MOST_PROBLEMS:
            lines.append(f"{self.path}: {len(problems) - MOST_PROBLEMS} more problems: correct these first")
        return JobFileError("\n".join(lines))

    def _parsed(self) -> dict[str, Any]:
        try:
            return tomllib.loads(self._text)
        except ValueError as error:  # not TOML, or more digits than Python reads
            message = str(error)
        except RecursionError:
            message = "Brackets are nested too deeply"
        twice = {keys: lines for keys, lines in self._lines.items() if len(lines) > 1}
        if message.startswith("Cannot") and twice:
            again = [(at[1], f"{'.'.join(keys)} is also in line {at[0]}: remove one") for keys, at in twice.items()]
            raise self._error(again)
        place = _PLACE.fullmatch(message)
        what, line, column = place.groups() if place else (message, None, None)
        what = f"{what[0].lower()}{what[1:]}" + (f" (column {column})" if column else "")
        remedy = next((text for start, text in _REMEDIES.items() if message.startswith(start)), "")
        raise self._error([(int(line or self._lines.get((), [1])[0]), f"this is not TOML: {what}{remedy}")])

    def _expanded(self, value: Any, keys: Keys) -> Any:
        """A value with ${NAME} replaced by the environment variable, in every text that it holds."""
        if isinstance(value, dict):
            return {name: self._expanded(item, (*keys, name)) for name, item in value.items()}
        if isinstance(value, list):
            return [self._expanded(item, keys) for item in value]
        if isinstance(value, int) and value.bit_length() > 63:
            self.problem(f"{keys[-1]} is too large: the integers of TOML have 64 bits", *keys)
        if not isinstance(value, str):
            return value
        if "\0" in value:
            self.problem(f"{keys[-1]} has a NUL character: remove it", *keys)
        for match in _VARIABLE.finditer(value):
            name = match[1]
            if not match[0].endswith("}") or not name:
                self.problem(f"{value!r}: write an environment variable as ${{NAME}}", *keys)
            elif name not in os.environ:
                self.problem(f"the environment variable {name} is not set: export {name}=...", *keys)
        return _VARIABLE.sub(lambda match: os.environ.get(match[1], match[0]), value)


def _read(path: Path) -> str:
    try:
        content = read_regular(path, JobFileError, MOST_BYTES)
    except OSError as error:
        remedy = "check the path" if isinstance(error, FileNotFoundError) else "name a file that can be read"
        raise JobFileError(f"{path}: cannot be read ({error.strerror or error}): {remedy}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise JobFileError(f"{path}:{line}: not a text in UTF-8: a job file is TOML, see mllkm run --help") from None
