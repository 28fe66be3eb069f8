from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.run.job.text import JobText, Keys, find_lines

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
    """Writes a random document, and remembers the line on which each statement begins."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.text = draw, ""
        self.statements: dict[Keys, int] = {}

    def pick(self, choices: list[str]) -> str:
        return self.draw(st.sampled_from(choices))

    def note(self, keys: Keys) -> None:
        self.statements[keys] = self.text.count("\n") + 1

    def document(self) -> None:
        self.gap()
        self.pairs(())
        for number in range(self.draw(st.integers(0, 3))):
            self.header((f"table{number}",), f"[ table{number} ]")
            if self.draw(st.booleans()):
                self.header((f"table{number}", "sub"), f"[table{number} . 'sub']")

    def header(self, table: Keys, written: str) -> None:
        self.note(table)
        self.text += written
        self.end()
        self.pairs(table)

    def pairs(self, table: Keys) -> None:
        for written in self.draw(st.lists(st.sampled_from(sorted(NAMES)), unique=True, max_size=4)):
            dotted = self.draw(st.sampled_from([[], [], ["7"], ["'x = 1'", "C"]]))
            self.note((*table, NAMES[written], *(NAMES[name] for name in dotted)))
            self.pair([written, *dotted], depth=0)
            self.end()

    def pair(self, written: list[str], depth: int) -> None:
        self.text += " . ".join(written) + self.pick([" = ", "=", "\t= "])
        self.value(depth)

    def value(self, depth: int) -> None:
        kind = self.pick(["plain", "text", "lines"] + (["array", "table"] if depth < 2 else []))
        if kind == "plain":
            self.text += self.pick(PLAIN)
        elif kind == "text":
            self.text += self.pick([f'"{self.decoy()}\\""', f"'{self.decoy()}'".replace("'''", "''")])
        elif kind == "lines":
            body = "\n".join(self.decoy() for _ in range(self.draw(st.integers(1, 4))))
            self.text += self.pick([f'"""{body}\\""""""', f'"""{body}"""', f"'''{body}'''"])
        elif kind == "array":
            self.array(depth)
        else:
            self.inline_table(depth)

    def decoy(self) -> str:
        return self.pick(DECOYS).replace("'", "")

    def array(self, depth: int) -> None:
        self.text += "["
        for place in range(self.draw(st.integers(0, 3))):
            self.text += ("," if place else "") + self.pick(GAPS)
            self.value(depth + 1)
            self.text += self.pick(GAPS)
        self.text += "]"

    def inline_table(self, depth: int) -> None:
        self.text += "{ "
        for place, written in enumerate(self.draw(st.lists(st.sampled_from(sorted(NAMES)), unique=True, max_size=3))):
            self.text += ", " if place else ""
            self.pair([written], depth + 1)
        self.text += "}"

    def end(self) -> None:
        self.text += self.pick(["\n", " # C = 1\n", "\n\n"])
        self.gap()

    def gap(self) -> None:
        self.text += self.pick(GAPS)


@st.composite
def documents(draw: Any) -> tuple[str, dict[Keys, int]]:
    writer = Writer(draw)
    writer.document()
    return writer.text, writer.statements


def leaves(value: Any, keys: Keys = ()) -> set[Keys]:
    if not isinstance(value, dict) or not value:
        return {keys}
    return {found for name, item in value.items() for found in leaves(item, (*keys, name))}


def statement_of(keys: Keys, statements: dict[Keys, int]) -> int:
    """The line of the statement that gives these keys, perhaps within an inline table."""
    return next(statements[keys[:end]] for end in range(len(keys), 0, -1) if keys[:end] in statements)


@given(documents(), st.sampled_from(["\n", "\r\n"]))
def test_every_key_is_found_on_the_line_of_its_statement_and_nothing_else_is(
    document: tuple[str, dict[Keys, int]], line_end: str
) -> None:
    text, statements = document
    found = find_lines(text.replace("\n", line_end))
    assert found == {keys: [statement_of(keys, statements)] for keys in found}
    headers = {keys for keys in statements if keys[0].startswith("table") and keys not in leaves(tomllib.loads(text))}
    assert set(found) - headers == leaves(tomllib.loads(text)) - {()}


@given(documents(), st.integers(0, 1000))
def test_of_a_text_cut_short_the_lines_before_the_cut_are_told(
    document: tuple[str, dict[Keys, int]], length: int
) -> None:
    text, _ = document
    whole, found = find_lines(text), find_lines(text[:length])
    last = max((line for lines in found.values() for line in lines), default=1)
    assert last <= text[:length].count("\n") + 1
    assert all(found.get(keys) == lines for keys, lines in whole.items() if lines[0] < last)


@given(st.text(alphabet="[]{}'\"=.,# \n\\ab1", max_size=40))
def test_any_text_is_survived(text: str) -> None:
    found = find_lines(text)
    assert all(1 <= line <= text.count("\n") + 1 for lines in found.values() for line in lines)


def test_a_key_given_twice_is_told_with_both_lines() -> None:
    found = find_lines("[a]\nx = 1\n\n[b]\nx = 1\na.x = 2\n[a]\nx = 3\n")
    assert {keys: lines for keys, lines in found.items() if len(lines) > 1} == {("a",): [1, 7], ("a", "x"): [2, 8]}


def test_a_table_stands_where_its_header_is_even_if_a_part_of_it_comes_before() -> None:
    assert find_lines("[a.b]\nx = 1\n[a]\ny = 1\n")[("a",)] == [3]


@pytest.mark.parametrize("quotes", ['"""', "'''"])
def test_a_string_that_never_ends_is_told_by_its_first_line(quotes: str) -> None:
    assert find_lines(f"a = 1\nb = {quotes}\nc = 2\n")[()] == [2]


def test_a_statement_of_very_many_lines_is_not_followed_to_its_end() -> None:
    found = find_lines("a = 1\nb = [\n" + "1,\n" * 10_000 + "]\nc = 1\n")
    assert found == {("a",): [1], (): [2]}


def test_what_is_missing_is_told_by_the_line_of_its_table(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("\n\n[data]\nx = 1\nbudget.memory = 1\n")
    text = JobText(tmp_path / "job.toml")
    assert (text.line("data", "path"), text.line("data", "budget"), text.line("output", "run")) == (3, 5, 1)
