from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.run.job_lines import KeyPath, find_lines, path_text

NAMES = {  # as written, and as meant
    "path": "path",
    "C": "C",
    "7": "7",
    "with-dash": "with-dash",
    '"a b"': "a b",
    "'x = 1'": "x = 1",
    '"[data]"': "[data]",
    r'"q\"#\u0041"': 'q"#A',
    "''": "",
}
DECOYS = ["", "path = 1", "[data]", "[[t]]", "# C = 2", "]", "}", "a, b", "'", "x.y = {", "\\\\", "${HOME}"]
PLAIN = ["1", "-2.5e3", "inf", "true", "0x1F", "1979-05-27 07:32:00", "07:32:00"]
GAPS = ["", "\n", "# path = 1\n", "\t# [data]\n\n", "  "]


class Writer:
    """Writes a random document, and remembers the line of whatever it writes."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.text = draw, ""
        self.lines: dict[KeyPath, int] = {}

    def pick(self, choices: list[str]) -> str:
        return self.draw(st.sampled_from(choices))

    def note(self, path: KeyPath) -> None:
        self.lines[path] = self.text.count("\n") + 1

    def document(self) -> None:
        self.gap()
        self.pairs(())
        for number in range(self.draw(st.integers(0, 3))):
            table: KeyPath = (f"table{number}",)
            if self.draw(st.booleans()):
                self.header(table, f"[ table{number} ]")
                self.pairs(table)
                continue
            for place in range(self.draw(st.integers(1, 2))):
                self.header((*table, place), f"[[table{number}]]")
                self.pairs((*table, place))
                if self.draw(st.booleans()):
                    self.header((*table, place, "sub"), f"[table{number} . 'sub']")
                    self.pairs((*table, place, "sub"))

    def header(self, path: KeyPath, written: str) -> None:
        self.note(path)
        self.text += written
        self.end()

    def pairs(self, table: KeyPath) -> None:
        for written in self.draw(st.lists(st.sampled_from(sorted(NAMES)), unique=True, max_size=4)):
            self.pair(table, written, depth=0)
            self.end()

    def pair(self, table: KeyPath, written: str, depth: int) -> None:
        path = (*table, NAMES[written])
        dotted = self.draw(st.sampled_from([[], [], ["7"], ["'x = 1'", "C"]]))
        path = (*path, *(NAMES[name] for name in dotted))
        self.note(path)
        self.text += " . ".join([written, *dotted]) + self.pick([" = ", "=", "\t= "])
        self.value(path, depth)

    def value(self, path: KeyPath, depth: int) -> None:
        kind = self.pick(["plain", "text", "lines"] + (["array", "table"] if depth < 2 else []))
        if kind == "plain":
            self.text += self.pick(PLAIN)
        elif kind == "text":
            self.text += self.pick([f'"{self.decoy()}\\""', f"'{self.decoy()}'".replace("'''", "''")])
        elif kind == "lines":
            body = "\n".join(self.decoy() for _ in range(self.draw(st.integers(1, 4))))
            self.text += self.pick([f'"""{body}\\""""""', f'"""{body}"""', f"'''{body}'''"])
        elif kind == "array":
            self.array(path, depth)
        else:
            self.inline_table(path, depth)

    def decoy(self) -> str:
        return self.pick(DECOYS).replace("'", "")

    def array(self, path: KeyPath, depth: int) -> None:
        self.text += "["
        for place in range(self.draw(st.integers(0, 3))):
            self.text += ("," if place else "") + self.pick(GAPS)
            self.note((*path, place))
            self.value((*path, place), depth + 1)
            self.text += self.pick(GAPS)
        self.text += "]"

    def inline_table(self, path: KeyPath, depth: int) -> None:
        self.text += "{ "
        for place, written in enumerate(self.draw(st.lists(st.sampled_from(sorted(NAMES)), unique=True, max_size=3))):
            self.text += ", " if place else ""
            self.pair(path, written, depth + 1)
        self.text += "}"

    def end(self) -> None:
        self.text += self.pick(["\n", " # C = 1\n", "\n\n"])
        self.gap()

    def gap(self) -> None:
        self.text += self.pick(GAPS)


@st.composite
def documents(draw: Any) -> tuple[str, dict[KeyPath, int]]:
    writer = Writer(draw)
    writer.document()
    return writer.text, writer.lines


def paths_of(value: Any, path: KeyPath = ()) -> set[KeyPath]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {path} | {found for name, item in items for found in paths_of(item, (*path, name))}


@given(documents(), st.sampled_from(["\n", "\r\n"]))
def test_every_key_is_found_on_its_line_and_nothing_else_is(
    document: tuple[str, dict[KeyPath, int]], line_end: str
) -> None:
    text, lines = document
    found = find_lines(text.replace("\n", line_end))
    assert found.repeated == []
    assert {path: found.lines[path] for path in lines} == lines
    assert set(found.lines) == paths_of(tomllib.loads(text)) - {()}


@given(documents(), st.integers(0, 1000))
def test_of_a_text_cut_short_the_lines_before_the_cut_are_told(
    document: tuple[str, dict[KeyPath, int]], length: int
) -> None:
    text, lines = document
    found = find_lines(text[:length])
    assert all(line <= text[:length].count("\n") + 1 for line in found.lines.values())
    whole = {path: line for path, line in lines.items() if line <= text[:length].count("\n")}
    assert all(found.lines.get(path, line) == line for path, line in whole.items())


@given(st.text(alphabet="[]{}'\"=.,# \n\\ab1", max_size=40))
def test_any_text_is_survived(text: str) -> None:
    try:
        parsed = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        find_lines(text)
    else:
        assert set(find_lines(text).lines) == paths_of(parsed) - {()}


def test_a_key_given_twice_is_told_with_both_lines() -> None:
    assert find_lines("[a]\nx = 1\n\n[b]\nx = 1\na.x = 2\n[a]\nx = 3\n").repeated == [
        (("a",), 1, 7),
        (("a", "x"), 2, 8),
    ]


def test_a_table_stands_where_its_header_is_even_if_a_part_of_it_comes_before() -> None:
    assert find_lines("[a.b]\nx = 1\n[a]\ny = 1\n").lines[("a",)] == 3


def test_what_is_missing_is_told_by_the_line_of_its_table() -> None:
    found = find_lines("\n\n[data]\nx = 1\n")
    assert (found.of("data", "path"), found.of("output", "run")) == (3, 1)


@pytest.mark.parametrize("quotes", ['"""', "'''"])
def test_a_string_that_never_ends_is_told_by_its_first_line(quotes: str) -> None:
    assert find_lines(f"a = 1\nb = {quotes}\nc = 2\n").unfinished == 2


@pytest.mark.parametrize(("path", "text"), [(("a", "b"), "a.b"), (("a b", 0), '"a b"[0]'), (("",), '""')])
def test_a_path_is_written_as_in_a_document(path: KeyPath, text: str) -> None:
    assert path_text(path) == text
