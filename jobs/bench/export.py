"""Exports on MNIST: deviation of ONNX and C from Python, and the time of a row in each.

    python jobs/bench/export.py [--rows 2000] [--components 50] [--kernels 200] [--test 1000] [--repeats 5]
                                [--time-limit 120]

Machines of all four maps, global and component-wise, are trained on the first rows of MNIST, ten classes, and exported.
Scores of test rows are compared with those of Python, kernel by kernel in double precision; differing labels are
counted separately if two scores differ by less than 1e-5. Every target is timed on one thread, row by row and, if it
supports batches, in one batch; the fastest repeat counts. C is compiled with gcc -O2, and left out without gcc; ONNX is
left out without onnxruntime.

Writes results/export.json.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import load, write

from mllkm_scale import Dataset, Model, train
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.export import export_c, export_npz, export_onnx
from mllkm_scale.kernels.maps import MAPS

REQUIRED = 1e-5
SINGLE_ROWS = 200
DRIVER = """
#include "model.h"
void run(long n, const float *x, float *scores, int *codes)
{
    for (long i = 0; i < n; i++) {
        if (scores)
            mllkm_scores(x + i * MLLKM_N_FEATURES, scores + i * MLLKM_N_SCORES);
        else
            codes[i] = mllkm_predict(x + i * MLLKM_N_FEATURES);
    }
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2000, help="first training rows")
    parser.add_argument("--components", type=int, default=50)
    parser.add_argument("--kernels", type=int, default=200, help="most kernels of a machine")
    parser.add_argument("--test", type=int, default=1000, help="first test rows")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--time-limit", type=float, default=120.0, help="seconds of a training run")
    arguments = parser.parse_args()
    data = load("mnist")
    rows = data["X_test"][: arguments.test].astype(np.float32)
    result: dict[str, Any] = {"setting": vars(arguments), "required": REQUIRED, "machines": {}}
    for componentwise in (False, True):
        for map in MAPS:
            outcome = train(
                Dataset.from_arrays(data["X"][: arguments.rows], data["y"][: arguments.rows]),
                map=map,
                componentwise=componentwise,
                anchors="all",
                scaling="none",
                n_components=arguments.components,
                max_kernels=arguments.kernels,
                time_limit=arguments.time_limit,
            )
            name = f"{map}, {'component-wise' if componentwise else 'global'}"
            with tempfile.TemporaryDirectory() as folder, one_blas_thread():
                found = measure(outcome.model, rows, Path(folder), arguments.repeats)
            result["machines"][name] = {"kernels": outcome.model.n_kernels, "status": outcome.status, "targets": found}
            show(name, outcome.model, found)
    deviations = [
        target["deviation"]
        for machine in result["machines"].values()
        for target in machine["targets"].values()
        if "deviation" in target
    ]
    result["largest_deviation"] = max(deviations)
    reached = "reached" if result["largest_deviation"] <= REQUIRED else "MISSED"
    print(f"largest deviation {result['largest_deviation']:.1e}, required {REQUIRED:.0e}: {reached}")
    print(f"written: {write('export', result)}")


def measure(model: Model, rows: np.ndarray, folder: Path, repeats: int) -> dict[str, dict[str, Any]]:
    """Deviation, sizes and times of every target."""
    expected = model.direct().decision_function(rows)
    forms = ("tables", "direct") if model.family.componentwise else ("direct",)
    found: dict[str, dict[str, Any]] = {"python": measure_python(model, rows, expected, repeats)}
    if model.family.componentwise:
        found["python direct"] = measure_python(model.direct(), rows, expected, repeats)
    for form in forms:
        for precision in ("mixed", "single"):
            onnx_result = measure_onnx(model, rows, expected, folder, repeats, form, precision)
            if onnx_result is not None:
                found[f"onnx {form} {precision}"] = onnx_result
        c_result = measure_c(model, rows, expected, folder, repeats, form)
        if c_result is not None:
            found[f"c {form}"] = c_result
    found["npz"] = {"bytes": export_npz(model, folder / "model.npz").size_bytes}
    return found


def measure_python(model: Model, rows: np.ndarray, expected: np.ndarray, repeats: int) -> dict[str, Any]:
    return {
        "deviation": float(np.abs(model.decision_function(rows) - expected).max()),
        "row_us": timed(lambda: [model.decision_function(row) for row in singles(rows)], repeats, SINGLE_ROWS),
        "batch_us": timed(lambda: model.decision_function(rows), repeats, len(rows)),
    }


def measure_onnx(
    model: Model, rows: np.ndarray, expected: np.ndarray, folder: Path, repeats: int, form: str, precision: str
) -> dict[str, Any] | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    path = folder / "model.onnx"
    summary = export_onnx(model, path, form=form, precision=precision, overwrite=True)  # type: ignore[arg-type]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    label, scores = session.run(None, {"features": rows})
    return {
        "bytes": summary.size_bytes,
        **agreement(model, expected, scores, np.searchsorted(model.classes, label)),
        "row_us": timed(lambda: [session.run(None, {"features": row}) for row in singles(rows)], repeats, SINGLE_ROWS),
        "batch_us": timed(lambda: session.run(None, {"features": rows}), repeats, len(rows)),
    }


def measure_c(
    model: Model, rows: np.ndarray, expected: np.ndarray, folder: Path, repeats: int, form: str
) -> dict[str, Any] | None:
    gcc = shutil.which("gcc")
    if gcc is None:
        return None
    summary = export_c(model, folder / "model.h", form=form, overwrite=True)  # type: ignore[arg-type]
    (folder / "model.c").write_text(DRIVER)
    # Another name each time: a library that is loaded already is not loaded again.
    library = folder / f"{form}.so"
    subprocess.run([gcc, "-std=c99", "-O2", "-shared", "-fPIC", "-o", library, folder / "model.c", "-lm"], check=True)
    run = ctypes.CDLL(str(library)).run
    scores, codes = np.empty((len(rows), model.n_machines), np.float32), np.empty(len(rows), np.int32)
    x, f, c = (ctypes.c_void_p(values.ctypes.data) for values in (rows, scores, codes))
    run(ctypes.c_long(len(rows)), x, f, None)
    run(ctypes.c_long(len(rows)), x, None, c)
    return {
        "bytes": summary.size_bytes,
        "constant_bytes": summary.constant_bytes,
        "stack_bytes": summary.stack_bytes,
        **agreement(model, expected, scores, codes),
        "row_us": timed(lambda: run(ctypes.c_long(len(rows)), x, f, None), repeats, len(rows)),
    }


def agreement(model: Model, expected: np.ndarray, scores: np.ndarray, codes: np.ndarray) -> dict[str, Any]:
    best = np.sort(expected, axis=1)
    differs = model.codes(expected) != codes
    sure = best[:, -1] - best[:, -2] > REQUIRED
    return {
        "deviation": float(np.abs(scores - expected).max()),
        "labels_that_differ": int(np.count_nonzero(differs & sure)),
        "labels_that_differ_in_doubt": int(np.count_nonzero(differs & ~sure)),
    }


def singles(rows: np.ndarray) -> list[np.ndarray]:
    return [rows[i : i + 1] for i in range(SINGLE_ROWS)]


def timed(work: Callable[[], Any], repeats: int, n_rows: int) -> float:
    """Microseconds a row of the fastest repeat; the first call only fills the caches."""
    work()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return 1e6 * min(seconds) / n_rows


def show(name: str, model: Model, targets: dict[str, dict[str, Any]]) -> None:
    print(f"{name}: {model.n_kernels} kernels")
    for target, row in targets.items():
        if "deviation" in row:
            batch = f", {row['batch_us']:7.1f} us in a batch" if "batch_us" in row else ""
            size = f"{row['bytes'] / 1e6:7.2f} MB" if "bytes" in row else " " * 10
            print(
                f"  {target:22s} off by {row['deviation']:.1e}, {row.get('labels_that_differ', 0)} labels differ"
                f" {size} {row['row_us']:8.1f} us a row{batch}",
                flush=True,
            )


if __name__ == "__main__":
    main()
