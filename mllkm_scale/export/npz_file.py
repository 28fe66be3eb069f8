"""A model as plain arrays and a description: FILE.npz and FILE.json, for any language that reads NPY and JSON.

The files include test rows for readers: raw rows on and between the anchors, one far away, and one of zeros. A model
does not have its training samples, but anchors can be converted back to raw features: exactly without a projection, to
a row that is projected to the anchor, or to a row near it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.events import jsonable
from mllkm_scale.export.forms import FormName, find_tables
from mllkm_scale.export.npz_spec import ArrayNote, describe_export
from mllkm_scale.export.whole import ExportSummary, free_target, write_bytes
from mllkm_scale.model.model import Model

if TYPE_CHECKING:
    from mllkm_scale.model.tables.additive import AdditiveModel

__all__ = ["export_npz", "probe_rows"]

_ANCHORS = 3  # whose rows are test vectors
_FAR = 3.0  # times the distance between the first and the last anchor
Named = dict[str, tuple[Array, str]]  # array and meaning
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time of an archive: equal models give equal files


def probe_rows(model: Model) -> Array:
    """Raw rows (n, n_features_in) that are exact in float32, so that every target gets the same values.

    Examples
    --------
    >>> from mllkm_scale import MLLKMClassifier
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], ["near", "near", "far", "far"]
    >>> rows = probe_rows(MLLKMClassifier().fit(X, y).model_)
    >>> rows.shape[1], bool((rows == rows.astype(np.float32)).all())
    (2, True)
    """
    picked = np.unique(np.linspace(0, model.n_kernels - 1, _ANCHORS).astype(int))
    rows = model.preprocessor.invert(model.anchors[picked])
    between = 0.5 * (rows[:-1] + rows[1:])
    away = rows[:1] + _FAR * (rows[-1:] - rows[:1])
    found = np.concatenate([rows, between, away, np.zeros((1, model.n_features_in))])
    with np.errstate(over="ignore"):
        found = found.astype(np.float32).astype(np.float64)
    return found[np.isfinite(found).all(axis=1)]


def export_npz(
    model: Model,
    path: str | os.PathLike[str],
    *,
    form: FormName = "auto",
    deviation: float | None = None,
    overwrite: bool = False,
) -> ExportSummary:
    """Write a model as FILE.npz with all of its numbers, and FILE.json with their description.

    The arrays are little-endian, in C order and not compressed: float64, and int64 for positions. The JSON file has
    formulas, shapes, meanings, classes, the certificate, the checksum of the NPZ file, and test vectors: raw rows with
    their scores and labels. For a model that was trained on a table, they have the machine without the encoding, and
    the JSON file says how its features are made from the columns. Component-wise machines have tables besides their
    kernels.

    Parameters
    ----------
    model : Model
    path : path
        A name that ends with ``.npz``; the other file is written beside it.
    form : {"auto", "tables", "direct"}
        Component-wise machines: with tables if possible, with tables or an error, or without tables.
    deviation : float, optional
        Largest error of tables; 1e-6 by default.
    overwrite : bool
        Replace existing files.

    Raises
    ------
    ParameterError
        If the name does not end with .npz or is taken.
    ScratchError
        If a file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from mllkm_scale import MLLKMClassifier
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], ["near", "near", "far", "far"]
    >>> model = MLLKMClassifier().fit(X, y).model_
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     summary = export_npz(model, f"{folder}/nearness.npz")
    ...     sorted(path.name for path in summary.paths)
    ['nearness.json', 'nearness.npz']
    """
    target = free_target(path, ".npz", overwrite=overwrite)
    beside = free_target(target.with_suffix(".json"), ".json", overwrite=overwrite)
    tables = find_tables(model, form, deviation)
    named = _preparation(model) | _kernels(model) | ({} if tables is None else _tables(tables))
    plain = {name: np.ascontiguousarray(values, _dtype(values)) for name, (values, _) in named.items()}
    notes = {name: ArrayNote(plain[name].shape, plain[name].dtype.str, meaning) for name, (_, meaning) in named.items()}
    content = _archive(plain)
    npz = {"file": target.name, "sha256": hashlib.sha256(content).hexdigest()}
    about = describe_export(model, notes, npz, None if tables is None else tables.deviation, _test_vectors(model))
    text = json.dumps(jsonable(about), indent=1, allow_nan=False)
    write_bytes(target, content)
    write_bytes(beside, text.encode("ascii"))
    return ExportSummary(
        paths=(target, beside),
        form="kernels" if tables is None else "tables",
        constant_bytes=sum(values.nbytes for values in plain.values()),
        deviation=0.0 if tables is None else tables.deviation,
    )


def _dtype(values: Array) -> str:
    return "<i8" if values.dtype.kind == "i" else "<f8"


def _preparation(model: Model) -> Named:
    scaling, projection = model.preprocessor.scaling, model.preprocessor.projection
    found: Named = {}
    of = "raw feature" if scaling.columns is None else "column"
    if scaling.columns is not None:
        found["columns"] = scaling.columns, "number of the raw feature that each column is made of, from 0"
    if scaling.quantiles is not None:
        found["knot_starts"] = scaling.quantiles.starts, "number of the first knot of each column, and of all knots"
        found["knot_values"] = scaling.quantiles.values, "where each knot is, rising within a column"
        found["knot_levels"] = scaling.quantiles.levels, "what the column is at each knot"
    if scaling.kind != "unit-norm" or scaling.columns is not None:
        found["offset"] = scaling.offset, f"what is taken from each {of}"
        found["factor"] = scaling.factor, f"what each {of} is multiplied by then"
    if projection is not None:
        found["mean"] = projection.mean, "what is taken from each scaled feature"
        found["projection"] = (
            projection.matrix,
            "the matrix that scaled features are multiplied by, whitening included",
        )
    return found


def _kernels(model: Model) -> Named:
    return {
        "anchors": (model.anchors, "anchor of each kernel, as prepared rows are"),
        "gammas": (model.gammas, "gamma of each kernel"),
        "coef": (model.coef, "slopes of each score, kernel and feature"),
        "local_coef": (model.local_coef, "constant of each score and kernel"),
    }


def _tables(tables: AdditiveModel) -> Named:
    starts = np.append(np.flatnonzero(np.isneginf(tables.edges)), tables.cells).astype(np.int64)
    return {
        "cell_starts": (starts, "number of the first cell of each feature, and of all cells"),
        "cell_edges": (tables.edges, "where each cell begins, rising within a feature; its first is minus infinity"),
        "cell_variables": (tables.variables, "origin and factor of the variable of each cell's polynomials"),
        "cell_coefficients": (tables.coefficients, "of each cell, score and power from 0"),
    }


def _archive(arrays: dict[str, Array]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, values in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, values, version=(1, 0), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _EPOCH), member.getvalue())
    return content.getvalue()


def _test_vectors(model: Model) -> dict[str, Any]:
    rows, direct = probe_rows(model.machine), model.machine.direct()
    scores = direct.decision_function(rows)
    calibration = model.calibration
    return {
        "probabilities": None if calibration is None else calibration.probabilities(scores).tolist(),
        "rows": rows.tolist(),
        "scores": scores.reshape(len(rows), -1).tolist(),
        "labels": model.classes[model.codes(scores)].tolist(),
    }
