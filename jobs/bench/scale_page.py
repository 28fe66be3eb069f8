"""Writes the tables of docs/scale.md from the JSON files of the jobs in results/.

    python jobs/bench/scale_page.py [--results results] [--page docs/scale.md] [--check]

A table is between the marks <!-- NAME --> and <!-- /NAME --> of the page, where NAME is that of its job. A table is
replaced if its file exists. With --check nothing is written, and the exit code shows whether the page has the figures
of the files.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NAMES = {
    "mllkm": "MLLKM",
    "svc": "SVC, RBF",
    "linear": "LinearSVC",
    "nystroem": "Nystroem, 1,000 landmarks, + LinearSVC",
    "lightgbm": "LightGBM, 500 trees",
    "ldkl": "LDKL, depth 6",
}
TASKS = {
    "ijcnn1": "ijcnn1",
    "usps": "USPS, 50 components",
    "letter": "letter, at most 400 kernels",
    "mnist": "MNIST, 50 components, at most 400 kernels",
    "covtype50k": "Covertype",
    "covtype": "Covertype",
}
Result = dict[str, Any]


def main() -> None:
    fill_page(ROOT / "docs" / "scale.md", SECTIONS, __doc__.splitlines()[0])


def fill_page(path: Path, sections: dict[str, Callable[[Result], list[str]]], description: str) -> None:
    """The command line of a script that writes or checks the tables of one page, `path` by default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--page", type=Path, default=path)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if a figure differs")
    arguments = parser.parse_args()
    before = page = arguments.page.read_text(encoding="utf-8")
    for name, section in sections.items():
        path = arguments.results / f"{name}.json"
        if path.exists():
            page = filled(page, name, section(json.loads(path.read_text())))
            print(f"{name}: {path}")
        else:
            print(f"{name}: no {path}, its table stays")
    if arguments.check:
        sys.exit(f"{arguments.page} has other figures" if page != before else 0)
    arguments.page.write_text(page, encoding="utf-8")


def filled(page: str, name: str, lines: Iterable[str]) -> str:
    """The page with these lines between the marks of that name."""
    first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
    pattern = re.compile(re.escape(first) + ".*?" + re.escape(last), re.DOTALL)
    if not pattern.search(page):
        sys.exit(f"the page has no {first} ... {last} for the table of {name}")
    text = "\n".join([first, *lines, last])
    return pattern.sub(lambda _: text, page)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def figure(value: float) -> str:
    """At least two significant digits."""
    return f"{value:.0f}" if value >= 10.0 else f"{value:.2g}"


def machines(found: dict[str, Result], accuracy: bool = False) -> list[str]:
    """A line per machine."""
    head = ["", "accuracy" if accuracy else "test error", "training", "prediction of a row", "size"]
    rows = []
    for name, row in found.items():
        if "missing" in row:
            rows.append([NAMES[name], row["missing"], "", "", ""])
            continue
        percent = 100.0 - row["test_error_percent"] if accuracy else row["test_error_percent"]
        figures = [f"{percent:.2f} %", f"{figure(row['train_s'])} s", f"{figure(row['predict_us_a_row'])} us"]
        rows.append([NAMES[name], *figures, row["size"]])
    return table(head, rows)


def certified(ours: Result, setting: Result) -> str:
    """The certificate of MLLKM, and its peak memory."""
    return (
        f"Certified gap {percent(ours['gap'])} over {ours['n_open']:,} kernels ({ours['status']}, asked for"
        f" {percent(setting['tol'])}), {len(ours['history'])} rounds;"
        f" peak memory {ours['peak']} of {setting['memory']}."
    )


def percent(share: float) -> str:
    return f"{100.0 * share:.3g} %"


def classification(result: Result) -> list[str]:
    """MNIST and ijcnn1: the machines, and the times of the others as multiples of those of MLLKM."""
    found = result["machines"]
    ours = found["mllkm"]
    lines = [*machines(found), "", certified(ours, result["setting"])]
    if "svc" in found:
        lines.append(
            f"Against SVC: {ours['train_s'] / found['svc']['train_s']:.2f} times the training time, prediction"
            f" {found['svc']['predict_us_a_row'] / ours['predict_us_a_row']:.0f} times as fast."
        )
    if "linear" in found:
        ratio = ours["predict_us_a_row"] / found["linear"]["predict_us_a_row"]
        lines.append(f"Against LinearSVC: a row takes {ratio:.1f} times as long.")
    return lines


def covtype(result: Result) -> list[str]:
    head = ["rows", "training", "peak memory", "certified gap", "over kernels", "accuracy", "kernels"]
    rows = [
        [
            f"{int(size):,}",
            f"{row['train_s']:.0f} s",
            row["peak"],
            f"{percent(row['gap'])}{'' if row['status'] == 'converged' else ' (' + row['status'] + ')'}",
            f"{row['n_open']:,}",
            f"{100 - row['test_error_percent']:.2f} %",
            str(row["kernels"]),
        ]
        for size, row in result["sizes"].items()
    ]
    lines = table(head, rows)
    if result["exponents"]:
        time, memory = (result["exponents"][name] for name in ("train_s", "peak_bytes"))
        lines += ["", f"Time grows as rows^{time:.2f}, peak memory as rows^{memory:.2f}. All of the rows:"]
    return [*lines, "", *machines(result["machines"], accuracy=True)]


def scan_rate(result: Result) -> list[str]:
    head = ["features", "classes", "threads", "scan", "numpy.matmul", "share"]
    rows = [
        [
            *(str(row[name]) for name in ("features", "classes", "threads")),
            *(f"{row[name]:.0f} GFLOP/s" for name in ("scan_gflop_a_s", "matmul_gflop_a_s")),
            f"{100 * row['share']:.0f} %",
        ]
        for row in result["rows"]
    ]
    return table(head, rows)


def screening(result: Result) -> list[str]:
    head = ["training", "kernels spared in each round but the first, %"]
    rows = [
        [name, ", ".join(f"{100 * row['spared']:.0f}" for row in rounds)]
        for name, rounds in result["trainings"].items()
    ]
    return table(head, rows)


def component(result: Result) -> list[str]:
    head = ["map", "direct (extrapolated)", "by sums", "times as fast", "largest deviation", "tables"]
    rows = [
        [
            name,
            f"{row['direct_s_extrapolated']:.0f} s",
            f"{row['sums_s']:.2f} s",
            f"{row['ratio']:.0f}",
            f"{row['deviation']:.0e}",
            f"{row['table_bytes'] / 1e6:.0f} MB",
        ]
        for name, row in result["maps"].items()
    ]
    return table(head, rows)


def additive(result: Result) -> list[str]:
    head = ["data, map", "direct", "by tables", "times as fast", "deviation", "its bound", "tables"]
    rows = [
        [
            name,
            *(f"{row['microseconds_a_row'][form]:.1f} us" for form in ("direct", "tables")),
            f"{row['ratio']:.1f}",
            *(f"{row[name]:.0e}" for name in ("deviation_measured", "deviation_bound")),
            f"{row['bytes'] / 1e6:.2f} MB",
        ]
        for name, row in result["rows"].items()
    ]
    return table(head, rows)


def budgets(result: Result) -> list[str]:
    head = ["budget", "peak memory", "training", "times that of the largest", "certified gap", "test error", "kernels"]
    rows = []
    for budget, row in result["budgets"].items():
        if "refused" in row:
            rows.append([budget, "refused", "", "", "", "", ""])
            continue
        rows.append(
            [
                budget,
                row["peak"],
                f"{row['train_s']:.0f} s",
                f"{row['times_the_largest']:.2f}",
                percent(row["gap"]),
                f"{row['test_error_percent']:.2f} %",
                str(row["kernels"]),
            ]
        )
    tiles = result["tiles"]
    store = [
        f"An SVM on Gram tiles, {tiles['samples']:,} samples, {tiles['kernels']:,} kernels, {tiles['epochs']} epochs:",
        f"{tiles['kept_s']:.1f} s with a store of {tiles['store_bytes'] / 1e6:.0f} MB ({tiles['kept_misses']:,} tiles"
        f" made), {tiles['made_anew_s']:.1f} s without it ({tiles['made_anew_misses']:,} made):",
        f"{tiles['ratio']:.0f} times as long.",
    ]
    return [*table(head, rows), "", *store]


def startup(result: Result) -> list[str]:
    imports = [[f"import of {name}", f"{seconds:.2f} s"] for name, seconds in result["imports_s"].items()]
    compilation = [
        [f"first small training, {kind}, {cache} cache of compiled functions", f"{row[f'{cache}_s']:.1f} s"]
        for kind, row in result["compilation"].items()
        for cache in ("empty", "filled")
    ]
    products = result["products"]
    cores = result["machine"]["cores"]
    rates = [
        [f"products of the scan's sizes, {cores} BLAS threads", f"{products['blas_threads_gflops']:.0f} GFLOP/s"],
        [f"the same, {cores} threads with one BLAS thread each", f"{products['threads_gflops']:.0f} GFLOP/s"],
    ]
    reading = [
        [
            f"reading HDF5, {name}" if "bytes_asked" in row else f"reading {name}",
            f"{row['mb_s']:.0f} MB/s"
            + (f", {row['bytes_asked']:.2f} times the data asked for" if "bytes_asked" in row else ""),
        ]
        for name, row in result["reading"].items()
    ]
    return table(["", ""], [*imports, *compilation, *rates, *reading])


def learned(result: Result) -> list[str]:
    """A line for each task and machine, with the goals of the project."""
    head = ["data", "rows", "", "test error", "training", "prediction of a row", "size", "peak memory", "limit"]
    rows = []
    for task, found in result["tasks"].items():
        limit = f"{found['limit_percent']} %" + (f", {found['limit_s']:.0f} s" if found["limit_s"] else "")
        for name, row in found["machines"].items():
            figures = [f"{row['test_error_percent']:.2f} %", f"{figure(row['train_s'])} s"]
            figures += [f"{figure(row['predict_us_a_row'])} us", row["size"], row.get("peak", "")]
            ours = name == "mllkm"
            about = [TASKS[task], f"{found['rows']:,}"] if ours else ["", ""]
            rows.append([*about, NAMES[name], *figures, limit if ours else ""])
    return table(head, rows)


def mnist8m(result: Result) -> list[str]:
    """A line per size, and the growth of time and memory."""
    head = ["rows", "test error", "processor time", "by the clock", "peak memory", "kernels", "model"]
    rows = [
        [
            f"{row['rows']:,}",
            f"{row['test_error_percent']:.2f} %",
            f"{figure(row['cpu_s'])} s",
            f"{figure(row['train_s'])} s",
            row["peak"],
            f"{row['kernels']:,}",
            f"{row['model_bytes'] / 1e6:.1f} MB",
        ]
        for row in result["sizes"].values()
    ]
    lines = table(head, rows)
    largest = list(result["sizes"].values())[-1]
    spent = ", ".join(f"{stage['name']} {figure(stage['seconds'])} s" for stage in largest["stages"])
    lines += ["", f"Stages of the largest, by the clock: {spent}."]
    if result["exponents"]:
        cpu, memory = (result["exponents"][name] for name in ("cpu_s", "peak_bytes"))
        lines.append(f"Processor time grows as rows^{cpu:.2f}, peak memory as rows^{memory:.2f}.")
    for row in result["sizes"].values():
        if "workers" in row:
            same = "the same bytes" if row["workers"]["same_bits"] else "OTHER BYTES"
            lines.append(f"{row['rows']:,} rows by {row['workers']['count']} dask workers: {same} of the model file.")
    return lines


def passes(result: Result) -> list[str]:
    head = ["pass", "rows a second", "its parts alone, rows a second", "share of its bound"]
    rows = [
        [
            name,
            f"{row['rows_per_s']:,.0f}",
            ", ".join(f"{part} {rate:,.0f}" for part, rate in row["alone_rows_per_s"].items()),
            f"{100 * row['share']:.0f} %",
        ]
        for name, row in result["passes"].items()
    ]
    return table(head, rows)


def simulate(result: Result) -> list[str]:
    """Simulated hours with the longest stage, and the deviation of the simulation from measurements."""
    counts = sorted({row["workers"] for row in result["paper"]})
    head = ["rows", "memory of the master", *(f"{count:,} workers" for count in counts)]
    rows = []
    for size in sorted({row["rows"] for row in result["paper"]}):
        own = {row["workers"]: row for row in result["paper"] if row["rows"] == size}
        cells = [f"{duration(own[n]['total_s'])} ({max(own[n]['seconds'], key=own[n]['seconds'].get)})" for n in counts]
        rows.append([f"{size:,}", f"{own[counts[0]]['master_bytes'] / 1e9:.3g} GB", *cells])
    lines = [*table(head, rows), ""]
    head = ["pass", "workers", "measured", "simulated", "difference"]
    checked = [
        [
            row["work"],
            str(row["workers"]),
            f"{row['measured_s']:.1f} s",
            f"{row['simulated_s']:.1f} s",
            f"{100 * row['off']:+.0f} %",
        ]
        for row in result["checked"]
    ]
    return [*lines, *table(head, checked)]


def duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def out_of_core(result: Result) -> list[str]:
    ran, slow, speed = result["training"], result["slow"], result["setting"]["mb_s"]
    gb = {name: f"{ran[name] / 1e9:.2f} GB" for name in ("data_bytes", "limit_bytes", "group_peak_bytes", "peak_bytes")}
    rows = [
        ["rows, and their size", f"{ran['rows']:,}, {gb['data_bytes']}"],
        ["limit of the process with the pages of its files", gb["limit_bytes"]],
        ["peak memory of the process", gb["peak_bytes"]],
        ["peak with the pages of files", f"{gb['group_peak_bytes']}, {ran['times_at_limit']:,} times at the limit"],
        ["training", f"{ran['train_s']:.0f} s"],
        [f"an epoch from storage of {float(speed):g} MB/s", f"{slow['epoch_s']:.1f} s"],
        ["reading these rows alone", f"{slow['read_s']:.1f} s"],
        ["learning these rows alone", f"{slow['learn_s']:.1f} s"],
    ]
    return table(["", ""], rows)


SECTIONS: dict[str, Callable[[Result], list[str]]] = {
    "mnist8m": mnist8m,
    "passes": passes,
    "out_of_core": out_of_core,
    "simulate": simulate,
    "learned": learned,
    "mnist": classification,
    "covtype": covtype,
    "ijcnn1": classification,
    "scan_rate": scan_rate,
    "screening": screening,
    "component": component,
    "additive": additive,
    "budgets": budgets,
    "startup": startup,
}


if __name__ == "__main__":
    main()
