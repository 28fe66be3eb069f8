"""All comparisons: run one after the other, then written as one page with its pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from mllkm_scale.base.files.folders import writing
from mllkm_scale.base.files.whole import write_whole
from mllkm_scale.report.style import save
from mllkm_scale.reproduce.parts import Parts
from mllkm_scale.reproduce.reviewers.anchors import ANCHORS
from mllkm_scale.reproduce.reviewers.comparison import Comparison, Tell
from mllkm_scale.reproduce.reviewers.costs import COSTS
from mllkm_scale.reproduce.reviewers.gammas import GAMMAS
from mllkm_scale.reproduce.reviewers.maps import MAPS
from mllkm_scale.reproduce.reviewers.memory import MEMORY

__all__ = ["COMPARISONS", "run"]

COMPARISONS: dict[str, Comparison] = {each.name: each for each in (COSTS, ANCHORS, MAPS, MEMORY, GAMMAS)}


def run(names: Sequence[str], folder: Path, tell: Tell, quick: bool) -> list[Path]:
    """Run these comparisons; write NAME.json, NAME.md and a picture of each as it is done, and return their paths."""
    parts, paths = Parts(folder / "parts"), []
    for name in names:
        comparison = COMPARISONS[name]
        tell(comparison.question)
        record = comparison.run(parts, tell, quick)
        if not record:
            tell(f"{name}: no data set of this comparison is there")
            continue
        texts = {
            folder / f"{name}.json": json.dumps(record, indent=1) + "\n",
            folder / f"{name}.md": "\n".join([f"## {comparison.question}", "", *comparison.markdown(record)]),
        }
        with writing(folder):
            for path, text in texts.items():
                write_whole(path, text)
        paths += [*texts, *save(comparison.draw(record), folder / name)]
    return paths
