"""All samples as anchors, random samples, and k-means centres (reviewers 4 and 6): error, size and time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from mllkm_scale.report.style import BLUE, GREY, ORANGE, styled
from mllkm_scale.reproduce.measure import Split
from mllkm_scale.reproduce.parts import Parts, Record, markdown_table
from mllkm_scale.reproduce.parts import figure as shown
from mllkm_scale.reproduce.reviewers.comparison import Comparison, Tell
from mllkm_scale.reproduce.reviewers.tasks import TASKS, Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ANCHORS"]

DATA = ("usps", "ijcnn1")
ROWS = 8_000  # of a data set at most: all of them as anchors, and quickly
COUNTS = (50, 200, 800)
KINDS = {"all samples": BLUE, "random samples": GREY, "k-means centres": ORANGE}


def _run(parts: Parts, tell: Tell, quick: bool) -> Record:
    from mllkm_scale.errors import FetchError

    record: Record = {}
    for name in DATA[:1] if quick else DATA:
        task = TASKS[name]
        try:
            split = task.split(tell, quick)
        except FetchError as error:
            tell(f"{name} is left out: {error}")
            continue
        rows = np.random.default_rng(1).permutation(len(split.y))[:ROWS]
        split = Split(split.X[rows], split.y[rows], split.X_test, split.y_test)
        points = []
        for kind, anchors in _choices(quick):
            own = {"rows": [len(split.y), len(split.y_test)], "anchors": anchors, "parameters": task.mllkm}
            part = f"anchors-{name}-{str(anchors).replace(':', '-')}"
            found = parts.found(part, own)
            if found is None:
                found = _trained(task, split, anchors)
                parts.keep(part, own, found)
            points.append({"kind": kind, "candidates": anchors} | found)
            tell(f"{name}, anchors {anchors}: {found['error']:.2f} % error, {found['kernels']} kernels")
        record[name] = {"train_rows": len(split.y), "points": points}
    return record


def _choices(quick: bool) -> list[tuple[str, str | int]]:
    counts = COUNTS[:1] if quick else COUNTS
    random: list[tuple[str, str | int]] = [("random samples", count) for count in counts]
    return [("all samples", "all"), *random, *(("k-means centres", f"kmeans:{count}") for count in counts)]


def _trained(task: Task, split: Split, anchors: str | int) -> Record:
    from mllkm_scale import Dataset, train

    params: dict[str, Any] = task.mllkm | {"scaling": "none", "anchors": anchors, "memory_budget": "4GB"}
    started = time.perf_counter()
    result = train(Dataset.from_arrays(split.X.astype(np.float32), split.y), **params)
    labels = result.model.predict(split.X_test.astype(np.float32), n_jobs=-1)
    certificate = result.model.certificate
    return {
        "error": 100.0 * float(np.mean(labels != split.y_test)),
        "kernels": result.model.n_kernels,
        "open": certificate.n_open,
        "primal": certificate.primal,
        "train_s": time.perf_counter() - started,
    }


def _markdown(record: Record) -> list[str]:
    lines = []
    for name, found in record.items():
        rows = [
            [
                f"{point['kind']}{'' if point['candidates'] == 'all' else ', ' + _count(point['candidates'])}",
                f"{point['open']:,}",
                f"{point['error']:.2f} %",
                f"{point['kernels']:,}",
                f"{point['primal'] / found['points'][0]['primal']:.3f}",
                f"{shown(point['train_s'])} s",
            ]
            for point in found["points"]
        ]
        head = ["anchors", "candidate kernels", "test error", "kernels", "objective", "training"]
        lines += [f"### {name}, {found['train_rows']:,} rows", "", *markdown_table(head, rows), ""]
    return lines


def _count(candidates: str | int) -> str:
    return f"{int(str(candidates).removeprefix('kmeans:')):,}"


@styled
def _draw(record: Record) -> Figure:
    """Error against the kernels that the model keeps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.4 * len(record) + 0.4, 2.5))
    for axes, (name, found) in zip(figure.subplots(1, len(record), squeeze=False)[0], record.items(), strict=True):
        for kind, colour in KINDS.items():
            points = [point for point in found["points"] if point["kind"] == kind]
            marker = "*" if kind == "all samples" else "o"
            axes.plot(
                [point["kernels"] for point in points],
                [point["error"] for point in points],
                marker=marker,
                ms=8 if marker == "*" else 4,
                color=colour,
                label=kind,
            )
        axes.set(xscale="log", title=name, xlabel="kernels of the model")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("{x:g}")
        axes.tick_params(axis="x", which="minor", labelsize=6)
        axes.grid(True, which="both", lw=0.3, color="#dddddd")
    figure.axes[0].set_ylabel("test error (%)")
    figure.axes[0].legend()
    return figure


ANCHORS = Comparison(
    "anchors",
    "Are all samples needed as anchors, or are k-means centres sufficient, and faster in prediction?",
    _run,
    _markdown,
    _draw,
)
