"""The fuzz job, run short: no damaged or crafted file of any format ends in a traceback, a hang or much memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = Path(__file__).parents[2] / "jobs" / "bench" / "fuzz.py"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the job measures memory in /proc")
def test_damaged_and_crafted_files_end_in_named_errors_or_results():
    command = [sys.executable, JOB, "--inputs", "180", "--seed", "7", "--results", ""]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    (name, *counts) = (cell.strip() for cell in done.stdout.splitlines()[-1].strip("|").split("|"))
    assert (name, counts[0]) == ("all", "180")
    assert int(counts[1]) > 90  # refused
    assert counts[4:] == ["0"] * 5
