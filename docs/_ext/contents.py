"""What the site makes of Markdown that is read as it is elsewhere: a sidebar, and titles of pages in links.

A heading of the first page is a caption of the sidebar, and the pages that its table links to are the entries: there is
one table of contents. A link that shows the name of a file, such as [data.md](data.md), shows the title of the page.
"""

from __future__ import annotations

import re

from sphinx.application import Sphinx

SECTION = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| \[([^\]]+)\]\(([\w/-]+)\.md\)", re.MULTILINE)

NAMED = re.compile(r"\[[\w/.-]+\.md\](?=\([\w/.-]+\.md)")


def sections(text: str) -> dict[str, list[str]]:
    """Captions, and the entries of each: a title and a page."""
    found = {heading: ROW.findall(body) for heading, body in SECTION.findall(text)}
    return {heading: [f"{title} <{page}>" for title, page in rows] for heading, rows in found.items() if rows}


def show_titles(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = NAMED.sub("[]", source[0])


def add_toctrees(app: Sphinx, name: str, source: list[str]) -> None:
    if name != app.config.root_doc:
        return
    for caption, entries in sections(source[0]).items():
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *entries, "```", ""])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", show_titles)
    app.connect("source-read", add_toctrees)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
