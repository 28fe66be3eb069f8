"""Memory over the number of samples (reviewer 6 expects O(n^2)): training runs in separate processes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np

from mllkm_scale.base.units import format_bytes
from mllkm_scale.errors import MLLKMError
from mllkm_scale.report.style import BLUE, GREY, ORANGE, styled
from mllkm_scale.reproduce.measure import Split
from mllkm_scale.reproduce.parts import Parts, Record, markdown_table
from mllkm_scale.reproduce.parts import figure as shown
from mllkm_scale.reproduce.reviewers.comparison import Comparison, Tell
from mllkm_scale.reproduce.reviewers.tasks import TASKS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MEMORY"]

DATA = ("covtype", "mnist")
SIZES = (2_500, 5_000, 10_000, 20_000, 40_000)
BUDGET = "1GB"
TOL = 0.1


def _run(parts: Parts, tell: Tell, quick: bool) -> Record:
    from mllkm_scale.errors import FetchError

    for name in DATA:
        try:
            split = TASKS[name].split(tell, False)
        except FetchError as error:
            tell(f"{name} is left out: {error}")
            continue
        sizes = (300, 600) if quick else SIZES
        points = []
        for n in sizes:
            own = {"rows": n, "budget": BUDGET, "tol": TOL, "parameters": TASKS[name].mllkm}
            found = parts.found(f"memory-{name}-{n}", own)
            if found is None:
                found = _trained(name, split, n)
                parts.keep(f"memory-{name}-{n}", own, found)
            points.append({"rows": n} | found)
            tell(f"{name}, {n:,} rows: peak {format_bytes(found['peak_bytes'])}, {found['train_s']:.0f} s")
        return {"data": name, "budget": BUDGET, "points": points}
    return {"data": None, "budget": BUDGET, "points": []}


def _trained(name: str, split: Split, n: int) -> Record:
    """`mllkm train` on the first n rows, in a process whose peak memory belongs to this run only."""
    params = {key: value for key, value in TASKS[name].mllkm.items() if key in ("C", "gammas", "n_components")}
    gammas = params.get("gammas", "auto")
    options = ["--C", f"{params['C']}", "--tol", f"{TOL}", "--memory", BUDGET, "--scaling", "none"]
    options += ["--gammas", gammas if isinstance(gammas, str) else ",".join(f"{gamma}" for gamma in gammas)]
    if params.get("n_components"):
        options += ["--n-components", f"{params['n_components']}"]
    rows = np.random.default_rng(0).permutation(len(split.y))[:n]
    with tempfile.TemporaryDirectory() as folder:
        data, run = Path(folder) / "data.h5", Path(folder) / "run"
        with h5py.File(data, "w") as file:
            file["X"], file["y"] = split.X[rows].astype(np.float32), split.y[rows]
        command = [sys.executable, "-m", "mllkm_scale", "train", str(data), "--out", str(run), *options]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise MLLKMError(f"the training on {n} rows of {name} ended with {done.returncode}: {done.stderr.strip()}")
        record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    result = record["result"]
    return {
        "peak_bytes": result["peak_bytes"],
        "train_s": result["elapsed_s"],
        "gap": result["gap"],
        "kernels": result["n_kernels"],
        "open": n * (5 if isinstance(gammas, str) else len(gammas)),
    }


def _markdown(record: Record) -> list[str]:
    rows = [
        [
            f"{point['rows']:,}",
            format_bytes(point["peak_bytes"]),
            format_bytes(8 * point["rows"] ** 2),
            format_bytes(8 * point["rows"] ** 2 * point["open"]),
            f"{100 * point['gap']:.1f} %",
            f"{point['kernels']:,}",
            f"{shown(point['train_s'])} s",
        ]
        for point in record["points"]
    ]
    head = [
        "rows",
        "peak of the process",
        "one Gram matrix",
        "all Gram matrices",
        "certified gap",
        "kernels",
        "training",
    ]
    return [f'{record["data"]}, `memory_budget="{record["budget"]}"`:', "", *markdown_table(head, rows), ""]


@styled
def _draw(record: Record) -> Figure:
    """Measured peaks, the budget, and the size of Gram matrices."""
    from matplotlib.figure import Figure

    from mllkm_scale.base.units import parse_bytes

    figure = Figure(figsize=(5.6, 2.8))
    axes = figure.subplots()
    rows = np.array([point["rows"] for point in record["points"]], dtype=float)
    axes.plot(rows, [point["peak_bytes"] for point in record["points"]], "o-", color=BLUE, label="peak of the training")
    axes.axhline(parse_bytes(record["budget"]), color=BLUE, ls=":", lw=1, label=f"budget, {record['budget']}")
    axes.plot(rows, 8 * rows**2, color=GREY, label="one Gram matrix")
    opened = np.array([point["open"] for point in record["points"]], dtype=float)
    axes.plot(rows, 8 * rows**2 * opened, color=ORANGE, label="Gram matrices of all candidates")
    axes.set(xscale="log", yscale="log", xlabel="training rows", ylabel="bytes")
    axes.set_yticks([1e8, 1e10, 1e12, 1e14, 1e16], ["100 MB", "10 GB", "1 TB", "100 TB", "10 PB"])
    axes.minorticks_off()
    axes.set_xticks(rows, [f"{int(n):,}" for n in rows])
    axes.grid(True, lw=0.3, color="#dddddd")
    figure.legend(loc="outside right center")
    return figure


MEMORY = Comparison(
    "memory",
    "Is the memory of a training run not quadratic in the number of samples?",
    _run,
    _markdown,
    _draw,
)
