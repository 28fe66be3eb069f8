"""What the documentation says about the code is still so: links, parameters, defaults, exit codes, commands."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from mllkm_scale import errors
from mllkm_scale.cli import cli
from mllkm_scale.params import defaults

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    ROOT / "jobs" / "README.md",
    ROOT / "cluster" / "README.md",
    *sorted(DOCS.rglob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_the_index_lists_every_page() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    names = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")]
    assert [name for name in names if f"]({name})" not in index] == ["index.md"]


def test_pictures_are_small_and_shown() -> None:
    texts = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for picture in (DOCS / "images").iterdir():
        assert f"images/{picture.name})" in texts, picture.name
        assert picture.stat().st_size < 700_000, picture.name


def test_the_training_page_lists_every_parameter_with_its_default() -> None:
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    for name, default in defaults().items():
        shown = f'"{default}"' if isinstance(default, str) else default
        assert f"| `{name}` | `{shown}` |" in text, name


def test_the_training_page_lists_every_error_with_its_exit_code() -> None:
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    for name in set(errors.__all__) - {"MLLKMError"}:
        code = getattr(errors, name).exit_code
        assert re.search(rf"^\| {code}[^|]*\| `{name}` \|", text, re.MULTILINE), name


def test_the_readme_lists_every_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in cli.commands if f"| `mllkm {name}" not in text] == []


def test_the_architecture_page_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for name in re.findall(r"`([\w/]+\.py)`", text):
        assert (ROOT / "mllkm_scale" / name).exists(), name


def test_the_architecture_page_lists_every_folder_of_the_package() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listing = text.split("```text\nmllkm_scale/\n")[1].split("```")[0]
    listed, parent = set(), Path()
    for indent, name in re.findall(r"^( +)(\w+)/ ", listing, re.MULTILINE):
        parent = Path(name) if len(indent) == 2 else parent
        listed.add(parent if len(indent) == 2 else parent / name)
    package = ROOT / "mllkm_scale"
    assert listed == {file.parent.relative_to(package) for file in package.rglob("*.py")} - {Path()}


def test_no_folder_of_the_package_has_more_than_twenty_files() -> None:
    folders = Counter(file.parent for file in (ROOT / "mllkm_scale").rglob("*.py"))
    assert {str(folder): count for folder, count in folders.items() if count > 20} == {}
