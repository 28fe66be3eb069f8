"""MNIST as a stream: one and two passes compared with training on all rows, and the effect of drift.

    python jobs/bench/online.py [--parts batch stream drift] [--kernels 400 100] [--memory 1GB] [--rows 60000]

batch     training to the gap of jobs/bench/mnist.py, cut to the number of kernels and solved again, within 2 GB
stream    one and two passes within the budget and the limit of kernels: error, samples per second, peak memory
drift     one pass in which, half-way, the labels are permuted, or the digits turned by 90 degrees; with and without a
          window: the prequential error over time

Samples arrive in the order of the file. The projection on 50 components is computed from the first 1,024 samples of the
stream. Writes results/online.json; parts that are not run are not changed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from child import train_in_child
from common import ROOT, load, write, write_hdf5
from mnist import GAMMAS

from mllkm_scale import Model

PARTS = ("batch", "stream", "drift")
SETTING = {"C": 10.0, "gammas": GAMMAS, "n_components": 50, "scaling": "none"}
WINDOWS = (None, 10_000)
CURVE = ("number", "error", "recent_error", "n_kernels", "n_kept", "n_support", "inserted", "dropped", "elapsed_s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--kernels", type=int, nargs="+", default=[400, 100])
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--rows", type=int, default=60_000, help="first training rows")
    arguments = parser.parse_args()
    data = load("mnist")
    X, X_test = (data[name].astype(np.float32) / np.float32(255) for name in ("X", "X_test"))
    X, y, y_test = X[: arguments.rows], data["y"][: arguments.rows], data["y_test"]
    before = ROOT / "results" / "online.json"
    result: dict[str, Any] = json.loads(before.read_text()) if before.exists() else {}
    result |= {"setting": vars(arguments) | SETTING}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_hdf5(folder / "test.h5", X_test, y_test)
        write_hdf5(folder / "train.h5", X, y)
        if "batch" in arguments.parts:
            result["batch"] = batch(folder, sorted(arguments.kernels, reverse=True))
            write("online", result)
        if "stream" in arguments.parts:
            result["stream"] = [
                streamed(folder / "train.h5", folder, kernels, arguments.memory, passes)
                for kernels in arguments.kernels
                for passes in (1, 2)
            ]
            write("online", result)
        if "drift" in arguments.parts:
            result["drift"] = drift(folder, X, y, max(arguments.kernels), arguments.memory)
    print(f"written: {write('online', result)}")


def batch(folder: Path, kernels: list[int]) -> list[dict[str, Any]]:
    """Training on all samples; its machine is then cut to these numbers of kernels and solved again."""
    params = SETTING | {"tol": 0.02, "memory_budget": "2GB"}
    whole = train_in_child(folder / "train.h5", folder / "test.h5", folder / "batch", params)
    records = [{"kernels": whole["kernels"], "error": whole["test_error_percent"] / 100, "train_s": whole["train_s"]}]
    for most in kernels:
        command = [
            sys.executable,
            "-m",
            "mllkm_scale",
            "train",
            str(folder / "train.h5"),
            "--out",
            str(folder / "batch"),
        ]
        options = ["--resume", "--max-kernels", str(most), "--tol", "0.02", "--memory", "2GB", *cli_setting()]
        started = time.perf_counter()
        subprocess.run([*command, *options, "--progress", "plain"], check=True)
        seconds = whole["train_s"] + time.perf_counter() - started
        error, _ = tested(folder / "batch", folder)
        records.append({"kernels": most, "error": error, "train_s": seconds})
        print(records[-1])
    return records


def streamed(
    train: Path, folder: Path, kernels: int, memory: str, passes: int, window: int | None = None
) -> dict[str, Any]:
    """A stream in a separate process, and the error of its model."""
    run = folder / f"{train.stem}-{kernels}-{passes}-{window}"
    command = [sys.executable, "-m", "mllkm_scale", "stream", str(train), "--out", str(run), "--memory", memory]
    command += ["--max-kernels", str(kernels), "--passes", str(passes), *cli_setting()]
    command += [] if window is None else ["--window", str(window)]
    subprocess.run([*command, "--progress", "plain"], check=True)
    ended = json.loads((run / "run.json").read_text())["result"]
    lines = [json.loads(line) for line in (run / "stream.jsonl").read_text().splitlines()]
    error, predict_us = tested(run, folder)
    record = {"passes": passes, "max_kernels": kernels, "window": window, "test_error": error, "row_us": predict_us}
    print(record | ended)
    return record | ended | {"curve": {name: [line[name] for line in lines] for name in CURVE}}


def drift(folder: Path, X: np.ndarray, y: np.ndarray, kernels: int, memory: str) -> list[dict[str, Any]]:
    """Streams whose samples change from the middle on."""
    half = len(X) // 2
    shift = np.roll(np.arange(10), 1)
    turned = np.rot90(X[half:].reshape(-1, 28, 28), axes=(1, 2)).reshape(-1, 784)
    write_hdf5(folder / "permuted.h5", X, np.concatenate([y[:half], shift[y[half:]]]))
    write_hdf5(folder / "turned.h5", np.concatenate([X[:half], turned]), y)
    return [
        {"drift": name} | streamed(folder / f"{name}.h5", folder, kernels, memory, 1, window)
        for name in ("permuted", "turned")
        for window in WINDOWS
    ]


def cli_setting() -> list[str]:
    gammas = ",".join(str(gamma) for gamma in GAMMAS)
    return ["--C", "10", "--gammas", gammas, "--n-components", "50", "--scaling", "none"]


def tested(run: Path, folder: Path) -> tuple[float, float]:
    """Test error of the model of a run, and microseconds per row."""
    with h5py.File(folder / "test.h5") as file:
        X, y = file["X"][:], file["y"][:]
    model = Model.load(run / "model.mllkm")
    model.predict(X)
    started = time.perf_counter()
    labels = model.predict(X)
    return float(np.mean(labels != y)), 1e6 * (time.perf_counter() - started) / len(X)


if __name__ == "__main__":
    main()
