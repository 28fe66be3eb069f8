"""A training run in a separate process, so that its peak memory is measured separately.

    python jobs/bench/child.py TRAIN.h5 TEST.h5 RUN_DIR PARAMETERS

The jobs call it by `train_in_child`; the parameters are JSON. It writes record.json into the run folder: the record of
`train_file`, the forms of the inner problem, and error and time on the test rows, which are read after training.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from common import train_file, write_hdf5
from machines import measured


def train_in_child(train: Path, test: Path, run_dir: Path, params: dict[str, Any]) -> dict[str, Any]:
    """The record of a training run on one HDF5 file, tested on another."""
    command = [sys.executable, __file__, str(train), str(test), str(run_dir), json.dumps(params)]
    if code := subprocess.run(command, check=False).returncode:
        sys.exit(f"the training in {run_dir.name} ended with {code}")
    record: dict[str, Any] = json.loads((run_dir / "record.json").read_text())
    return record


def mllkm(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, **params: Any) -> dict[str, Any]:
    """The record of MLLKM with these parameters, trained and tested in a separate process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_hdf5(folder / "train.h5", X, y)
        write_hdf5(folder / "test.h5", X_test, y_test)
        return train_in_child(folder / "train.h5", folder / "test.h5", folder / "run", params)


def main() -> None:
    train, test, run_dir = (Path(argument) for argument in sys.argv[1:4])
    record, model = train_file(train, run_dir=run_dir, **json.loads(sys.argv[4]))
    record["inner"] = json.loads((run_dir / "run.json").read_text())["inner"]
    with h5py.File(test) as file:
        X_test, y_test = file["X"][:], file["y"][:]
    record |= measured(lambda: model.predict(X_test, n_jobs=-1), y_test)
    (run_dir / "record.json").write_text(json.dumps(record))


if __name__ == "__main__":
    main()
