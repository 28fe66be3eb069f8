"""Stands in for `podman build`: the steps of a Containerfile, run in a folder that is the root of the image.

    python build.py CONTAINERFILE CONTEXT IMAGE

COPY and WORKDIR lead into the folder; RUN is run there, with `pip` and `useradd` stood in for. What is left, FROM,
USER, ENV and CMD, is printed as JSON.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def build(containerfile: Path, context: Path, image: Path) -> dict[str, Any]:
    text = re.sub(r"\\\n", " ", containerfile.read_text())
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    folder = image
    facts: dict[str, Any] = {}
    for keyword, rest in steps:
        if keyword == "WORKDIR":
            folder = image / rest.lstrip("/")
            folder.mkdir(parents=True, exist_ok=True)
        elif keyword == "COPY":
            *sources, target = rest.split()
            for source in sources:
                copy(context / source, folder / target)
        elif keyword == "RUN":
            subprocess.run(["sh", "-c", rest], cwd=folder, env=environment(image), check=True, timeout=60)
        elif keyword == "ENV":
            facts[keyword] = dict(word.split("=", 1) for word in shlex.split(rest))
        elif keyword == "CMD":
            facts[keyword] = json.loads(rest)
        elif keyword in ("FROM", "USER"):
            facts[keyword] = rest
        else:
            sys.exit(f"{containerfile}: {keyword} is not stood in for")
    return facts


def copy(source: Path, target: Path) -> None:
    if source.is_dir():  # what is copied of a folder is what it holds
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def environment(image: Path) -> dict[str, str]:
    path = f"{HERE}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHON": sys.executable, "IMAGE": str(image)}


if __name__ == "__main__":
    json.dump(build(*(Path(word) for word in sys.argv[1:])), sys.stdout)
