"""A round whose support vectors exceed the memory for them: the bits of one that holds them, in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from mllkm_scale.base.executor import ThreadExecutor
from mllkm_scale.data import Dataset
from mllkm_scale.kernels.grid import Family, KernelGrid
from mllkm_scale.kernels.picked_rows import PickedRows
from mllkm_scale.mkl.inner import InnerMKL
from mllkm_scale.mkl.sequential import SequentialMKL
from mllkm_scale.mkl.state import Settings
from mllkm_scale.scan.scanner import Scanner


@pytest.mark.parametrize("componentwise", [False, True], ids=["global", "component-wise"])
def test_rounds_that_read_their_support_have_the_bits_of_rounds_that_hold_it(small_problem, componentwise, tmp_path):
    X, signs = small_problem("wine", 90)
    data = Dataset.from_arrays(X.astype(np.float32), chunk_rows=20)
    grid = KernelGrid(Family("gaussian", componentwise, 1.0), data, np.array([0.05, 0.2]), np.ones((90, 2)))
    runs = []
    for support_bytes in (10**9, 100):
        scanner = Scanner(grid, ThreadExecutor(), np.float32, support_bytes, tmp_path)
        inner = InnerMKL(data, signs, 10**9)
        machine = SequentialMKL(data, signs, grid, scanner, ThreadExecutor(), inner, Settings(tol=0.01))
        runs.append([(state.duals, state.weights, c.primal, c.dual) for state, c in machine.rounds()])
        last = machine.pricing.support_of(machine.start().duals)[0]
        assert isinstance(last, PickedRows) == (support_bytes == 100)
    assert len(runs[0]) == len(runs[1]) > 1
    for held, read in zip(*runs, strict=True):
        for a, b in zip(held, read, strict=True):
            np.testing.assert_array_equal(a, b)
    assert list(tmp_path.iterdir()) == []


ROUND = """
import json, sys
from dataclasses import replace
from pathlib import Path
import h5py
import numpy as np
from mllkm_scale import Dataset
from mllkm_scale.base.executor import ThreadExecutor
from mllkm_scale.kernels.grid import Family, KernelGrid
from mllkm_scale.mkl.pricing import RoundScans
from mllkm_scale.mkl.sequential import SequentialMKL
from mllkm_scale.mkl.state import Settings
from mllkm_scale.base.memory import peak_bytes
from mllkm_scale.scan import Scanner
from mllkm_scale.base.threads import one_blas_thread
path, folder, componentwise = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "component-wise"
n, d = 300_000, 100
rng = np.random.default_rng(0)
with h5py.File(path, "w") as file:
    stored = file.create_dataset("X", (n, d), np.float32)
    for start in range(0, n, 10_000):
        stored[start : start + 10_000] = rng.normal(size=(10_000, d))
signs = np.where(rng.uniform(size=(n, 1)) < 0.5, 1.0, -1.0)

def pass_and_scan(n_duals):
    duals = np.zeros((n, 1))
    duals[:: n // n_duals] = 1.0
    ids, weights = np.arange(n_active), np.full(n_active, 1.0 / n_active)
    blank = machine.start()
    state = replace(blank, active=ids, weights=weights, working=duals > 0, duals=duals, priced=True)
    primal = machine.primal_pass(state)
    with RoundScans(machine.pricing, state) as scans:
        scans.begin_own(state)
        dual = scans.dual_pass(state, primal)
    machine.renewal.insert_kernels(state, primal, dual)
    return len(primal.support)

with one_blas_thread(), Dataset.open(path, y=None) as data:
    # Component-wise ones take long, and bumps of 64 for all samples are 154 MB.
    n_anchors, n_active = (3, 2) if componentwise else (64, 5)
    anchors = Dataset.from_arrays(data.part(0, n_anchors))
    grid = KernelGrid(Family("gaussian", componentwise), anchors, np.array([0.005]), np.ones((n_anchors, 1)))
    scanner = Scanner(grid, support_bytes=16_000_000, scratch_dir=folder)
    settings = Settings(pricing="full", overlap="never")
    machine = SequentialMKL(data, signs, grid, scanner, ThreadExecutor(), None, settings)
    pass_and_scan(30_000)
    before = peak_bytes()
    count = pass_and_scan(n)
print(json.dumps([peak_bytes() - before, count]))
"""


@pytest.mark.parametrize("kernels", ["global", "component-wise"])
def test_a_round_with_many_support_vectors_takes_little_more_memory_than_one_with_few(tmp_path, kernels):
    """120 MB of rows, all of them support vectors, against a tenth of them, which are held."""
    command = [sys.executable, "-c", ROUND, str(tmp_path / "X.h5"), str(tmp_path), kernels]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    grown, count = json.loads(done.stdout)
    assert count == 300_000
    assert grown < 50_000_000
    assert [path.name for path in tmp_path.iterdir()] == ["X.h5"]
