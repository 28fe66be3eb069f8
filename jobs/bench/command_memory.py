"""Peak memory of every command on files that declare or have hostile sizes, and the messages of the commands.

    python jobs/bench/command_memory.py [--memory 1GB]

Each command is a separate process with a memory budget. It must succeed or end with a named error, within its budget.
Writes results/command_memory.json and prints the table of docs/reliability.md; exits with 1 after a failure.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
from common import write
from pyarrow import parquet

from mllkm_scale.base.units import format_bytes, parse_bytes

LIMIT_S = 300.0
HUGE = 500_000_000
MB = 2**20


@dataclass(frozen=True)
class Trial:
    """A command and its hostile file."""

    what: str
    words: tuple[str, ...]
    stdin: Path | None = None


def trials(folder: Path, memory: str) -> Iterator[Trial]:
    """The hostile files are made one by one, when they are needed; small ones declare large contents."""
    budget = ("--memory", memory)
    ordinary(folder)

    line = folder / "line.csv.gz"
    with gzip.open(line, "wb", compresslevel=1) as file:
        for _ in range(256):
            file.write(b"1" * (4 * MB))
    yield Trial("gzip of 4 MB whose only line has 1 GB", ("convert", str(line), str(folder / "line.h5")))
    text = folder / "index.libsvm"
    text.write_text("1 1:1 2000000000:1\n-1 2:1\n")
    yield Trial("LIBSVM with column 2,000,000,000", ("convert", str(text), str(folder / "index.h5")))
    wide = folder / "wide.csv"
    wide.write_text("\n".join(",".join("1" * 900_000) for _ in range(3)) + "\n")
    yield Trial("CSV of 3 rows and 900,000 columns", ("convert", str(wide), str(folder / "wide.h5")))

    declared = folder / "declared.h5"
    with h5py.File(declared, "w") as file:
        file.create_dataset("X", (HUGE, 50), "f4", chunks=(1000, 50))
        file.create_dataset("y", (HUGE,), "i8", chunks=(100_000,))
    for command in ("plan", "train"):
        out = ("--out", str(folder / f"declared-{command}")) if command == "train" else ()
        yield Trial(
            f"HDF5 of {declared.stat().st_size / 1000:.0f} kB that declares 5e8 rows",
            (command, str(declared), *out, *budget),
        )
    yield Trial("the same", ("evaluate", str(folder / "run" / "model.mllkm"), str(declared)))

    labels = folder / "labels.h5"
    with h5py.File(labels, "w") as file:
        file["X"] = np.random.default_rng(0).normal(size=(20_000, 4))
        file.create_dataset("y", (20_000,), "S100000", chunks=(10,), compression="gzip")
        file["y"][0] = b"b" * 100_000
    for command in ("plan", "train"):
        out = ("--out", str(folder / f"labels-{command}")) if command == "train" else ()
        yield Trial("one label of 100,000 characters, 20,000 rows", (command, str(labels), *out, *budget))

    text = folder / "text.parquet"
    repeated = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2000, np.int32)), pa.array(["z" * 5_000_000]))
    columns = {"size": np.arange(2000.0), "text": repeated, "kind": np.arange(2000) % 2}
    parquet.write_table(pa.table(columns), text, compression="zstd")
    known = "Parquet of 1 kB with one text of 5 MB, 2,000 rows"
    yield Trial(known, ("convert", str(text), str(folder / "text.h5"), "--label-column", "kind"))
    yield Trial(known, ("plan", str(text), "--label-column", "kind", *budget))
    samples = folder / "samples.jsonl"
    with samples.open("w") as file:
        for number in range(400):
            file.write(json.dumps({"x": [number, 1], "y": "z" * MB if number == 300 else "a"}) + "\n")
    yield Trial(
        "stream of 400 samples, one with a label of 1 MB",
        ("stream", str(samples), "--out", str(folder / "long"), *budget),
    )
    flat = folder / "flat.h5"
    with h5py.File(flat, "w") as file:
        file["X"] = np.random.default_rng(0).normal(size=(5, 900_000)).astype(np.float32)
        file["y"] = np.arange(5) % 2
    settings = ("--anchors", "all", "--jobs", "1", "--no-report")
    wide = ("--memory", "1.5GB")  # whatever the others have
    yield Trial("5 rows of 900,000 features", ("train", str(flat), "--out", str(folder / "flat"), *settings, *wide))

    many = folder / "many.h5"
    with h5py.File(many, "w") as file:
        file["X"] = np.random.default_rng(0).normal(size=(50, 20_000))
        file["y"] = np.arange(50) % 2
    settings = ("--anchors", "all", "--jobs", "1", "--test", str(many))
    yield Trial("50 rows of 20,000 features", ("train", str(many), "--out", str(folder / "many"), *settings, *budget))
    model = folder / "many" / "model.mllkm"
    yield Trial("the same", ("evaluate", str(model), str(many)))
    yield Trial("the same", ("predict", str(model), str(many), "--out", str(folder / "many-labels.csv")))
    yield Trial("the same", ("report", str(folder / "many")))
    yield Trial("the same", ("export", str(model), "--out", str(folder / "many.npz")))

    model = folder / "run" / "model.mllkm"
    crafted = folder / "crafted.mllkm"
    with zipfile.ZipFile(model) as source, zipfile.ZipFile(crafted, "w") as target:
        for name in source.namelist():
            target.writestr(name, declared_npy() if name == "coef.npy" else source.read(name))
    yield Trial("a model whose coefficients declare 1e12 numbers", ("inspect", str(crafted)))
    yield Trial("the same", ("predict", str(crafted), str(folder / "data.h5"), "--out", str(folder / "p.h5")))
    rows = folder / "rows.npy"
    rows.write_bytes(declared_npy())
    yield Trial("NPY that declares 1e12 numbers", ("predict", str(model), str(rows), "--out", str(folder / "q.csv")))
    wide_rows = folder / "wide-rows.csv"
    wide_rows.write_bytes(b"1," * (50 * MB) + b"1\n")
    yield Trial(
        "CSV whose only line has 100 MB", ("predict", str(model), str(wide_rows), "--out", str(folder / "r.csv"))
    )
    yield Trial("stream of one line of 100 MB", ("stream", "-", "--out", str(folder / "stream"), *budget), wide_rows)

    big = folder / "big"
    big.mkdir()
    for file in (folder / "run").iterdir():
        if file.is_file():
            (big / file.name).write_bytes(file.read_bytes())
    facts = json.loads((big / "run.json").read_text())
    (big / "run.json").write_text(json.dumps(facts | {"notes": ["x" * 1000] * 200_000}))
    yield Trial("run.json of 200 MB", ("report", str(big), "--out", str(folder / "report.html")))


def ordinary(folder: Path) -> None:
    """Intact data and an intact model."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    with h5py.File(folder / "data.h5", "w") as file:
        file["X"], file["y"] = X, (X[:, 0] * X[:, 1] > 0).astype(int)
    command = ["train", str(folder / "data.h5"), "--out", str(folder / "run"), "--memory", "1GB", "--anchors", "all"]
    subprocess.run([sys.executable, "-m", "mllkm_scale", *command], check=True, capture_output=True)


def declared_npy() -> bytes:
    """The header of an array of 1e12 numbers, without the numbers."""
    file = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (1, 10**6, 10**6)}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


def watched(trial: Trial) -> dict[str, object]:
    """Run a command to its end: exit code, seconds, peak memory, and the last line of its output."""
    command = [sys.executable, "-m", "mllkm_scale", *trial.words]
    started = time.monotonic()
    with tempfile.TemporaryFile() as said, open(trial.stdin or os.devnull, "rb") as given:
        process = subprocess.Popen(command, stdin=given, stdout=said, stderr=said, env=os.environ | {"COLUMNS": "400"})
        peak = 0
        while process.poll() is None:
            peak = max(peak, peak_bytes(process.pid))
            if time.monotonic() - started > LIMIT_S:
                process.kill()
            time.sleep(0.01)
        said.seek(0)
        lines = said.read().decode(errors="replace").splitlines() or [""]
    return {
        "command": trial.words[0],
        "what": trial.what,
        "exit_code": process.returncode,
        "seconds": time.monotonic() - started,
        "peak_bytes": peak,
        "said": lines[-1][:300],
        "traceback": any("Traceback" in line for line in lines),
    }


def peak_bytes(pid: int) -> int:
    """The peak memory of a process so far, from the system; `getrusage` would count this process, too."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--memory", default="1GB", help="budget of every command")
    arguments = parser.parse_args()
    budget = parse_bytes(arguments.memory)
    records = []
    with tempfile.TemporaryDirectory() as folder:
        for trial in trials(Path(folder), arguments.memory):
            record = watched(trial) | {"within": True}
            record["within"] = int(str(record["peak_bytes"])) <= budget and not record["traceback"]
            record["within"] = bool(record["within"]) and int(str(record["exit_code"])) >= 0
            records.append(record)
            print(json.dumps(record), flush=True)
    print("\n| command | input | outcome | peak |\n| --- | --- | --- | ---: |")
    for r in records:
        outcome = "result" if r["exit_code"] == 0 else f"error, exit code {r['exit_code']}"
        peak = format_bytes(int(str(r["peak_bytes"])))
        print(f"| `{r['command']}` | {r['what']} | {outcome} | {peak} |")
    print(f"written: {write('command_memory', {'budget_bytes': budget, 'trials': records})}")
    if failed := [r for r in records if not r["within"]]:
        sys.exit(f"{len(failed)} failures")


if __name__ == "__main__":
    main()
