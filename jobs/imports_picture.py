"""The folders of the package and their imports as a picture, docs/images/imports.svg, made from the code.

    python jobs/imports_picture.py [--out docs/images/imports.svg]

The order of the folders is that of the layers in pyproject.toml. Filled cells are imports between modules (from the
graph of import-linter, without imports for types only). A test compares the picture with the code.
"""

from __future__ import annotations

import argparse
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "mllkm_scale"
PICTURE = ROOT / "docs" / "images" / "imports.svg"

CELL, LEFT, TOP, MARGIN = 24, 118, 112, 20  # of the grid: a cell, the names beside it and above it, the page around it
STEPS = ((20, "#2166ac"), (5, "#6ea3d0"), (1, "#c4daec"))  # imports from so many on, and the colour of the cell
STYLE = """
      .page { fill: #ffffff; }
      .own { fill: #17508a; }
      .never { fill: #f4f4f4; }
      .line { stroke: #ffffff; stroke-width: 1.5; }
      .layer { stroke: #d6d6d6; stroke-width: 1; }
      text { fill: #1d1d1d; }
      .folder { font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 12px; fill: #17508a; }
      .small { font-size: 12px; fill: #3c3c3c; }"""


def layers() -> list[list[str]]:
    """The layers in pyproject.toml, from the interfaces down; folders of one layer do not import each other."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (stated,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [[name.strip() for name in layer.split("|")] for layer in stated]


def imports_between_folders() -> Counter[tuple[str, str]]:
    """How many imports there are from the modules of one folder, or one root module, to those of another."""
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    counts: Counter[tuple[str, str]] = Counter()
    for module in graph.modules - {PACKAGE}:
        for imported in graph.find_modules_directly_imported_by(module) - {PACKAGE}:
            pair = (module.split(".")[1], imported.split(".")[1])
            counts[pair] += pair[0] != pair[1]
    return counts


def drawn(stated: Sequence[Sequence[str]], counts: Mapping[tuple[str, str], int]) -> str:
    """The picture: a row for each folder, with the folders that it imports filled."""
    folders = [name for layer in stated for name in layer]
    layer_of = {name: place for place, layer in enumerate(stated) for name in layer}
    side = CELL * len(folders)
    width, height = LEFT + side + MARGIN, TOP + side + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="Helvetica, Arial, \'DejaVu Sans\', sans-serif" font-size="14" role="img"'
        ' aria-labelledby="title">',
        '  <title id="title">Which folder of the package imports which: all imports point down the list</title>',
        f"  <defs>\n    <style>{STYLE}\n    </style>\n  </defs>",
        f'  <rect class="page" width="{width}" height="{height}" rx="8"/>',
    ]
    for i, name in enumerate(folders):
        x, y = LEFT + CELL * i, TOP + CELL * i
        parts.append(f'  <text class="folder" x="{LEFT - 8}" y="{y + 16}" text-anchor="end">{name}</text>')
        parts.append(f'  <text class="folder" transform="translate({x + 16} {TOP - 8}) rotate(-60)">{name}</text>')
        for j, other in enumerate(folders):
            colour = _colour(counts.get((name, other), 0))
            shape = f'x="{LEFT + CELL * j}" y="{y}" width="{CELL}" height="{CELL}"'
            if i == j:
                parts.append(f'  <rect class="own line" {shape}/>')
            elif colour:
                words = f"{name} imports {other}"
                parts.append(f'  <rect class="line" fill="{colour}" {shape}><title>{words}</title></rect>')
            elif j < i or layer_of[name] == layer_of[other]:
                parts.append(f'  <rect class="never line" {shape}/>')
    for place in range(1, len(stated)):
        y = TOP + CELL * sum(map(len, stated[:place]))
        parts.append(f'  <path class="layer" d="M{MARGIN} {y} H{LEFT + side}"/>')
    parts += _legend(LEFT + CELL, TOP + side - 9 * CELL)
    return "\n".join([*parts, "</svg>\n"])


def _legend(x: int, y: int) -> list[str]:
    lines = [
        '<text class="small" x="{x}" y="{y}">Filled cells: imports of the row.</text>',
        '<text class="small" x="{x}" y="{y}">Left of the diagonal, all are empty:</text>',
        '<text class="small" x="{x}" y="{y}">imports point down the list.</text>',
    ]
    parts = ["  " + line.format(x=x, y=y + 18 * place) for place, line in enumerate(lines)]
    for place, (least, colour) in enumerate(reversed(STEPS)):
        top = y + 64 + 24 * place
        words = "one import or more" if least == 1 else f"{least} and more"
        parts.append(f'  <rect fill="{colour}" x="{x}" y="{top}" width="18" height="18"/>')
        parts.append(f'  <text class="small" x="{x + 28}" y="{top + 14}">{words}</text>')
    return parts


def _colour(count: int) -> str | None:
    return next((colour for least, colour in STEPS if count >= least), None)


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=PICTURE)
    out = parser.parse_args().out
    out.write_text(drawn(layers(), imports_between_folders()), encoding="utf-8")
    print(out)


if __name__ == "__main__":
    main()
