"""The benefit of keeping Gram tiles: the SVMs of one class on tiles that are kept, and on tiles that are computed each
time.

The kernels and weights are those of a trained model, and the samples are the working samples of a training run: those
within the margin or just beyond it, of the class with most of them. Tiles are reused in all epochs of an SVM, as far as
the store has space for them.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from mllkm_scale import Model
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.gram.store import TileStore
from mllkm_scale.mkl.forms import InnerSizes, tile_bytes
from mllkm_scale.mkl.state import Settings
from mllkm_scale.solver.svm import EpochLimits
from mllkm_scale.solver.tiled_svm import TiledSVM

MOST_EPOCHS = 50


def compare_tiles(model: Model, X: np.ndarray, y: np.ndarray, inner_bytes: int, tol: float) -> dict[str, Any]:
    """Seconds with a store in the rest of `inner_bytes`, and with a store that keeps nothing."""
    all_signs = np.where(y[:, None] == model.classes, 1.0, -1.0)
    near = all_signs * model.decision_function(X, n_jobs=-1) < Settings.margin
    k = int(np.argmax(near.sum(axis=0)))
    rows, signs = model.preprocessor.transform(X[near[:, k]]).astype(np.float64), all_signs[near[:, k], k]
    kernels = model.family.kernels(model.anchors, model.gammas, model.kernel_scale)
    C = float(model.certificate.params["C"])
    ram_bytes = max(0, inner_bytes - tile_bytes(InnerSizes([len(rows)], len(kernels), rows.shape[1], False)))
    found: dict[str, Any] = {"class": int(model.classes[k]), "samples": len(rows), "kernels": len(kernels)}
    found["store_bytes"] = ram_bytes
    solutions = []
    for name, size_bytes in (("kept", ram_bytes), ("made_anew", 0)):
        with one_blas_thread(), TileStore(size_bytes) as store:
            started = time.perf_counter()
            svm = TiledSVM(kernels, rows, signs, C, store)
            solutions.append(svm.solve(model.weights, np.zeros(len(rows)), EpochLimits(tol, MOST_EPOCHS)))
            found[f"{name}_s"] = time.perf_counter() - started
            found[f"{name}_requests"], found[f"{name}_misses"] = store.statistics.requests, store.statistics.misses
    if not np.array_equal(solutions[0].duals, solutions[1].duals):
        raise SystemExit("tiles that are computed again give other bits")
    return found | {
        "epochs": solutions[0].epochs,
        "gap": solutions[0].gap,
        "ratio": found["made_anew_s"] / found["kept_s"],
    }
