"""Headers in integers compiled as programs, and the emulated boards of the benchmark job."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mllkm_scale import Dataset
from mllkm_scale.export import export_integer_c

BENCH = Path(__file__).parents[3] / "jobs" / "bench"
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
DRIVER = """
#include <stdio.h>
#include "model.h"
int main(void)
{
    static mllkm_input x[MLLKM_N_FEATURES];
    int32_t scores[MLLKM_N_SCORES], code;
    while (fread(x, sizeof x, 1, stdin) == 1) {
        mllkm_scores(x, scores);
        code = mllkm_predict(x);
        fwrite(&code, sizeof code, 1, stdout);
        fwrite(scores, sizeof scores, 1, stdout);
    }
    return 0;
}
"""


@pytest.fixture(scope="session")
def boards() -> ModuleType:
    """The module that runs headers on emulated boards."""
    spec = importlib.util.spec_from_file_location("boards", BENCH / "boards.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["boards"] = module  # where its dataclasses look for their annotations
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run_in_c(gcc: str, tmp_path: Path) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """Export a model, compile the header with these options, and run it on integer rows: scores (n, K) and codes."""

    def run(model: Any, X: np.ndarray, bits: int, U: np.ndarray, *options: str) -> tuple[np.ndarray, np.ndarray]:
        export_integer_c(model, tmp_path / "model.h", Dataset.from_arrays(X), bits, overwrite=True)
        (tmp_path / "main.c").write_text(DRIVER)
        strict = STRICT if "c++" not in options else []
        subprocess.run([gcc, *strict, *options, "main.c", "-o", "main"], cwd=tmp_path, check=True, timeout=120)
        kind = np.uint8 if "uint8_t mllkm_input" in (tmp_path / "model.h").read_text() else np.int16
        rows = np.ascontiguousarray(U, kind).tobytes()
        said = subprocess.run([tmp_path / "main"], input=rows, capture_output=True, check=True, timeout=120)
        assert not said.stderr
        found = np.frombuffer(said.stdout, np.int32).reshape(len(U), -1)
        return found[:, 1:], found[:, 0]

    return run
