"""On which line of a TOML document each of its keys stands, which `tomllib` does not say.

A second, shallow reading of a text: it follows tables, keys, strings and brackets, and leaves values alone. Of a text
that `tomllib` refuses it tells what stands before the place that it cannot follow.
"""

from __future__ import annotations

import re
import tomllib
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

__all__ = ["KeyPath", "Lines", "find_lines", "path_text"]

KeyPath = tuple[str | int, ...]
"""Names of tables and keys from the top; a number is the place in an array."""

_BASIC, _LITERAL = r'"(?:[^"\\\n]|\\.)*"', r"'[^'\n]*'"
_NAME = rf"(?:[A-Za-z0-9_-]+|{_BASIC}|{_LITERAL})"
_KEY = re.compile(rf"{_NAME}(?:[ \t]*\.[ \t]*{_NAME})*")
_SHORT = re.compile(rf"{_BASIC}|{_LITERAL}")
# Up to two more quotes may stand before the three that end a multi-line string.
_LONG = re.compile(r'"""(?:[^\\]|\\.)*?""""{0,2}|' + r"'''.*?''''{0,2}", re.DOTALL)
_PLAIN = re.compile(r"[^\s,\]}#\"'\[{=][^,\]}#\n]*")  # numbers, booleans and dates, which may hold a blank
_BLANK = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[\s]|#[^\n]*)*")  # what may stand between the parts of an array, or two statements
_COMMENT = re.compile(r"(?:#[^\n]*)?")
_LONG_QUOTES = ('"""', "'''")


@dataclass
class Lines:
    """Line (from 1) of every table, key and array element; `repeated` are (path, first line, later line).

    `unfinished` is the line on which a multi-line string begins that never ends.
    """

    lines: dict[KeyPath, int] = field(default_factory=dict)
    repeated: list[tuple[KeyPath, int, int]] = field(default_factory=list)
    unfinished: int | None = None

    def of(self, *path: str | int) -> int:
        """The line of a key; of the table around it if it is not there, and 1 if that is not there either."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return 1


def find_lines(text: str) -> Lines:
    """The line of every table, key and array element of a TOML document.

    Examples
    --------
    >>> found = find_lines("[data]\\npath = '''\\nx = 1'''\\n\\n[cluster]\\nkind = 'local'\\n")
    >>> found.of("data", "path"), found.of("cluster", "kind"), found.of("data", "x")
    (2, 6, 1)
    """
    reader = _Reader(text.replace("\r\n", "\n"))
    with suppress(_NotFollowed):
        reader.document()
    return reader.found


def path_text(path: KeyPath) -> str:
    """A path as it would be written in a document.

    >>> path_text(("data", "path")), path_text(("a b", 0, "c"))
    ('data.path', '"a b"[0].c')
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{part}"'
            text += f".{name}" if text else name
    return text


class _NotFollowed(Exception):
    """The text is no TOML from here on."""


class _Reader:
    """A place in the text that moves on; `path` parts are the names that `tomllib` gives."""

    def __init__(self, text: str) -> None:
        self.text, self.place = text, 0
        self.line, self.counted = 1, 0  # the line of place `counted`
        self.found = Lines()
        self.given: dict[KeyPath, int] = {}  # keys with a value and tables with a header, not those implied
        self.arrays: dict[KeyPath, int] = {}  # number of tables so far of each array of tables

    def document(self) -> None:
        table: KeyPath = ()
        self.skip(_GAP)
        while self.place < len(self.text):
            if self.text.startswith("[[", self.place):
                table = self.header("[[", "]]")
            elif self.text.startswith("[", self.place):
                table = self.header("[", "]")
            else:
                self.pair(table)
            self.skip(_BLANK)
            self.skip(_COMMENT)
            if self.place < len(self.text):
                self.take("\n")
            self.skip(_GAP)

    def header(self, opening: str, closing: str) -> KeyPath:
        line = self.line_here()
        self.take(opening)
        self.skip(_BLANK)
        *outer, last = self.key()
        self.skip(_BLANK)
        self.take(closing)
        table = (*self.inside(outer), last)
        if opening == "[[":
            number = self.arrays.get(table, 0)
            self.arrays[table] = number + 1
            self.see((*table, number), line)
        elif table not in self.arrays:
            self.give(table, line)
        return self.inside([*outer, last])

    def inside(self, names: list[str]) -> KeyPath:
        """Where the names of a header lead: in an array of tables, to its last one."""
        path: KeyPath = ()
        for name in names:
            path = (*path, name)
            if path in self.arrays:
                path = (*path, self.arrays[path] - 1)
        return path

    def pair(self, table: KeyPath) -> None:
        line = self.line_here()
        path = (*table, *self.key())
        self.give(path, line)
        self.skip(_BLANK)
        self.take("=")
        self.skip(_BLANK)
        self.value(path)

    def value(self, path: KeyPath) -> None:
        if self.text.startswith("[", self.place):
            self.array(path)
        elif self.text.startswith("{", self.place):
            self.inline_table(path)
        elif self.text.startswith(_LONG_QUOTES, self.place):
            line = self.line_here()
            if not self.skip(_LONG):
                self.found.unfinished = line
                raise _NotFollowed
        elif self.text.startswith(('"', "'"), self.place):
            self.skip(_SHORT, needed=True)
        else:
            self.skip(_PLAIN, needed=True)

    def array(self, path: KeyPath) -> None:
        self.take("[")
        self.skip(_GAP)
        number = 0
        while not self.text.startswith("]", self.place):
            element = (*path, number)
            self.see(element, self.line_here())
            self.value(element)
            number += 1
            self.skip(_GAP)
            if not self.text.startswith("]", self.place):
                self.take(",")
                self.skip(_GAP)
        self.take("]")

    def inline_table(self, path: KeyPath) -> None:
        self.take("{")
        self.skip(_GAP)
        while not self.text.startswith("}", self.place):
            self.pair(path)
            self.skip(_GAP)
            if not self.text.startswith("}", self.place):
                self.take(",")
                self.skip(_GAP)
        self.take("}")

    def key(self) -> list[str]:
        written = self.skip(_KEY, needed=True)
        names, rest = [], self.parsed(f"{written} = 0")
        while isinstance(rest, dict):
            name, rest = next(iter(rest.items()))
            names.append(name)
        return names

    def parsed(self, statement: str) -> Any:
        try:
            return tomllib.loads(statement)
        except tomllib.TOMLDecodeError:  # such as an escape that there is not
            raise _NotFollowed from None

    def give(self, path: KeyPath, line: int) -> None:
        if path in self.given:
            self.found.repeated.append((path, self.given[path], line))
        else:
            self.given[path] = self.found.lines[path] = line
        self.see(path, line)

    def see(self, path: KeyPath, line: int) -> None:
        """Note the line, and that of the tables around it if this is the first that is seen of them."""
        for end in range(1, len(path) + 1):
            self.found.lines.setdefault(path[:end], line)

    def line_here(self) -> int:
        self.line += self.text.count("\n", self.counted, self.place)
        self.counted = self.place
        return self.line

    def skip(self, pattern: re.Pattern[str], *, needed: bool = False) -> str:
        match = pattern.match(self.text, self.place)
        if match is None:
            if needed:
                raise _NotFollowed
            return ""
        self.place = match.end()
        return match[0]

    def take(self, sign: str) -> None:
        if not self.text.startswith(sign, self.place):
            raise _NotFollowed
        self.place += len(sign)
