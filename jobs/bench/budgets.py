"""Memory budgets: the same training run within 0.5, 1, 2 and 4 GB, and the benefit of the store of Gram tiles.

    python jobs/bench/budgets.py [--budgets 0.5GB 1GB 2GB 4GB] [--rows 10000] [--C 10] [--tol 0.02]

MNIST, all 784 pixels, ten classes, all samples as anchors. Each training run is a separate process. Its peak memory
must stay below the budget, and its time is compared with that of the largest budget. If the plan refuses a budget, its
message is shown. Then an inner problem of the smallest budget is solved on Gram tiles, as if the interior point did not
fit: with tiles kept within the budget, and with tiles that are computed each time. Writes results/budgets.json with the
history of the rounds, and prints a line per budget beside the goal.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from child import train_in_child
from common import load, write, write_hdf5
from tiles import compare_tiles

from mllkm_scale import Dataset, Model
from mllkm_scale.base.units import format_bytes, parse_bytes
from mllkm_scale.errors import BudgetError
from mllkm_scale.params import resolve
from mllkm_scale.plan.training import make_plan

GOAL = 2.5  # times the seconds of the largest budget, at most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budgets", nargs="+", default=["0.5GB", "1GB", "2GB", "4GB"])
    parser.add_argument("--rows", type=int, default=10_000, help="first training rows")
    parser.add_argument("--C", type=float, default=10.0)
    parser.add_argument("--tol", type=float, default=0.02)
    arguments = parser.parse_args()
    data = load("mnist")
    X, y = data["X"][: arguments.rows], data["y"][: arguments.rows]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_hdf5(folder / "train.h5", X, y)
        write_hdf5(folder / "test.h5", data["X_test"], data["y_test"])
        budgets = sorted(arguments.budgets, key=parse_bytes)
        found = {budget: train_within(budget, folder, arguments) for budget in budgets}
        trained = [budget for budget, record in found.items() if "refused" not in record]
        if not trained:
            raise SystemExit("every budget was refused")
        least, most = found[trained[0]], found[trained[-1]]
        for budget in trained:
            found[budget]["times_the_largest"] = found[budget]["train_s"] / most["train_s"]
        for budget, record in found.items():
            print(f"{budget:>6s}: {line(record)}", flush=True)
        model = Model.load(folder / trained[0] / "model.mllkm")
    tiles = compare_tiles(model, X, y, least["plan"]["inner_bytes"], 0.2 * arguments.tol)
    print(
        f"{tiles['samples']} samples, {tiles['kernels']} kernels on tiles: {tiles['kept_s']:.1f} s with a store of"
        f" {format_bytes(tiles['store_bytes'])}, {tiles['made_anew_s']:.1f} s without it:"
        f" {tiles['ratio']:.1f} times as long"
    )
    result = {"setting": vars(arguments), "goal": GOAL, "budgets": found, "tiles": tiles}
    print(f"written: {write('budgets', result)}")


def train_within(budget: str, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The record of a training run within this budget, or the reason why there is none."""
    params = {"C": arguments.C, "tol": arguments.tol, "anchors": "all", "scaling": "none", "memory_budget": budget}
    try:
        with Dataset.open(folder / "train.h5") as dataset:
            make_plan(dataset, resolve(**params))
    except BudgetError as error:
        return {"refused": str(error)}
    record = train_in_child(folder / "train.h5", folder / "test.h5", folder / budget, params)
    return record | {"within": record["peak_bytes"] <= parse_bytes(budget)}


def line(record: dict[str, Any]) -> str:
    if "refused" in record:
        return f"refused: {record['refused']}"
    forms = ", ".join(f"{count} {form}" for form, count in record["inner"][0]["forms"].items())
    ratio = record["times_the_largest"]
    return (
        f"peak {record['peak']} ({'within' if record['within'] else 'EXCEEDED'}), {record['train_s']:.1f} s,"
        f" {ratio:.2f} times the largest (goal: {GOAL:g}, {'reached' if ratio <= GOAL else 'MISSED'}),"
        f" rounds: {forms}, error {record['test_error_percent']:.2f} %, gap {100 * record['gap']:.2f} %,"
        f" {record['size']}"
    )


if __name__ == "__main__":
    main()
