"""What the benchmark jobs share: where the data are, and how a result is written."""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from mllkm_scale import __version__

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> dict[str, np.ndarray]:
    """Arrays of NAME.npz in the folder MLLKM_DATA (default: shared/data beside the project)."""
    folder = Path(os.environ.get("MLLKM_DATA", ROOT.parent / "shared" / "data"))
    path = folder / f"{name}.npz"
    if not path.exists():
        sys.exit(f"{name}.npz is not there: set MLLKM_DATA to the folder that has it")
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def write(name: str, result: dict[str, Any], folder: Path | None = None) -> Path:
    """Write results/NAME.json with a note of the machine; returns its path."""
    path = (folder or ROOT / "results") / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = {"cores": os.cpu_count(), "processor": platform.processor() or platform.machine()}
    versions = {"mllkm_scale": __version__, "numpy": np.__version__, "python": platform.python_version()}
    path.write_text(json.dumps({"benchmark": name, "machine": machine, "versions": versions} | result, indent=2) + "\n")
    return path
