"""Every code block of the documentation runs: Python, and the command lines that begin with mllkm.

The blocks of a page are run from top to bottom in one folder, and share their variables, as they would for a reader.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from mllkm_scale.cli import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
KNOWN = {"python", "console", "sh", "text", "toml"}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class CodeBlock:
    """A fenced block: its language, its text, and the line of the page that its text begins on."""

    language: str
    text: str
    line: int


def code_blocks(text: str) -> Iterator[CodeBlock]:
    for match in FENCE.finditer(text):
        yield CodeBlock(match[1], match[2], text.count("\n", 0, match.start(2)) + 1)


def run_python(block: CodeBlock, page: str, variables: dict[str, object]) -> None:
    code = compile("\n" * (block.line - 1) + block.text, page, "exec")
    exec(code, variables)


def run_commands(block: CodeBlock, page: str) -> None:
    for number, line in enumerate(block.text.splitlines(), block.line):
        program, *arguments = shlex.split(line, comments=True) or [""]
        if program == "mllkm":
            result = CliRunner().invoke(cli, arguments)
            assert result.exit_code == 0, f"{page}:{number}: {line}\n{result.output}"


def test_a_block_knows_its_language_and_line() -> None:
    blocks = list(code_blocks("# Title\n\n```sh\nmake\n```\ntext\n```python\na = 1\nb = 2\n```\n"))
    assert blocks == [CodeBlock("sh", "make\n", 4), CodeBlock("python", "a = 1\nb = 2\n", 8)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_have_a_language_that_says_whether_they_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = list(code_blocks(text))
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(blocks)
    assert {block.language for block in blocks} <= KNOWN


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_run(page: Path, working_folder: Callable[[str], Path]) -> None:
    text = page.read_text(encoding="utf-8")
    working_folder(text)
    variables: dict[str, object] = {"__name__": "__main__"}
    for block in code_blocks(text):
        if block.language == "python":
            run_python(block, page.name, variables)
        elif block.language in ("console", "sh"):
            run_commands(block, page.name)
