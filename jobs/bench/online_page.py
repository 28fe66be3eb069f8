"""Tables and pictures of docs/online.md, from results/online.json and results/online_kernels.json.

    python jobs/bench/online_page.py [--results results] [--docs docs]

A table is between the marks <!-- NAME --> and <!-- /NAME --> of the page; the pictures are docs/images/online.png and
docs/images/online-drift.png. Parts without a file are not changed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scale_page import ROOT, filled, table

from mllkm_scale.report.style import BLUE, GREY, ORANGE, styled

Result = dict[str, Any]
DRIFTS = {"permuted": "labels permuted", "turned": "digits turned by 90 degrees"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    arguments = parser.parse_args()
    path = arguments.docs / "online.md"
    page = path.read_text(encoding="utf-8")
    for name, section in {"online": streams, "online_drift": drifts, "online_kernels": kernels}.items():
        found = arguments.results / f"{name.removesuffix('_drift')}.json"
        if found.exists():
            page = filled(page, name, section(json.loads(found.read_text())))
            print(f"{name}: {found}")
    path.write_text(page, encoding="utf-8")
    found = arguments.results / "online.json"
    if found.exists():
        result, images = json.loads(found.read_text()), arguments.docs / "images"
        draw_stream(result, images / "online.png")
        draw_drift(result, images / "online-drift.png")


def streams(result: Result) -> list[str]:
    batch = {record["kernels"]: record for record in result["batch"]}
    rows = [
        (
            f"batch, {record['kernels']:,} kernels",
            f"{100 * record['error']:.2f} %",
            "1",
            "-",
            f"{record['train_s']:.0f} s",
            "-",
        )
        for record in result["batch"]
    ]
    for record in result["stream"]:
        known = batch.get(record["n_kernels"])
        ratio = "-" if known is None else f"{record['test_error'] / known['error']:.2f}"
        passes = {1: "one pass", 2: "two passes"}[record["passes"]]
        rows.append(
            (
                f"{passes}, {record['n_kernels']:,} kernels",
                f"{100 * record['test_error']:.2f} %",
                ratio,
                f"{record['samples_per_s']:,.0f}",
                f"{record['elapsed_s']:.0f} s",
                f"{record['peak_bytes'] / 1e6:.0f} MB",
            )
        )
    head = ("machine", "test error", "times that of batch", "samples a second", "time", "peak memory")
    return table(head, rows)


def drifts(result: Result) -> list[str]:
    rows = []
    for record in result["drift"]:
        number, recent = (np.array(record["curve"][name]) for name in ("number", "recent_error"))
        half = result["setting"]["rows"] // 2
        before = recent[(number > 0.8 * half) & (number <= half)].mean()
        after = number > half
        worst, last = recent[after].max(), recent[number > 1.8 * half].mean()
        recovered = number[after][(recent[after] <= 2 * before) & (number[after] > half + 1024)]
        rows.append(
            (
                DRIFTS[record["drift"]],
                "none" if record["window"] is None else f"{record['window']:,}",
                f"{100 * before:.1f} %",
                f"{100 * worst:.0f} %",
                f"{recovered[0] - half:,}" if len(recovered) else "-",
                f"{100 * last:.1f} %",
            )
        )
    head = ("half-way", "window", "error before", "at worst", "samples until twice that before", "last tenth")
    return table(head, rows)


def kernels(result: Result) -> list[str]:
    head = ("data", "order", "at a time", "remembered", "passes", "seconds", "inserted", "kernels", "known gap")
    rows = [row_of(name, record) for name, data in result["data"].items() for record in data["streams"]]
    return table((*head, "from the optimum"), rows)


def row_of(data: str, record: Result) -> tuple[str, ...]:
    return (
        data,
        record["order"],
        str(record["batch"]),
        "all" if record["remember"] is None else str(record["remember"]),
        str(record["passes"]),
        f"{record['seconds']:.1f}",
        str(record["insertions"]),
        str(record["kernels"]),
        f"{record['gap']:.1e}",
        f"{record['from_optimum']:.1e}",
    )


@styled
def draw_stream(result: Result, path: Path) -> None:
    """Prequential error, and kernels and samples kept, over the samples of one pass."""
    from matplotlib.figure import Figure

    record = next(found for found in result["stream"] if found["passes"] == 1)
    curve = {name: np.array(values, dtype=float) for name, values in record["curve"].items()}
    n, batch = curve["number"] / 1000, result["batch"]
    figure = Figure(figsize=(7.0, 2.5))
    left, middle, right = figure.subplots(1, 3)
    left.semilogy(n, 100 * curve["recent_error"], color=BLUE, lw=0.8, label="latest 1,024 samples")
    left.semilogy(n, 100 * curve["error"], color=GREY, label="since the start")
    known = next(found for found in batch if found["kernels"] == record["n_kernels"])
    left.axhline(100 * known["error"], color=ORANGE, ls="--", lw=0.9, label="test error of batch training")
    left.plot(n[-1], 100 * record["test_error"], "o", color=BLUE, ms=4, label="test error at the end")
    left.set(title="Prequential error (%)", xlabel="thousand samples")
    left.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
    left.minorticks_off()
    left.legend()
    middle.plot(n, curve["n_kernels"], color=BLUE, label="active")
    middle.plot(n, curve["inserted"], color=GREY, lw=0.9, label="inserted so far")
    middle.set(title="Kernels", xlabel="thousand samples", ylim=(0, None))
    middle.legend()
    right.plot(n, curve["n_kept"] / 1000, color=BLUE, label="kept")
    right.plot(n, curve["n_support"] / 1000, color=ORANGE, label="support vectors")
    right.set(title="Samples (thousand)", xlabel="thousand samples", ylim=(0, None))
    right.legend()
    figure.savefig(path, dpi=200)


@styled
def draw_drift(result: Result, path: Path) -> None:
    """Prequential error around a change half-way, with and without a window."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 2.5))
    axes = figure.subplots(1, 2, sharey=True)
    half = result["setting"]["rows"] // 2
    for axis, (drift, title) in zip(axes, DRIFTS.items(), strict=True):
        for record in result["drift"]:
            if record["drift"] != drift:
                continue
            plain = record["window"] is None
            n, recent = (
                np.array(record["curve"]["number"]) / 1000,
                np.array(record["curve"]["recent_error"], dtype=float),
            )
            label = "no window" if plain else f"window of {record['window']:,}"
            axis.plot(n, 100 * recent, color=GREY if plain else BLUE, lw=1.0, label=label)
        axis.axvline(half / 1000, color=ORANGE, ls="--", lw=0.9)
        axis.set(title=f"Half-way: {title}", xlabel="thousand samples", ylim=(0, None))
    axes[0].legend(loc="upper left")
    axes[0].set_ylabel("error of the latest 1,024 samples (%)")
    figure.savefig(path, dpi=200)


if __name__ == "__main__":
    main()
