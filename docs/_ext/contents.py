"""The sidebar from the first page: a heading is a caption, and the pages that its table links to are the entries.

So the first page is the one table of contents, on the site and where the Markdown files are read as they are.
"""

from __future__ import annotations

import re

from sphinx.application import Sphinx

SECTION = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| \[([^\]]+)\]\(([\w/-]+)\.md\)", re.MULTILINE)


def sections(text: str) -> dict[str, list[str]]:
    """Captions, and the entries of each: a title and a page."""
    found = {heading: ROW.findall(body) for heading, body in SECTION.findall(text)}
    return {heading: [f"{title} <{page}>" for title, page in rows] for heading, rows in found.items() if rows}


def add_toctrees(app: Sphinx, name: str, source: list[str]) -> None:
    if name != app.config.root_doc:
        return
    for caption, entries in sections(source[0]).items():
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *entries, "```", ""])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", add_toctrees)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
