"""The lowest versions that pyproject.toml allows, as constraints for pip: `make test-oldest` installs exactly these.

python jobs/oldest.py > constraints.txt
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lowest(project: dict[str, Any]) -> list[str]:
    """`name==version` of each dependency with a lower bound."""
    return [text.replace(">=", "==") for text in project["dependencies"] if re.fullmatch(r"[\w-]+>=[\d.]+", text)]


if __name__ == "__main__":
    print("\n".join(lowest(tomllib.loads(PYPROJECT.read_text())["project"])))
