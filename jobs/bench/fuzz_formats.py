"""A small intact file of every format that the package reads, and a reader for each, for `fuzz.py`.

A reader takes a path, and returns a text that identifies the result: the contents, or the model of training that uses
or resumes from the file. It copies the other files that are needed.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import h5py
import numpy as np
import zarr
from scipy import sparse

from mllkm_scale import Dataset, load_model, train
from mllkm_scale.data import check, convert
from mllkm_scale.data.sparse.rows import SPARSE_ARRAYS
from mllkm_scale.export import export_c, export_integer_c, export_npz, export_onnx
from mllkm_scale.kernels.anchors import read_anchors
from mllkm_scale.model import describe, model_checksum
from mllkm_scale.online import open_samples, stream
from mllkm_scale.path import train_path
from mllkm_scale.path.folder import read_path
from mllkm_scale.path.points import best_point, knee_point
from mllkm_scale.prediction import explain_file, predict_file
from mllkm_scale.report.comparison import _lines, _parameters
from mllkm_scale.report.curves import plan_rows
from mllkm_scale.report.explained import importance_bars, shown_row
from mllkm_scale.report.facts import cards, data_facts, parameters, result_facts
from mllkm_scale.report.learning import learning_section
from mllkm_scale.report.run_files import read_run
from mllkm_scale.run.job import load_job

__all__ = ["Format", "make_formats"]

QUIET: dict[str, Any] = {"n_jobs": 1, "report": False}
ROUNDS: dict[str, Any] = {"anchors": "all", "C": 1.0, "max_rounds": 2, "tol": 1e-4, **QUIET}
LEARNED: dict[str, Any] = {"anchors": "learned:4", **QUIET}
COMPETING: dict[str, Any] = {"max_rounds": 1, **QUIET}
SIZED: dict[str, Any] = {"max_bytes": 600, **QUIET}
STREAMED: dict[str, Any] = {"warm_up": 30, "checkpoint_s": 0.0, **QUIET}
SIZES: dict[str, Any] = {"kernel_counts": [4, 2], "max_rounds": 2, **QUIET}
JOB_FILE = """\
[data]
path = "data.h5"
x = "X"

[parameters]
C = 1.0
gammas = [0.1, 1.0]
max_rounds = 3

[budget]
memory = "1GB"

[cluster]
kind = "local"
workers = 2

[output]
run = "run"
progress = "plain"
"""


@dataclass(frozen=True)
class Format:
    """A file, its reader, and its type: an archive of some kind, or JSON."""

    path: Path
    read: Callable[[Path], str]
    archive: str = ""
    is_json: bool = False

    @property
    def checked(self) -> bool:
        """Whether damage is always detected."""
        return bool(self.archive)


def make_formats(folder: Path) -> dict[str, Format]:
    """An intact file of every format, and its reader."""
    source = folder / "whole"
    source.mkdir(parents=True)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)).round(3)
    y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    write_data(source, X, y)
    train_all(source)
    return run_formats(source) | data_formats(source)


# ---- the files


def write_data(source: Path, X: np.ndarray, y: np.ndarray) -> None:
    """The same rows in every format, and a table with text and missing values."""
    with h5py.File(source / "data.h5", "w") as file:
        file["X"], file["y"] = X, y.astype("S")
        file.create_dataset("packed", data=X, chunks=(20, 3), compression="gzip", shuffle=True)
        file["feature_names"] = np.array(["a", "b", "c"], "S")
        file["sample_weight"] = np.abs(X[:, 2]).round(1)
    with h5py.File(source / "sparse.h5", "w") as file:
        rows = sparse.csr_array(np.where(np.abs(X) > 0.5, X, 0.0))
        for part in SPARSE_ARRAYS:
            file[f"X_{part}"] = getattr(rows, part)
        file["y"] = (y == "same").astype(int)
    group = zarr.open_group(source / "data.zarr", mode="w")
    group.create_array("X", data=X, chunks=(20, 3))
    group.create_array("y", data=(y == "same").astype(int))
    lines = [",".join([*(f"{value:g}" for value in row), label]) for row, label in zip(X, y, strict=True)]
    (source / "table.csv").write_text("\n".join(["a,b,c,kind", *lines]))
    (source / "table.csv.gz").write_bytes(gzip.compress((source / "table.csv").read_bytes(), mtime=0))
    mixed = [f"{row[0]:g},{'' if row[1] > 1 else f'{row[1]:g}'},{'red' if row[2] > 0 else 'blue'}" for row in X]
    (source / "mixed.csv").write_text(
        "\n".join(["a,b,colour,kind", *(f"{row},{label}" for row, label in zip(mixed, y, strict=True))])
    )
    entries = [" ".join(f"{j + 1}:{value:g}" for j, value in enumerate(row)) for row in X]
    (source / "rows.libsvm").write_text(
        "\n".join(f"{int(label == 'same')} {entry}" for label, entry in zip(y, entries, strict=True))
    )
    samples = [json.dumps({"x": row.tolist(), "y": label}) for row, label in zip(X, y.tolist(), strict=True)]
    (source / "samples.jsonl").write_text("\n".join(samples))
    np.save(source / "rows.npy", X)
    np.savez(source / "rows.npz", X=X, y=y)
    (source / "images.idx").write_bytes(b"\0\0\x08\x03" + np.array([60, 2, 2], ">u4").tobytes() + bytes(range(240)))
    (source / "job.toml").write_text(JOB_FILE)
    with suppress(ImportError):
        import pyarrow
        import pyarrow.parquet

        columns = {f"c{j}": X[:, j] for j in range(3)} | {"kind": y}
        pyarrow.parquet.write_table(pyarrow.table(columns), source / "table.parquet")
    convert(source / "mixed.csv", source / "mixed.h5")


def train_all(source: Path) -> None:
    """A folder of every kind of training."""
    with Dataset.open(source / "data.h5") as data:
        train(data, test=data, run_dir=source / "run", **ROUNDS)
        train(data, run_dir=source / "learned", **LEARNED)
        train(data, run_dir=source / "competed", **COMPETING)
        train(data, run_dir=source / "sized", **SIZED)
        train_path(data, 0.3, run_dir=source / "path", **SIZES)
        train(data, run_dir=source / "curves", componentwise=True, **ROUNDS)
    with Dataset.open(source / "mixed.h5") as table:
        train(table, run_dir=source / "mixed", **ROUNDS)
    with Dataset.open(source / "sparse.h5") as rows:
        train(rows, run_dir=source / "reduced", reduction="svd:2", **ROUNDS)
    stream(open_samples(source / "data.h5"), run_dir=source / "stream", **STREAMED)


def run_formats(source: Path) -> dict[str, Format]:
    """Files of run folders, and those that name a training run."""
    checkpoint = partial(Format, archive="mllkm-checkpoint")
    formats = {
        "model": Format(source / "run" / "model.mllkm", partial(read_model, rows="table.csv", source=source)),
        "table model": Format(source / "mixed" / "model.mllkm", partial(read_model, rows="mixed.csv", source=source)),
        "reduced model": Format(
            source / "reduced" / "model.mllkm", partial(read_model, rows="sparse.h5", source=source)
        ),
        "exported model": Format(source / "run" / "model.mllkm", partial(exported, rows="data.h5", source=source)),
        "exported curves": Format(source / "curves" / "model.mllkm", partial(exported, rows="data.h5", source=source)),
    }
    formats = {name: Format(known.path, known.read, archive="mllkm-model") for name, known in formats.items()}
    formats |= {
        "checkpoint": checkpoint(source / "run" / "checkpoint.npz", partial(resumed, settings=ROUNDS, source=source)),
        "of a stream": checkpoint(source / "stream" / "checkpoint.npz", partial(stream_resumed, source=source)),
        "of a path": checkpoint(next((source / "path").glob("*4/end.npz")), partial(path_resumed, source=source)),
        "learning": Format(
            source / "learned" / "learning.npz",
            partial(resumed, settings=LEARNED, source=source),
            archive="mllkm-learning",
        ),
        "selection": Format(
            source / "competed" / "selection.json",
            partial(resumed, settings=COMPETING, source=source),
            is_json=True,
        ),
        "size": Format(source / "sized" / "size.json", partial(resumed, settings=SIZED, source=source), is_json=True),
        "job": Format(source / "job.toml", read_job),
        "anchors": Format(source / "rows.npy", read_given_anchors),
        "path.json": Format(source / "path" / "path.json", read_path_file, is_json=True),
    }
    reported = {
        "run": ("run.json", "plan.json", "evaluation.json", "history.jsonl"),
        "learned": ("learning.jsonl",),
        "stream": ("stream.jsonl",),
    }
    for run, names in reported.items():
        for name in names:
            formats[name] = Format(source / run / name, partial(read_report, whole=source / run), is_json=True)
    return formats


def data_formats(source: Path) -> dict[str, Format]:
    """Rows and labels: to train on, to convert, to stream, to predict."""
    model = source / "run" / "model.mllkm"
    formats = {
        "hdf5": Format(source / "data.h5", read_data),
        "table hdf5": Format(source / "mixed.h5", trained_on),
        "sparse hdf5": Format(source / "sparse.h5", trained_on),
        "weighted hdf5": Format(source / "data.h5", partial(trained_on, sample_weight="sample_weight")),
        "zarr.json": Format(source / "data.zarr" / "X" / "zarr.json", partial(read_zarr, source=source), is_json=True),
        "zarr chunk": Format(source / "data.zarr" / "X" / "c" / "0" / "0", partial(read_zarr, source=source)),
    }
    for name in ("table.csv", "table.csv.gz", "rows.libsvm", "rows.npz", "rows.npy", "images.idx", "table.parquet"):
        if (source / name).exists():
            formats[name.partition(".")[2]] = Format(source / name, converted)
    if (source / "table.parquet").exists():
        formats["parquet data"] = Format(source / "table.parquet", partial(trained_on, y="kind"))
        formats["parquet url"] = Format(source / "table.parquet", read_url)
    for name in ("samples.jsonl", "table.csv"):
        formats[f"{name.partition('.')[2]} stream"] = Format(source / name, streamed)
    for name in ("table.csv", "rows.npz", "rows.npy"):
        formats[f"{name.partition('.')[2]} rows"] = Format(source / name, partial(predicted, model=model))
    return formats


# ---- the readers


def digest(*values: Any) -> str:
    """A digest that identifies a result."""
    found = hashlib.blake2b(digest_size=8)
    for value in values:
        is_array = isinstance(value, np.ndarray)
        about = repr((value.dtype.str, value.shape) if is_array else value)
        found.update(about.encode() + (value.tobytes() if is_array else b""))
    return found.hexdigest()


def beside(path: Path, whole: Path) -> Path:
    """A copy of a folder in which this file replaces the one of the same name."""
    run = path.parent / "copy"
    shutil.copytree(whole, run)
    shutil.copy(path, run / path.name)
    return run


def read_model(path: Path, rows: str, source: Path) -> str:
    """The description of a model, its labels and probabilities of rows, and their explanations."""
    model = load_model(path)
    describe(model).as_text()
    if model.reduction is None:
        importance_bars(model, None)
    labels = predicted(
        source / rows, path, path.with_name("predicted.csv"), probabilities=model.calibration is not None
    )
    told = [(str(one), repr(one.as_dict())) for one in explain_file(model, source / rows, 0, 3)]
    return digest(model_checksum(model), labels, told)


def exported(path: Path, rows: str, source: Path) -> str:
    """All exports of a model; C code must compile."""
    model, folder = load_model(path), path.parent
    made = [export_c(model, folder / "floats.h"), export_npz(model, folder / "plain.npz")]
    with Dataset.open(source / rows) as data:
        made.append(export_integer_c(model, folder / "integers.h", data, 8))
    with suppress(ImportError):
        made.append(export_onnx(model, folder / "graph.onnx"))
    headers = [str(file) for one in made for file in one.paths if file.suffix == ".h"]
    if shutil.which("gcc"):
        command = ["gcc", "-x", "c", "-std=c99", "-trigraphs", "-Wcomment", "-Werror", "-fsyntax-only", *headers]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    return digest(*(file.read_bytes() for one in made for file in one.paths))


def predicted(path: Path, model: Path, target: Path | None = None, *, probabilities: bool = False) -> str:
    """Labels of rows of a file, by a model."""
    target = target or path.with_name("predicted.csv")
    predict_file(load_model(model), path, target, scores=True, probabilities=probabilities, overwrite=True, n_jobs=1)
    return digest(target.read_bytes())


def resumed(path: Path, settings: dict[str, Any], source: Path) -> str:
    """The model of a training run that resumes from this file."""
    names = {"checkpoint.npz": "run", "learning.npz": "learned", "selection.json": "competed", "size.json": "sized"}
    run = beside(path, source / names[path.name])
    if path.name == "learning.npz":  # which the checkpoint would make superfluous
        (run / "checkpoint.npz").unlink()
    with Dataset.open(source / "data.h5") as data:
        return model_checksum(train(data, run_dir=run, resume=True, **settings).model)


def stream_resumed(path: Path, source: Path) -> str:
    run = beside(path, source / "stream")
    return model_checksum(stream(open_samples(source / "data.h5"), run_dir=run, resume=True, **STREAMED).model)


def path_resumed(path: Path, source: Path) -> str:
    run = path.parent / "copy"
    shutil.copytree(source / "path", run)
    shutil.copy(path, next(run.glob("*4")) / path.name)
    with Dataset.open(source / "data.h5") as data:
        found = train_path(data, 0.3, run_dir=run, resume=True, **SIZES)
    return digest(*map(model_checksum, found.models))


def read_data(path: Path) -> str:
    with Dataset.open(path) as data, Dataset.open(path, "packed", None) as packed:
        found = check(data)
        return digest(found.classes, found.class_counts, data.chunk(0), packed.chunk(0), data.feature_names)


def read_zarr(path: Path, source: Path) -> str:
    folder = path.parent / "data.zarr"
    shutil.copytree(source / "data.zarr", folder)
    shutil.copy(path, folder / "X" / ("zarr.json" if path.name == "zarr.json" else "c/0/0"))
    with Dataset.open(folder) as data:
        found = check(data)
        return digest(found.classes, found.class_counts, data.chunk(0))


def trained_on(path: Path, **names: str) -> str:
    with Dataset.open(path, **names) as data:
        return model_checksum(train(data, **{**ROUNDS, "max_rounds": 1}).model)


def read_url(path: Path) -> str:
    """Rows and labels of a file that is reached by a URL."""
    url = f"memory://fuzz/{path.name}"
    fsspec.filesystem("memory").pipe(url, path.read_bytes())
    with Dataset.open(url, y="kind") as data:
        found = check(data)
        return digest(found.classes, found.class_counts, data.chunk(0), data.feature_names)


def converted(path: Path) -> str:
    target = path.with_name("converted.h5")
    convert(path, target, overwrite=True)
    with h5py.File(target) as file:
        texts = {name: file[name].dtype.kind == "O" for name in file}
        return digest(*(file[name].asstr()[()].tolist() if texts[name] else file[name][()] for name in file))


def streamed(path: Path) -> str:
    """The samples of a file that is read as a stream."""
    samples = open_samples(path, classes=["other", "same"])
    try:
        return digest(*(values for chunk in samples.chunks() for values in (chunk.X, chunk.y.tolist())))
    finally:
        samples.close()


def read_job(path: Path) -> str:
    return digest(load_job(path).parameters)


def read_given_anchors(path: Path) -> str:
    return digest(np.asarray(read_anchors(str(path))))


def read_path_file(path: Path) -> str:
    points, _ = read_path(path.parent)
    return digest(knee_point(points), best_point(points))


def read_report(path: Path, whole: Path) -> str:
    """The text of the report of a run folder, without pictures."""
    folder = path.parent
    for file in whole.iterdir():
        if file.is_file() and not (folder / file.name).exists():
            os.link(file, folder / file.name)
    run = read_run(folder)
    learning_section(run, None)
    told = cards(run, None), data_facts(run), result_facts(run), parameters(run), plan_rows(run.plan)
    rows = [shown_row(one) for one in run.explained]
    told_of_two = _lines([run, run], [None, None]), _parameters([run, run])
    return digest(told, told_of_two, rows, *(len(events) for events in (run.rounds, run.reports, run.epochs)))
