"""Deformed digits, up to 8,100,000 of them: error, time and memory over the rows, and the same bits by workers.

    python jobs/bench/mnist8m.py [--rows 60000 600000 8100000] [--folder DIR] [--memory 2GB] [--workers 2]
                                 [--at-workers 60000] [--picture docs/images/mnist8m.png]

The rows are those of `mllkm fetch mnist8m`, made in the folder if they are missing; the test rows are the 10,000
originals of MNIST. Training has its defaults, on 50 principal components of the pixels, with two threads. Each training
run is a separate process with its own peak memory and processor seconds, and reports the time of each stage. Sizes up
to `--at-workers` are trained again on a local dask cluster, and must give the same model byte for byte. Time and peak
memory grow as powers of the rows: the exponents are slopes of straight lines through their logarithms, by least
squares. Writes results/mnist8m.json, in which other sizes are kept.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
from common import ROOT, exponent, set_data_folder, train_file, write
from machines import measured

from mllkm_scale.base.units import parse_bytes
from mllkm_scale.cluster import ClusterSpec, open_client
from mllkm_scale.data.catalogue import generate
from mllkm_scale.errors import MLLKMError
from mllkm_scale.report.style import BLUE, GREY, styled

SIZES = (60_000, 600_000, 8_100_000)
PARAMS = {"scaling": "none", "n_components": 50, "random_state": 0, "n_jobs": 2}
LIMITS = {"error_percent": 0.80, "kernels": 1500, "predict_us": 15.0, "memory": "2GB", "train_s": 3600.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--folder", type=Path, default=ROOT / "results" / "mnist8m", help="of the data and the runs")
    parser.add_argument("--memory", default=LIMITS["memory"])
    parser.add_argument("--workers", type=int, default=2, help="of the local cluster; 0 for none")
    parser.add_argument("--at-workers", type=int, default=60_000, help="most rows that workers train again")
    parser.add_argument("--picture", type=Path, help="PNG of the error over the rows")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        path, run_dir, workers = arguments.child
        child(Path(path), Path(run_dir), arguments.memory, int(workers))
        return
    set_data_folder()
    before = ROOT / "results" / "mnist8m.json"
    sizes = json.loads(before.read_text())["sizes"] if before.exists() else {}
    for rows in sorted(arguments.rows):
        for record in records(rows, arguments):
            sizes[str(rows)] = record
            sizes = dict(sorted(sizes.items(), key=lambda item: int(item[0])))
            slopes = exponents(sizes)
            result = {"setting": vars(arguments), "limits": LIMITS, "sizes": sizes, "exponents": slopes}
            print(f"written: {write('mnist8m', json.loads(json.dumps(result, default=str)))}", flush=True)
    if arguments.picture:
        draw(sizes, arguments.picture)


def records(rows: int, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The record of a size: the seconds to make the rows, and to train; and again, with those to train with workers."""
    started = time.perf_counter()
    try:
        made = generate("mnist8m", arguments.folder, rows=None if rows == SIZES[-1] else rows)
    except MLLKMError as error:
        sys.exit(str(error))
    made_s, again = time.perf_counter() - started, made.origin == "the file that is there"
    print(f"{rows:,} rows: {'verified' if again else 'made'} in {made_s:.1f} s", flush=True)
    record = train_in_process(made.path, arguments, 0)
    record |= {"rows": rows, "verified_s" if again else "made_s": made_s, "file_bytes": made.path.stat().st_size}
    yield record
    if arguments.workers and rows <= arguments.at_workers:
        theirs = train_in_process(made.path, arguments, arguments.workers)
        record["workers"] = {name: theirs[name] for name in ("train_s", "cpu_s", "peak_bytes", "stages")}
        record["workers"] |= {"count": arguments.workers, "same_bits": theirs["sha256"] == record["sha256"]}
        print(f"  {arguments.workers} workers: {theirs['train_s']:.1f} s, same bits: {record['workers']['same_bits']}")
        yield record


def train_in_process(path: Path, arguments: argparse.Namespace, workers: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        run_dir = Path(name) / "run"
        command = [sys.executable, __file__, "--memory", arguments.memory, "--child", path, run_dir, str(workers)]
        if code := subprocess.run(command, check=False).returncode:
            sys.exit(f"the training on {path.name} ended with {code}")
        record: dict[str, Any] = json.loads((run_dir / "record.json").read_text())
    stages = ", ".join(f"{stage['name']} {stage['seconds']:.1f} s" for stage in record["stages"])
    print(
        f"  {record['test_error_percent']:.2f} % test error, {record['kernels']} kernels, {record['train_s']:.1f} s"
        f" ({record['cpu_s']:.0f} processor seconds), {record['peak']}, {record['predict_us_a_row']:.1f} us a row\n"
        f"  {stages}",
        flush=True,
    )
    return record


def child(path: Path, run_dir: Path, memory: str, workers: int) -> None:
    """Train, test, and write record.json into the run folder."""
    params = PARAMS | {"tol": 0.02, "memory_budget": memory}
    before = time.process_time()
    if workers:
        spec = ClusterSpec(kind="local", workers=workers)
        with open_client(spec, memory_budget=parse_bytes(memory)) as client:
            record, model = train_file(path, run_dir=run_dir, client=client, **params)
    else:
        record, model = train_file(path, run_dir=run_dir, **params)
    record["cpu_s"] = time.process_time() - before  # of this process
    record["epochs"] = [json.loads(line) for line in (run_dir / "learning.jsonl").read_text().splitlines()]
    record["sha256"] = hashlib.sha256((run_dir / "model.mllkm").read_bytes()).hexdigest()
    record["model_bytes"] = (run_dir / "model.mllkm").stat().st_size
    shutil.copy(run_dir / "model.mllkm", path.with_suffix(".mllkm"))
    with h5py.File(path) as file:
        X_test, y_test = file["X_test"][:], file["y_test"][:]
    record |= measured(lambda: model.predict(X_test, n_jobs=-1), y_test)
    (run_dir / "record.json").write_text(json.dumps(record))


def exponents(sizes: dict[str, dict[str, Any]]) -> dict[str, float] | None:
    """The powers of the rows with which time, processor seconds and peak memory grow."""
    if len(sizes) < 2:
        return None
    by_rows = {int(rows): record for rows, record in sizes.items()}
    return {name: exponent(by_rows, name) for name in ("train_s", "cpu_s", "peak_bytes")}


@styled
def draw(sizes: dict[str, dict[str, Any]], path: Path) -> None:
    """Error over rows, with the limit."""
    import matplotlib.pyplot as plt

    rows, errors = [int(size) for size in sizes], [record["test_error_percent"] for record in sizes.values()]
    figure, axes = plt.subplots(figsize=(4.4, 2.6))
    axes.axhline(LIMITS["error_percent"], linestyle=":", color=GREY)
    axes.plot(rows, errors, marker="o", color=BLUE)
    for x, y in zip(rows, errors, strict=True):
        axes.annotate(f"{y:.2f} %", (x, y), textcoords="offset points", xytext=(5, 5))
    axes.set(xscale="log", xlabel="training rows", ylabel="test error (%)", ylim=(0, None))
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"written: {path}")


if __name__ == "__main__":
    main()
