"""The report is drawn within the memory budget: the peak is measured in a process of its own, to its very end."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np

SCRIPT = """
import json, sys
import numpy as np
from mllkm_scale import Dataset, train
from mllkm_scale.base.memory import peak_bytes
folder, source = sys.argv[1:]
with np.load(source) as arrays:
    data = Dataset.from_arrays(arrays["X"], arrays["y"])
result = train(
    data, test=data, run_dir=folder, report=True, image_shape="8x24", memory_budget="430MB", anchors="all",
    max_rounds=2, n_jobs=1,
)
print(json.dumps([peak_bytes(), result.plan.budget_bytes]))
"""


def test_a_training_with_test_rows_and_report_stays_within_a_small_budget(tmp_path, real_data):
    X, y = real_data("digits")
    X = np.concatenate([X, X[:, ::-1], np.roll(X, 3, axis=1)], axis=1)[:600]
    np.savez(tmp_path / "train.npz", X=X, y=y[:600])
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "run"), str(tmp_path / "train.npz")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    peak, allowed = json.loads(done.stdout)
    assert (tmp_path / "run" / "report.html").exists()
    assert peak <= allowed
