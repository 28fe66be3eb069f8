"""Peak memory of processes that train on collections, each in a process of its own, as the system counts it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

STORE = """
import json, sys
import dask.array as da
from mllkm_scale.base.memory import peak_bytes
from mllkm_scale.cluster.collections import stored
from mllkm_scale.data.collections import Collection

X = da.random.default_rng(0).standard_normal((200_000, 250), chunks=(2_500, 250))  # 400 MB, 5 MB a block
before = peak_bytes()
with stored(Collection.of(X, X[:, 0] > 0), None, threads=4, room_bytes=60_000_000) as data:
    print(json.dumps([data.n_rows, before, peak_bytes()]))
"""

TRAIN = """
import json, sys
import dask.array as da
from mllkm_scale import train
from mllkm_scale.base.memory import peak_bytes
from mllkm_scale.cluster import ClusterSpec, open_client

def trained(client):
    X = da.random.default_rng(0).standard_normal((300_000, 1000), chunks=(1_000, 1000))  # 2.4 GB
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    settings = {"anchors": 20, "gammas": [0.01], "C": 0.1, "scaling": "none", "n_components": 5, "max_rounds": 1}
    return train(X, y, client=client, memory_budget="600MB", n_jobs=1, worker_timeout=600.0, **settings)

if __name__ == "__main__":
    if sys.argv[1] == "0":
        result = trained(None)
    else:
        with open_client(ClusterSpec("local", workers=1), memory_budget=600_000_000, timeout_s=60) as client:
            result = trained(client)
            peaks = list(client.run(peak_bytes).values())
            print(json.dumps([result.model.certificate.n_train, peak_bytes(), *peaks]))
            sys.exit()
    print(json.dumps([result.model.certificate.n_train, peak_bytes()]))
"""


def told(script: str, folder: Path, *arguments: str) -> list[Any]:
    """What a script prints at its end."""
    file = folder / "script.py"
    file.write_text(script)
    done = subprocess.run(
        [sys.executable, str(file), *arguments], capture_output=True, text=True, timeout=900, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def test_storing_takes_the_memory_of_some_blocks(tmp_path):
    n_rows, before, peak = told(STORE, tmp_path)
    assert n_rows == 200_000
    assert peak - before < 66_000_000  # the room, and a tenth for the allocator as in every plan


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "1"])
def test_an_array_of_four_times_the_budget_keeps_every_process_within_it(tmp_path, workers):
    n_rows, *peaks = told(TRAIN, tmp_path, workers)
    assert n_rows == 300_000
    assert len(peaks) == 1 + int(workers)
    assert max(peaks) <= 600_000_000
