"""The lowest versions that pyproject.toml allows, as constraints for pip: `make test-oldest` installs exactly these.

python jobs/oldest.py > constraints.txt
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lowest(project: dict[str, object]) -> list[str]:
    """`name==version` of each dependency with a lower bound."""
    return [re.sub(r">=", "==", text) for text in _dependencies(project) if re.fullmatch(r"[\w-]+>=[\d.]+", text)]


def _dependencies(project: dict) -> list[str]:  # type: ignore[type-arg]
    return [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["parquet"]]


if __name__ == "__main__":
    print("\n".join(lowest(tomllib.loads(PYPROJECT.read_text()))))
