"""Error and prediction cost: MLLKM of several sizes, and other methods with fast prediction (reviewers 3 and 6).

The cost of a method is the time to predict all test rows on one thread, divided by that of a linear SVM in the same
run. One MLLKM is trained with all samples as anchors. Smaller ones keep its kernels with the largest weights, for which
weights and duals are solved again, or are trained with the defaults, which learn kernels, and a limit of kernels.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.report.style import styled
from mllkm_scale.reproduce.measure import Split, best_time_s, tested
from mllkm_scale.reproduce.parts import Parts, Record, markdown_table
from mllkm_scale.reproduce.parts import figure as shown
from mllkm_scale.reproduce.reviewers.comparison import Comparison, Tell
from mllkm_scale.reproduce.reviewers.tasks import TASKS, Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mllkm_scale.training import TrainResult

__all__ = ["COSTS", "costs_of"]

OURS, LEARNED = "MLLKM", "MLLKM, learned"
COLOURS = {
    LEARNED: "#b2182b",
    OURS: "#f4a582",
    "linear SVM": "#5a5a5a",
    "LLSVM": "#1b7837",
    "LDKL": "#e08214",
    "DC-Pred++": "#762a83",
    "Nystroem": "#2166ac",
    "SVC (RBF)": "black",
}
MARKERS = {
    LEARNED: "o",
    OURS: "o",
    "linear SVM": "x",
    "LLSVM": "^",
    "LDKL": "D",
    "DC-Pred++": "s",
    "Nystroem": "v",
    "SVC (RBF)": "*",
}


def costs_of(names: Iterable[str], parts: Parts, tell: Tell, quick: bool) -> Record:
    """The points of every data set: method, size, error, cost, seconds."""
    from mllkm_scale.errors import FetchError

    record: Record = {}
    for name in names:
        task = TASKS[name]
        try:
            split = task.split(tell, quick)
        except FetchError as error:
            tell(f"{name} is left out: {error}")
            continue
        tell(f"{name}: {len(split.y):,} rows for training, {len(split.y_test):,} for testing")
        record[name] = {
            "train_rows": len(split.y),
            "test_rows": len(split.y_test),
            "features": split.X.shape[1],
            "points": _points(task, split, parts, tell, quick),
        }
    return record


def _points(task: Task, split: Split, parts: Parts, tell: Tell, quick: bool) -> list[Record]:
    setting: Record = {"rows": [len(split.y), len(split.y_test)]}
    points: list[Record] = []

    def add(found: Record) -> None:
        points.append(found)
        cost = found["predict_s"] / points[0]["predict_s"]
        line = f"{found['error']:.2f} % error, {cost:.1f} times linear, trained in {found['train_s']:.1f} s"
        tell(f"  {found['method']} {found['size']}: {line}")

    with one_blas_thread():
        for number, machine in enumerate(task.machines()):
            part = f"costs-{task.name}-{number}"
            own = setting | {"machine": repr(machine.estimator)}
            found = parts.found(part, own)
            if found is None:
                found = tested(machine.estimator, split)
                parts.keep(part, own, found)
            add({"method": machine.method, "size": machine.size, "error": 100.0 - found["accuracy"]} | found)
        own = setting | {"parameters": task.mllkm, "counts": task.counts}
        ours = parts.get(f"costs-{task.name}-mllkm", own, lambda: {"sizes": list(_mllkm(task, split, quick))})
        own = setting | {"parameters": task.defaults, "counts": task.counts}
        learned = parts.get(f"costs-{task.name}-learned", own, lambda: {"sizes": list(_learned(task, split))})
        for method, sizes in ((OURS, ours["sizes"]), (LEARNED, learned["sizes"])):
            for found in sizes:
                size, error = f"{found['kernels']} kernels", 100.0 - found["accuracy"]
                add({"method": method, "size": size, "error": error} | found)
    return points


def _mllkm(task: Task, split: Split, quick: bool) -> Iterator[Record]:
    """A machine over all kernels, and machines of fewer kernels from its last checkpoint, in decreasing order."""
    from mllkm_scale import Dataset, train

    X, X_test = split.X.astype(np.float32), split.X_test.astype(np.float32)
    dataset = Dataset.from_arrays(X, split.y)
    params: dict[str, Any] = task.mllkm | {"anchors": "all", "scaling": "none", "memory_budget": "4GB"}
    if quick:
        params |= {"tol": 0.2, "anchors": 200}
    with tempfile.TemporaryDirectory() as name:
        whole = Path(name) / "whole"
        before = 0
        for count in (None, *sorted(task.counts, reverse=True)):
            if count is not None and count >= before:
                continue
            started = time.perf_counter()
            if count is None:
                result = train(dataset, run_dir=whole, **params)
            else:
                shutil.copytree(whole, Path(name) / "smaller")
                result = train(dataset, run_dir=Path(name) / "smaller", resume=True, max_kernels=count, **params)
                shutil.rmtree(Path(name) / "smaller")
            before = result.model.n_kernels
            yield _measured(result, time.perf_counter() - started, X_test, split.y_test)


def _learned(task: Task, split: Split) -> Iterator[Record]:
    """Machines of the defaults with fewer and fewer kernels."""
    from mllkm_scale import Dataset, train

    X, X_test = split.X.astype(np.float32), split.X_test.astype(np.float32)
    dataset = Dataset.from_arrays(X, split.y)
    for count in sorted(task.counts, reverse=True):
        started = time.perf_counter()
        result = train(dataset, max_kernels=count, memory_budget="4GB", **task.defaults)
        yield _measured(result, time.perf_counter() - started, X_test, split.y_test)


def _measured(result: TrainResult, train_s: float, X_test: Array, y_test: Array) -> Record:
    """A point of the comparison."""
    from mllkm_scale.base.units import format_bytes

    model = result.model
    labels, predict_s = best_time_s(_OneThread(model), X_test)
    return {
        "kernels": model.n_kernels,
        "accuracy": 100.0 * float(np.mean(labels == y_test)),
        "train_s": train_s,
        "predict_s": predict_s,
        "gap": model.certificate.gap,
        "n_open": model.certificate.n_open,
        "peak": format_bytes(result.peak_bytes),
    }


class _OneThread:
    """A model that predicts on the calling thread, like the other methods."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def predict(self, X: Any) -> Any:
        return self._model.predict(X, n_jobs=1)


def _run(parts: Parts, tell: Tell, quick: bool) -> Record:
    return costs_of(("usps",) if quick else TASKS, parts, tell, quick)


def _markdown(record: Record) -> list[str]:
    lines = []
    for name, found in record.items():
        lines += [
            f"### {name}",
            "",
            f"{found['train_rows']:,} training rows, {found['test_rows']:,} test rows, {found['features']} features.",
            "",
        ]
        linear = found["points"][0]["predict_s"]
        rows = [
            [
                point["method"],
                point["size"],
                f"{point['error']:.2f} %",
                f"{shown(1e6 * point['predict_s'] / found['test_rows'])} us",
                shown(point["predict_s"] / linear),
                f"{shown(point['train_s'])} s",
            ]
            for point in found["points"]
        ]
        head = ["method", "size", "test error", "prediction of a row", "times linear", "training"]
        lines += [*markdown_table(head, rows), ""]
    return lines


@styled
def _draw(record: Record) -> Figure:
    """One panel per data set: lower and further to the left is better."""
    from matplotlib.figure import Figure

    columns = min(3, len(record))
    lines = -(-len(record) // columns)
    figure = Figure(figsize=(2.45 * columns + 0.3, 2.25 * lines + 0.4))
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes, (name, found) in zip(panels, record.items(), strict=False):
        linear = found["points"][0]["predict_s"]
        for method in dict.fromkeys(point["method"] for point in found["points"]):
            points = [point for point in found["points"] if point["method"] == method]
            points.sort(key=lambda point: point["predict_s"])
            costs = [point["predict_s"] / linear for point in points]
            style = {"color": COLOURS[method], "marker": MARKERS[method], "ms": 6 if method == "SVC (RBF)" else 4}
            axes.plot(costs, [point["error"] for point in points], lw=0.9, label=method, **style)
        axes.set(xscale="log", yscale="log")
        axes.set_title(f"{name} ({found['train_rows']:,} rows)")
        axes.grid(True, which="both", lw=0.3, color="#dddddd")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.tick_params(axis="y", which="minor", labelsize=6)
    for axes in panels[len(record) :]:
        axes.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    if len(record) < len(panels):
        panels[-1].legend(handles, labels, loc="center", fontsize=8)
    else:
        figure.legend(handles, labels, loc="outside right center")
    figure.supxlabel("time of a prediction, in times of a linear SVM", fontsize=8)
    figure.supylabel("test error (%)", fontsize=8)
    return figure


COSTS = Comparison(
    "costs",
    "How large is the error for a given cost of prediction, compared with LLSVM, LDKL, DC-Pred++, Nystroem and SVC?",
    _run,
    _markdown,
    _draw,
)
