"""Component-wise inference: tables compared with the direct form, for all four maps.

    python jobs/bench/additive.py [--kernels 200] [--rows 10000] [--repeats 5] [--trained 0]

MNIST after a projection to 50 components (ten classes) and ijcnn1 (two), on one thread. The machines have exactly the
requested number of kernels, with anchors and gammas from the data. The duals are random, because the time does not
depend on them, and scores are scaled as those of a trained machine. Times are measured with preparation of the rows
(`Model.decision_function`) and without it. Both forms are timed alternately, so that disturbances affect both, and the
fastest repeat counts. The deviation is measured on these rows, and on rows that are a million times as far away. The
job also measures after how many rows the time to make the tables is saved, by the number of kernels. With --trained N,
machines are also trained on N rows of MNIST and compared; from 600 rows on they have about 200 kernels, while those of
ijcnn1 are too sparse to need tables.

Writes results/additive.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from common import load, write

from mllkm_scale import Dataset, Model, train
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.data import Preprocessor
from mllkm_scale.kernels.gammas import auto_gammas
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import MAPS
from mllkm_scale.model import ModelRecord
from mllkm_scale.model.tables.additive import AdditiveModel, compile_additive

COMPONENTS = {"mnist": 50, "ijcnn1": None}
SCALING = {"mnist": "none", "ijcnn1": "standard"}
NUMBERS = (4, 8, 16, 32, 64, 128, 256, 1024)
SUPPORT = 1000
REQUIRED = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--trained", type=int, default=0, metavar="N", help="also machines trained on N rows of MNIST")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"setting": vars(arguments), "required_ratio": REQUIRED}
    rows = {name: load(name)["X_test"][: arguments.rows].astype(np.float64) for name in COMPONENTS}
    with one_blas_thread():
        warm_up()
        result["rows"] = {
            f"{name} {map}": compare(machine(name, map, arguments.kernels), rows[name], arguments.repeats)
            for name in COMPONENTS
            for map in MAPS
        }
        show(result["rows"])
        result["pays"] = {
            name: {map: [pays(name, map, number, rows[name]) for number in NUMBERS] for map in MAPS}
            for name in COMPONENTS
        }
        for name, maps in result["pays"].items():
            for map, found in maps.items():
                shown = ", ".join(f"{row['kernels']}: {row['rows_to_pay'] or np.inf:,.0f}" for row in found)
                print(f"{name} {map}: rows after which tables save time, by kernels: {shown}")
        if arguments.trained:
            result["trained"] = dict(trained(arguments, rows["mnist"]))
            show(result["trained"])
    slowest = min(row["ratio"] for row in result["rows"].values())
    result["least_ratio"] = slowest
    print(f"least ratio {slowest:.1f}, required {REQUIRED:.0f}: {'reached' if slowest >= REQUIRED else 'MISSED'}")
    print(f"written: {write('additive', result)}")


def machine(name: str, map: str, n_kernels: int) -> Model:
    """A component-wise machine with this number of kernels, whose decision values have a mean square of 1."""
    data = load(name)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(data["y"]))
    X, y = (data[key][order[: SUPPORT + n_kernels]] for key in ("X", "y"))
    dataset = Dataset.from_arrays(X.astype(np.float64), y)
    preprocessor = Preprocessor.fit(dataset, SCALING[name], COMPONENTS[name])
    Z = preprocessor.transform(X.astype(np.float64))
    classes = np.unique(y)
    positive = classes[1:] if len(classes) == 2 else classes
    plain = Family(map, componentwise=True)  # type: ignore[arg-type]
    family = Family(map, True, 0.2 * float(Z.var(axis=0).mean()))  # type: ignore[arg-type]
    gammas = rng.choice(auto_gammas(plain, Z), n_kernels)
    support, anchors = Z[:SUPPORT], Z[SUPPORT:]
    scales = 1.0 / family.kernels(anchors, gammas).diagonals(support).mean(axis=0)
    kernels = family.kernels(anchors, gammas, scales)
    signs = np.where(y[:SUPPORT, None] == positive, 1.0, -1.0)
    weights = rng.dirichlet(np.ones(n_kernels))
    coef, local_coef = kernels.coefficients(support, signs * rng.uniform(size=signs.shape), weights)
    size = np.sqrt(np.mean(family.kernels(anchors, gammas).decide(support, coef, local_coef) ** 2))
    record = ModelRecord(1.0, 1.0, 0.0, 0.01, "random duals", n_kernels, SUPPORT, 0)
    return Model(
        family, classes, anchors, gammas, scales, weights, coef / size, local_coef / size, preprocessor, record
    )


def compare(model: Model, X: np.ndarray, repeats: int) -> dict[str, Any]:
    """Tables against the direct form: time, ratio, deviation."""
    makings = [timed(lambda: compile_additive(model)) for _ in range(3)]
    making_s, tables = min(seconds for seconds, _ in makings), makings[0][1]
    direct = model.direct()
    Z = model.preprocessor.transform(X)
    kernels = model.family.kernels(model.anchors, model.gammas)
    height = direct.blocks.rows
    forms: dict[str, Callable[[], Any]] = {
        "direct": lambda: direct.decision_function(X),
        "tables": lambda: model.decision_function(X),
        "direct_prepared": lambda: [
            kernels.decide(Z[start : start + height], model.coef, model.local_coef)
            for start in range(0, len(Z), height)
        ],
        "tables_prepared": lambda: tables.decide(Z),
    }
    seconds: dict[str, list[float]] = {form: [] for form in forms}
    for repeat in range(1 + repeats):
        for form, work in forms.items():
            found, _ = timed(work)
            if repeat:
                seconds[form].append(found)
    us = {form: 1e6 * min(values) / len(X) for form, values in seconds.items()}
    exact, found = direct.decision_function(X), model.decision_function(X)
    return {
        "kernels": model.n_kernels,
        "features": tables.n_features,
        "machines": model.n_machines,
        "microseconds_a_row": us,
        "ratio": us["direct"] / us["tables"],
        "ratio_prepared": us["direct_prepared"] / us["tables_prepared"],
        "cells": tables.cells,
        "bytes": tables.bytes,
        "making_s": making_s,
        "deviation_bound": tables.deviation,
        "deviation_measured": float(np.abs(exact - found).max()),
        "deviation_far_out": far_out(direct, tables, X),
        "largest_value": float(np.abs(exact).max()),
        "labels_that_differ": int(np.count_nonzero(model.codes(exact) != model.codes(found))),
    }


def far_out(direct: Model, tables: AdditiveModel, X: np.ndarray) -> float:
    far = 1e6 * X[:200]
    exact = direct.decision_function(far)
    found = tables.decide(direct.preprocessor.transform(far))
    return float(np.abs(found - exact.reshape(found.shape)).max())


def pays(name: str, map: str, n_kernels: int, X: np.ndarray) -> dict[str, float | None]:
    """The number of rows after which tables save more time than it takes to make them; None means never."""
    model = machine(name, map, n_kernels)
    making_s = min(timed(lambda: compile_additive(model))[0] for _ in range(2))
    tables, direct, X = compile_additive(model), model.direct(), X[:1024]
    Z = model.preprocessor.transform(X)
    direct_s = min(timed(lambda: direct.decision_function(X))[0] for _ in range(3)) / len(X)
    prepare_s = min(timed(lambda: model.preprocessor.transform(X))[0] for _ in range(3)) / len(X)
    tables_s = min(timed(lambda: tables.decide(Z))[0] for _ in range(3)) / len(X) + prepare_s
    earned = direct_s - tables_s
    return {
        "kernels": n_kernels,
        "making_s": making_s,
        "bytes": tables.bytes,
        "direct_us": 1e6 * direct_s,
        "tables_us": 1e6 * tables_s,
        "rows_to_pay": making_s / earned if earned > 0 else None,
    }


def trained(arguments: argparse.Namespace, X: np.ndarray) -> Iterator[tuple[str, dict[str, Any]]]:
    """The same comparison of machines that were trained, with at most as many kernels."""
    data = load("mnist")
    dataset = Dataset.from_arrays(*(data[key][: arguments.trained] for key in ("X", "y")))
    for map in MAPS:
        outcome = train(
            dataset,
            map=map,
            componentwise=True,
            anchors="all",
            scaling=SCALING["mnist"],
            n_components=COMPONENTS["mnist"],
            max_kernels=arguments.kernels,
            time_limit=300.0,
        )
        yield f"mnist {map}", compare(outcome.model, X, arguments.repeats) | {"status": outcome.status}


def warm_up() -> None:
    """Compile the functions that are not in the cache of numba."""
    for map in MAPS:
        model = machine("ijcnn1", map, 20)
        model.decision_function(np.zeros((1, model.n_features_in)))


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def show(rows: dict[str, dict[str, Any]]) -> None:
    for name, row in rows.items():
        us = row["microseconds_a_row"]
        print(
            f"{name:20s} {row['kernels']:4d} kernels  {us['direct']:7.1f} -> {us['tables']:5.2f} us a row,"
            f" ratio {row['ratio']:5.1f} (prepared rows {row['ratio_prepared']:5.1f})  {row['bytes'] / 1e6:5.2f} MB"
            f" in {row['making_s']:.2f} s  off by {row['deviation_measured']:.1e}, far out"
            f" {row['deviation_far_out']:.1e}, at most {row['deviation_bound']:.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
