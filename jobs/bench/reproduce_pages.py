"""Writes tables and pictures of the pages on the paper's experiments from the output of `mllkm reproduce`.

    python jobs/bench/reproduce_pages.py [--results reproduced]

A table is between the marks <!-- NAME --> and <!-- /NAME --> of its page, and pictures are in docs/images. They are
replaced if their files exist.
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path

from scale_page import ROOT, filled

PAGES = {"table2": "table2.md"} | dict.fromkeys(("costs", "anchors", "maps", "memory", "gammas"), "reviewers.md")
PICTURES = ("figure1", "figure2", "table2-ranks", "costs", "anchors", "maps", "memory", "gammas")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=ROOT / "reproduced")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    arguments = parser.parse_args()
    for name, page in PAGES.items():
        for found in arguments.results.glob(f"*/{name}.md"):
            path = arguments.docs / page
            text = found.read_text(encoding="utf-8").split("\n", 2)[2].strip("\n")  # the page has its own title
            text = re.sub("^## ", "### ", text, flags=re.MULTILINE)
            path.write_text(filled(path.read_text(encoding="utf-8"), name, ["", text, ""]), encoding="utf-8")
            print(f"{name}: {path}")
    for name in PICTURES:
        for found in arguments.results.glob(f"*/{name}.png"):
            shutil.copyfile(found, arguments.docs / "images" / found.name)
            print(f"{name}: {arguments.docs / 'images' / found.name}")


if __name__ == "__main__":
    main()
