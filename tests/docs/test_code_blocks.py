"""Every code block of the documentation runs: Python, and the command lines that begin with mllkm.

The blocks of a page are run from top to bottom in one folder, and share their variables, as they would for a reader.
Lines of other programs are few, and `ELSEWHERE` says of each what runs it, or why nothing does.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from mllkm_scale.cli import cli

ROOT = Path(__file__).parents[2]
FOLDERS = ("", "jobs", "cluster")  # those with a README
PAGES = [
    *(ROOT / folder / "README.md" for folder in FOLDERS),
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
KNOWN = {"python", "console", "sh", "text", "toml", "c"}  # C is compiled and run by tests/export
DIRECTIVES = {"names", "commands"}  # of the site: their content is made when it is built
FENCE = re.compile(r"^```(\{?\w*\}?)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ELSEWHERE = {
    "make": "continuous integration runs it",
    "pip": "it would change the environment that the tests run in",
    ".": "it enters an environment that make has made",
    "export": "it names a folder of the reader",
    ".venv/bin/python": "jobs on large data, which take minutes to hours",
    "cluster/scheduler-file.sh": "tests/cluster runs it",
    "cluster/ssh.sh": "tests/cluster runs it, with a stand-in for ssh",
    "jobs/submit/slurm.sh": "tests/cluster runs it, with stand-ins for SLURM",
    "jobs/submit/kubernetes.sh": "tests/cluster runs it, with a stand-in for kubectl",
    "kubectl": "it needs a Kubernetes cluster",
    "podman": "tests/cluster runs the steps of the image as a script",
    "dask": "processes that do not end; tests/cluster starts them by the script",
}


@dataclass(frozen=True)
class CodeBlock:
    """A fenced block: its language, its text, and the line of the page that its text begins on."""

    language: str
    text: str
    line: int


def code_blocks(text: str) -> Iterator[CodeBlock]:
    for match in FENCE.finditer(text):
        yield CodeBlock(match[1], match[3], text.count("\n", 0, match.start(3)) + 1)


def run_python(block: CodeBlock, page: str, variables: dict[str, object]) -> None:
    code = compile("\n" * (block.line - 1) + block.text, page, "exec")
    exec(code, variables)


def command_lines(block: CodeBlock) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; one that ends with a backslash goes on in the next."""
    number, parts = block.line, []
    for offset, line in enumerate(block.text.splitlines(), block.line):
        number = number if parts else offset
        parts.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            yield number, " ".join(parts)
            parts = []


def run_commands(block: CodeBlock, page: str) -> None:
    for number, line in command_lines(block):
        program, *arguments = shlex.split(line, comments=True) or [""]
        if program == "mllkm":
            result = CliRunner().invoke(cli, arguments)
            assert result.exit_code == 0, f"{page}:{number}: {line}\n{result.output}"
        elif program == "mkdir":
            Path(*arguments).mkdir()
        else:
            assert not program or program in ELSEWHERE, f"{page}:{number}: nothing runs {line}"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_a_block_knows_its_language_and_line() -> None:
    blocks = list(code_blocks("# Title\n\n```sh\nmake\n```\ntext\n```python\na = 1\nb = 2\n```\n"))
    assert blocks == [CodeBlock("sh", "make\n", 4), CodeBlock("python", "a = 1\nb = 2\n", 8)]


def test_a_command_goes_on_after_a_backslash() -> None:
    block = CodeBlock("sh", "cluster/ssh.sh -n 2 -- \\\n    mllkm train a.h5\nmake\n", 7)
    assert list(command_lines(block)) == [(7, "cluster/ssh.sh -n 2 --      mllkm train a.h5"), (9, "make")]


def test_a_line_that_nothing_runs_is_found() -> None:
    with pytest.raises(AssertionError, match=r"page\.md:3: nothing runs rm"):
        run_commands(CodeBlock("sh", "rm -r run\n", 3), "page.md")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_have_a_language_that_says_whether_they_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = list(code_blocks(text))
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(blocks)
    assert {block.language for block in blocks} <= KNOWN | {f"{{{name}}}" for name in DIRECTIVES}


@pytest.mark.usefixtures("short_trainings")
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_run(page: Path, working_folder: Callable[[str], Path]) -> None:
    text = page.read_text(encoding="utf-8")
    folder = working_folder(text)
    for job in page.parent.glob("*.toml"):
        if page.parent != ROOT:
            shutil.copyfile(job, folder / job.name)
    variables: dict[str, object] = {"__name__": "__main__"}
    for block in code_blocks(text):
        if block.language == "python":
            run_python(block, page.name, variables)
        elif block.language in ("console", "sh"):
            run_commands(block, page.name)
