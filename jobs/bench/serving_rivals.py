"""Other methods, measured as in `serving.py`: the same rows, one at a time and all at once.

    C header            the machine itself in float32, compiled by gcc, called in a loop of C
    ONNX runtime        the machine itself in single precision
    LightGBM            100 trees per class with default leaves, by its Booster
    linear              logistic regression of scikit-learn; and only its product, by NumPy and by ONNX runtime

Trees and linear models are trained on the same 2,000 rows. All use one thread. Packages that are not installed are left
out.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from mllkm_scale import Model
from mllkm_scale.export import export_c, export_onnx

__all__ = ["Rival", "compiled_us", "rivals_of"]

TREES = 100
TRAINING_ROWS = 2000
_ROWS = 100  # that C predicts at a time; the best of many short measurements is an undisturbed one
FLAGS = ("-O2", "-O3 -march=native")
DRIVER = """
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <time.h>
#include "model.h"
static float x[@ROWS@][MLLKM_N_FEATURES];
int main(void)
{
    struct timespec begun, done;
    double least = 1e30;
    long n = (long)fread(x, sizeof x[0], @ROWS@, stdin), i, repeat, sum = 0;
    for (repeat = 0; repeat < @REPEATS@; repeat++) {
        double us;
        clock_gettime(CLOCK_MONOTONIC, &begun);
        for (i = 0; i < n; i++)
            sum += mllkm_predict(x[i]);
        clock_gettime(CLOCK_MONOTONIC, &done);
        us = 1e6 * (double)(done.tv_sec - begun.tv_sec) + 1e-3 * (double)(done.tv_nsec - begun.tv_nsec);
        least = us < least ? us : least;
    }
    printf("%.9g %ld\\n", least / (double)n, sum);
    return 0;
}
"""


@dataclass(frozen=True)
class Rival:
    """A call for one row, and a call for many."""

    name: str
    one: Callable[[Any], object]
    many: Callable[[Any], object]
    rows: np.ndarray  # in the type that needs no conversion


def rivals_of(model: Model, data: dict[str, np.ndarray], X: np.ndarray) -> Iterator[Rival]:
    """Those that are installed, for rows X."""
    yield Rival("`Server.label`; `Model.predict`", model.server().label, partial(model.predict, n_jobs=1), X)
    single = X.astype(np.float32)
    if find_spec("onnxruntime") is not None and find_spec("onnx") is not None:
        with tempfile.TemporaryDirectory() as folder:
            export_onnx(model, Path(folder, "model.onnx"), precision="single")
            written = Path(folder, "model.onnx").read_bytes()
        yield Rival("ONNX runtime, the same machine", *_session_calls(written), single)
    chosen = np.random.default_rng(1).permutation(len(data["y"]))[:TRAINING_ROWS]
    X_train, y_train = data["X"][chosen].astype(np.float64), data["y"][chosen]
    if find_spec("lightgbm") is not None:
        yield _trees(X_train, y_train, X)
    yield from _linear(X_train, y_train, X)


def compiled_us(model: Model, X: np.ndarray, repeats: int) -> dict[str, float]:
    """Microseconds per row of the C header, by the options of the compiler."""
    if shutil.which("gcc") is None:
        return {}
    rows = X[:_ROWS].astype(np.float32)
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export_c(model, folder / "model.h")
        text = DRIVER.replace("@ROWS@", str(len(rows))).replace("@REPEATS@", str(100 * repeats))
        (folder / "main.c").write_text(text)
        for flags in FLAGS:
            command = ["gcc", "-std=c99", *flags.split(), "-o", "main", "main.c", "-lm"]
            subprocess.run(command, cwd=folder, check=True)
            said = subprocess.run([folder / "main"], input=rows.tobytes(), capture_output=True, check=True).stdout
            found[flags] = float(said.split()[0])
    return found


def _session_calls(written: bytes) -> tuple[Callable[[Any], object], Callable[[Any], object]]:
    """Calls of a session for a row, and for many."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
    session = onnxruntime.InferenceSession(written, options, providers=["CPUExecutionProvider"])
    name, output = session.get_inputs()[0].name, [session.get_outputs()[0].name]
    return lambda row: session.run(output, {name: row[None]}), lambda rows: session.run(output, {name: rows})


def _trees(X_train: np.ndarray, y_train: np.ndarray, X: np.ndarray) -> Rival:
    from lightgbm import LGBMClassifier

    booster = LGBMClassifier(n_estimators=TREES, n_jobs=1, verbose=-1).fit(X_train, y_train).booster_
    n_classes = len(np.unique(y_train))
    name = f"LightGBM, {TREES if n_classes == 2 else TREES * n_classes:,} trees"
    return Rival(
        name,
        lambda row: booster.predict(row[None], num_threads=1),
        lambda rows: booster.predict(rows, num_threads=1),
        X,
    )


def _linear(X_train: np.ndarray, y_train: np.ndarray, X: np.ndarray) -> Iterator[Rival]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200, tol=1e-2)).fit(X_train, y_train)
    yield Rival("logistic regression, scikit-learn", lambda row: pipeline.predict(row[None]), pipeline.predict, X)
    scaler, linear = pipeline[0], pipeline[1]
    W = np.ascontiguousarray((linear.coef_ / scaler.scale_).T)
    b = linear.intercept_ - scaler.mean_ @ W
    decide = (lambda F: F[..., 0] > 0) if W.shape[1] == 1 else (lambda F: F.argmax(axis=-1))
    yield Rival("the same, one product of NumPy", lambda row: decide(row @ W + b), lambda rows: decide(rows @ W + b), X)
    if find_spec("onnxruntime") is not None and find_spec("onnx") is not None:
        yield Rival("the same, ONNX runtime", *_session_calls(_gemm(W, b)), X.astype(np.float32))


def _gemm(W: np.ndarray, b: np.ndarray) -> bytes:
    """x W + b as a graph."""
    from onnx import TensorProto, helper, numpy_helper

    constants = [numpy_helper.from_array(v.astype(np.float32), name) for v, name in ((W, "W"), (b, "b"))]
    value = [helper.make_tensor_value_info("features", TensorProto.FLOAT, [None, len(W)])]
    score = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [None, W.shape[1]])]
    graph = helper.make_graph([helper.make_node("Gemm", ["features", "W", "b"], ["scores"])], "linear", value, score)
    graph.initializer.extend(constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())
