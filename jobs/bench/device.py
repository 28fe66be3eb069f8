"""Machines for devices: error against bytes beside published figures, and the same integers in C and in Python.

    python jobs/bench/device.py [--only mnist10 mnist2 letter families] [--sizes 84kB ...] [--rows 2000]
                                [--page docs/device.md] [--picture FILE.png]

Sizes are trained with max_bytes alone, whose settings are chosen on training rows: MNIST with ten classes, with digits
0 to 4 against 5 to 9, and letter (the first 16,000 rows against the last 4,000). Test errors are those of the model and
of its header, with the bits chosen in training. `families` trains all four maps, global and component-wise, on the
first rows of MNIST, and exports them with 4, 8 and 16 bits. Every header is compiled by gcc and compared with Python on
all test rows; boards (`boards.py`) count instructions or cycles per row if their emulators are installed. Training
times are processor times, summed over all threads. --page writes the tables between the marks <!-- device --> and
<!-- /device -->, <!-- families --> and <!-- /families --> of the page, and --picture draws error against bytes.

Published: Bonsai (Kumar et al., ICML 2017), ProtoNN (Gupta et al., ICML 2017), and the trees of their comparisons.
Writes results/device.json after each machine; entries of other names and sizes are kept.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from boards import BOARDS
from common import ROOT, load, write
from scale_page import filled, table

from mllkm_scale import Dataset, Model, train
from mllkm_scale.base.units import format_bytes, parse_bytes
from mllkm_scale.export import export_integer_c, integer_machine
from mllkm_scale.kernels.maps import MAPS

SIZES = {
    "mnist10": ("8kB", "16kB", "32kB", "63kB", "84kB"),
    "mnist2": ("1kB", "2kB", "4kB", "16kB"),
    "letter": ("8kB", "16kB", "32kB", "63kB"),
}
PUBLISHED = {  # kilobytes and accuracy in %
    "mnist10": {"Bonsai": (84.0, 97.01), "ProtoNN": (63.0, 95.88), "trees": (5900.0, 97.90)},
    "mnist2": {"Bonsai, 2 kB": (2.0, 94.38), "Bonsai, 16 kB": (16.0, 96.47), "ProtoNN": (16.0, 96.5)},
    "letter": {"ProtoNN": (63.0, 97.10)},
}
TITLES = {"mnist10": "MNIST, ten digits", "mnist2": "MNIST, 0 to 4 against 5 to 9", "letter": "letter"}
DRIVER = """
#include <stdio.h>
#include "model.h"
int main(void)
{
    static mllkm_input x[MLLKM_N_FEATURES];
    int32_t scores[MLLKM_N_SCORES];
    while (fread(x, sizeof x, 1, stdin) == 1) {
        mllkm_scores(x, scores);
        fwrite(scores, sizeof scores, 1, stdout);
    }
    return 0;
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=[*SIZES, "families"], default=[*SIZES, "families"])
    parser.add_argument("--sizes", nargs="+", help="some of the sizes alone, such as 84kB")
    parser.add_argument("--rows", type=int, default=2000, help="training rows of the families")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    for name in arguments.only:
        if name == "families":
            keep(name, families(arguments.rows))
            continue
        for size in SIZES[name]:
            if arguments.sizes is None or size in arguments.sizes:
                keep(name, sized(name, size))
        for who, (kilobytes, accuracy) in PUBLISHED[name].items():
            print(f"    published: {who}, {kilobytes:g} kB: {100 - accuracy:.2f} %")
    result = kept()
    if arguments.page is not None:
        text = filled(arguments.page.read_text(encoding="utf-8"), "device", page_lines(result))
        if "families" in result:
            text = filled(text, "families", families_lines(result["families"]))
        arguments.page.write_text(text, encoding="utf-8")
    if arguments.picture is not None:
        draw(result, arguments.picture)


def kept() -> dict[str, Any]:
    """The figures that are there."""
    path = ROOT / "results" / "device.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    return {name: found[name] for name in (*SIZES, "families") if name in found}


def keep(name: str, found: dict[str, Any]) -> None:
    """Write what was found, in the place of older figures of the same."""
    result = kept()
    if name in SIZES:
        others = [one for one in result.get(name, []) if one["max_bytes"] != found["max_bytes"]]
        result[name] = sorted([*others, found], key=lambda one: one["max_bytes"])
    else:
        result[name] = found
    write("device", {"published": PUBLISHED} | result)


def sized(name: str, size: str) -> dict[str, Any]:
    """A machine below a number of bytes."""
    X, y, X_test, y_test = arrays(name)
    started = time.process_time()
    model = train(Dataset.from_arrays(X, y), max_bytes=size).model
    took = {"max_bytes": parse_bytes(size), "train_processor_s": time.process_time() - started}
    record = took | measured(model, X, X_test, y_test)
    show(f"{TITLES[name]}, {size}", record)
    return record


def families(rows: int) -> dict[str, dict[str, Any]]:
    """All maps, global and component-wise, with 4, 8 and 16 bits."""
    X, y, X_test, y_test = arrays("mnist10")
    found = {}
    for componentwise in (False, True):
        for map in MAPS:
            settings: dict[str, Any] = {"map": map, "componentwise": componentwise, "scaling": "none"}
            data = Dataset.from_arrays(X[:rows], y[:rows])
            model = train(data, n_components=30, anchors="learned:60", metric=None, finish="none", **settings).model
            for bits in (4, 8, 16):
                name = f"{map}, {'component-wise' if componentwise else 'global'}, {bits} bits"
                found[name] = measured(model, X[:rows], X_test, y_test, bits)
                show(name, found[name])
    return found


def arrays(name: str) -> tuple[np.ndarray, ...]:
    """Rows and labels to train on, and to test on."""
    data = load("letter" if name == "letter" else "mnist")
    if name == "letter":
        return data["X"][:16_000], data["y"][:16_000], data["X"][16_000:], data["y"][16_000:]
    labels = (data[key] >= 5 if name == "mnist2" else data[key] for key in ("y", "y_test"))
    y, y_test = (values.astype(np.int64) for values in labels)
    return data["X"], y, data["X_test"], y_test


def measured(
    model: Model, X: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, bits: int | None = None
) -> dict[str, Any]:
    """Errors in floats and integers, bytes, whether C gives the integers of Python, and what boards count."""
    data = Dataset.from_arrays(X)
    machine = integer_machine(model, data, bits)
    U = machine.preparation.inputs.quantise(X_test)
    scores = machine.scores(U)
    codes = (scores[:, 0] > 0).astype(np.int64) if machine.n_scores == 1 else scores.argmax(axis=1)
    record: dict[str, Any] = {
        "bits": machine.slope_bits,
        "kernels": machine.n_kernels,
        "directions": machine.n_features,
        "features": len(machine.preparation.columns),
        "constant_bytes": machine.constant_bytes,
        "stack_bytes": machine.stack_bytes,
        "error": float(np.mean(model.predict(X_test) != y_test)),
        "integer_error": float(np.mean(model.classes[codes] != y_test)),
        "arithmetic": machine.arithmetic,
        "deviation": machine.deviation,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export_integer_c(model, folder / "model.h", data, bits)
        if shutil.which("gcc"):
            record["rows"] = len(U)
            record["same_in_c"] = bool(np.array_equal(in_c(folder, machine.preparation.inputs.kind, U), scores))
        for board in BOARDS:
            n = 20 if board.name == "Cortex-M3" else max(1, min(10, 30_000 // U.shape[1]))
            if board.missing or (board.name == "AVR" and machine.constant_bytes > 32_000):
                continue
            counted = board.run(folder / "model.h", U[:n])
            same = bool(np.array_equal(counted.scores, scores[:n]))
            record[board.name] = {board.unit: float(counted.counts.mean()), "rows": n, "same": same}
    return record


def in_c(folder: Path, kind: str, U: np.ndarray) -> np.ndarray:
    """The scores of a compiled header."""
    (folder / "main.c").write_text(DRIVER)
    subprocess.run(["gcc", "-std=c99", "-O2", "-o", "main", "main.c"], cwd=folder, check=True)
    rows = np.ascontiguousarray(U, np.uint8 if kind == "uint8_t" else np.int16).tobytes()
    said = subprocess.run([folder / "main"], input=rows, capture_output=True, check=True).stdout
    return np.frombuffer(said, np.int32).reshape(len(U), -1)


def show(name: str, record: dict[str, Any]) -> None:
    counted = [
        f"{record[board.name][board.unit]:,.0f} {board.unit} a row on {board.name}"
        f"{'' if record[board.name]['same'] else ' (OTHER SCORES)'}"
        for board in BOARDS
        if board.name in record
    ]
    same = {None: "", True: f", same integers in C on {record.get('rows')} rows", False: ", OTHER INTEGERS IN C"}
    print(
        f"{name}: {record['features']} features, {record['directions']} directions, {record['kernels']} kernels,"
        f" {record['bits']} bits,"
        f" {format_bytes(record['constant_bytes'])}: error {100 * record['integer_error']:.2f} %"
        f" (floats {100 * record['error']:.2f} %){same[record.get('same_in_c')]}",
        *([f"{record['train_processor_s']:.0f} processor s of training"] if "train_processor_s" in record else []),
        *counted,
        sep="; ",
        flush=True,
    )


def page_lines(result: dict[str, Any]) -> list[str]:
    """A line per machine, with the published figures for at least as many bytes."""
    counts = [f"{board.name}, {board.unit} a row" for board in BOARDS]
    sizes = ["bytes of constants", "features", "directions", "kernels", "bits", "error", "in floats", "training"]
    rows = []
    for name in SIZES:
        title, left = TITLES[name], dict(PUBLISHED[name])
        for one in result.get(name, []):
            kilobytes = one["constant_bytes"] / 1e3
            near = [who for who, (size, _) in left.items() if size < 1.1 * one["max_bytes"] / 1e3]
            said = [f"{who.split(',')[0]}, {left[who][0]:g} kB: {100 - left[who][1]:.2f} %" for who in near]
            left = {who: figures for who, figures in left.items() if who not in near}
            counted = [f"{one[b.name][b.unit]:,.0f}" if b.name in one else "" for b in BOARDS]
            numbers = [str(one[key]) for key in ("features", "directions", "kernels", "bits")]
            errors = [f"{100 * one[key]:.2f} %" for key in ("integer_error", "error")]
            errors.append(f"{one['train_processor_s']:.0f} s")
            rows.append([title, f"{kilobytes:.1f} kB", *numbers, *errors, *counted, "; ".join(said)])
            title = ""
    return table(["data", *sizes, *counts, "published"], rows)


def families_lines(found: dict[str, dict[str, Any]]) -> list[str]:
    """A line a map: errors and bytes with each number of bits, and whether all integers were the same in C."""
    bits = (4, 8, 16)
    heads = ["error in floats", *(f"{number} bits" for number in bits), "bytes with 8 bits"]
    counts = [f"{board.name}, {board.unit} a row" for board in BOARDS]
    rows = []
    for name in dict.fromkeys(name.rpartition(", ")[0] for name in found):
        own = [found[f"{name}, {number} bits"] for number in bits]
        errors = [f"{100 * one['integer_error']:.2f} %" for one in own]
        counted = [f"{own[1][b.name][b.unit]:,.0f}" if b.name in own[1] else "" for b in BOARDS]
        same = all(one.get("same_in_c", False) for one in own) and all(
            one[board.name]["same"] for one in own for board in BOARDS if board.name in one
        )
        said = f"the same on {own[0]['rows']:,} rows" if same else "OTHERS"
        sizes = format_bytes(own[1]["constant_bytes"])
        rows.append([name, f"{100 * own[0]['error']:.2f} %", *errors, sizes, *counted, said])
    return table(["map", *heads, *counts, "integers of C"], rows)


def draw(result: dict[str, Any], path: Path) -> None:
    """Error against kilobytes, with the published figures as crosses."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    names = [name for name in SIZES if name in result]
    figure = Figure(figsize=(3.0 * len(names), 2.8), layout="constrained")
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True):
        own = [(one["constant_bytes"] / 1e3, 100 * one["integer_error"]) for one in result[name]]
        axes.plot(*zip(*own, strict=True), marker="o", markersize=4, color="#2166ac", label="mllkm-scale")
        for i, (who, (kilobytes, accuracy)) in enumerate(PUBLISHED[name].items()):
            at, below = (kilobytes, 100 - accuracy), name == "mnist2" and i == 2  # where two are in one place
            axes.plot(*at, "x", color="#b2182b", label=None if i else "published")
            place = {"xytext": (0, -11 if below else 5), "textcoords": "offset points", "ha": "center"}
            axes.annotate(who.split(",")[0], at, fontsize=6, **place)
        axes.set(xscale="log", title=TITLES[name], xlabel="kilobytes", ylabel="test error, %")
        axes.xaxis.set_major_locator(LogLocator(base=4))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.margins(x=0.25, y=0.12)
        axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
        axes.title.set_fontsize(8)
        axes.grid(True, linewidth=0.3, alpha=0.5)
    figure.axes[0].legend(fontsize=6, loc="lower right", frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
