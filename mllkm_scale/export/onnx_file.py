"""A model as an ONNX file: raw features in, labels and scores out."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from mllkm_scale.base.version import __version__
from mllkm_scale.errors import ParameterError
from mllkm_scale.export.encoded import onnx_inputs
from mllkm_scale.export.forms import PRECISIONS, FormName, PrecisionName, find_tables
from mllkm_scale.export.layout import machine_layout, table_layout
from mllkm_scale.export.onnx_machine import (
    Graph,
    add_component_scores,
    add_global_scores,
    add_preparation,
    add_probabilities,
    add_table_scores,
    import_onnx,
)
from mllkm_scale.export.single import single_tables
from mllkm_scale.export.whole import ExportSummary, free_target, write_bytes
from mllkm_scale.model.files import model_checksum
from mllkm_scale.model.model import Model

__all__ = ["export_onnx"]

OPSET, IR_VERSION = 13, 7  # the first opset in which the axes of a sum are an input, and its IR version
_MAX_BYTES = 2_000_000_000  # of a protobuf message


def export_onnx(
    model: Model,
    path: str | os.PathLike[str],
    *,
    precision: PrecisionName = "mixed",
    form: FormName = "auto",
    deviation: float | None = None,
    overwrite: bool = False,
) -> ExportSummary:
    """Write a model as an ONNX file of opset 13.

    Its input ``features`` is (rows, features), raw, with any number of rows. A model that was trained on a table has an
    input (rows, 1) for each column instead, with the name of the column: text for categories, numbers for the rest (NaN
    for a missing one, 0 and 1 for booleans, days since 1970 for dates). Its outputs are ``label``, (rows,), and
    ``scores``, (rows, K): K = 1 for two classes, positive for the second, otherwise one score per class. Labels are
    int64 if all classes are whole numbers or booleans, and text otherwise. A model with a calibration has a third
    output, ``probabilities``, (rows, classes).

    Parameters
    ----------
    model : Model
    path : path
        A name that ends with ``.onnx``.
    precision : {"mixed", "single", "double"}
        Features and scores are float32, or float64 with ``"double"``. The computation is in double precision, or in
        single precision with ``"single"``, for runtimes without double precision.
    form : {"auto", "tables", "direct"}
        Component-wise machines: tables if possible, tables or an error, or kernel by kernel.
    deviation : float, optional
        Largest error of tables; 1e-6 by default.
    overwrite : bool
        Replace an existing file.

    Raises
    ------
    ParameterError
        If the name does not end with .onnx or is taken, the model is too large, or the package `onnx` is missing.
    ScratchError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import onnxruntime
    >>> from mllkm_scale import MLLKMClassifier
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], ["near", "near", "far", "far"]
    >>> model = MLLKMClassifier().fit(X, y).model_
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     summary = export_onnx(model, f"{folder}/nearness.onnx")
    ...     session = onnxruntime.InferenceSession(f"{folder}/nearness.onnx")
    >>> label, scores = session.run(["label", "scores"], {"features": np.array(X, np.float32)})
    >>> label.tolist(), scores.shape
    (['near', 'near', 'far', 'far'], (4, 1))
    """
    if precision not in PRECISIONS:
        raise ParameterError(f"precision={precision!r} is not known: choose one of {', '.join(PRECISIONS)}")
    real = np.float32 if precision == "single" else np.float64
    given = np.float64 if precision == "double" else np.float32
    onnx = import_onnx()
    target = free_target(path, ".onnx", overwrite=overwrite)
    tables = find_tables(model, form, deviation)
    layout = machine_layout(model)
    graph = Graph(onnx, real)
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(given))
    if model.encoding is None:
        inputs = [onnx.helper.make_tensor_value_info("features", number, ["rows", model.n_features_in])]
        features = graph.cast("features", real)
    else:
        features, inputs = onnx_inputs(graph, model.encoding, given)
    z = add_preparation(graph, layout.preparation, features)
    if tables is not None:
        cells = table_layout(tables, layout)
        scores = add_table_scores(graph, single_tables(cells) if precision == "single" else cells, z)
    elif layout.componentwise:
        scores = add_component_scores(graph, layout, z)
    else:
        scores = add_global_scores(graph, layout, z)
    labels = _add_labels(graph, model, scores)
    graph("Identity", labels[0], name="label")
    graph.cast(scores, given, name="scores")
    if model.calibration is not None:
        graph.cast(add_probabilities(graph, model.calibration, scores, model.n_machines), given, name="probabilities")
    constant_bytes = sum(len(value.raw_data) for value in graph.initializers)
    if constant_bytes > _MAX_BYTES:
        raise ParameterError(
            f"the numbers of the model take {constant_bytes / 1e9:.1f} GB, more than the 2 GB of an ONNX file:"
            " train with max_kernels or n_components, or export to npz"
        )
    summary = ExportSummary(
        paths=(target,),
        form="kernels" if tables is None else "tables",
        constant_bytes=constant_bytes,
        deviation=0.0 if tables is None else tables.deviation,
    )
    made = _model(graph, model, summary, inputs, number, labels[1])
    onnx.checker.check_model(made, full_check=True)
    write_bytes(target, made.SerializeToString())
    return summary


def _add_labels(graph: Graph, model: Model, scores: str) -> tuple[str, int]:
    """Labels (n,) from scores (n, K), and their type."""
    if model.n_machines == 1:
        codes = graph.cast(graph("Reshape", graph("Greater", scores, 0.0), np.array([-1])), np.int64)
    else:
        codes = graph("ArgMax", scores, axis=1, keepdims=0)
    types, classes = graph.onnx.TensorProto, model.classes
    if _are_whole(classes):
        return graph("Gather", classes.astype(np.int64), codes), types.INT64
    return graph("Gather", np.array([str(label) for label in classes.tolist()], object), codes), types.STRING


def _are_whole(classes: np.ndarray) -> bool:
    if classes.dtype.kind == "U":
        return False
    return all(abs(label) < 2**63 and label == int(label) for label in classes.tolist())


def _model(graph: Graph, model: Model, summary: ExportSummary, inputs: list[Any], number: int, label_type: int) -> Any:
    helper = graph.onnx.helper
    outputs = [
        helper.make_tensor_value_info("label", label_type, ["rows"]),
        helper.make_tensor_value_info("scores", number, ["rows", model.n_machines]),
    ]
    if model.calibration is not None:
        outputs.append(helper.make_tensor_value_info("probabilities", number, ["rows", len(model.classes)]))
    made = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "mllkm",
            inputs,
            outputs,
            graph.initializers,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)]
        + ([] if model.encoding is None else [helper.make_opsetid("ai.onnx.ml", 2)]),
        ir_version=IR_VERSION,
        producer_name="mllkm-scale",
        producer_version=__version__,
    )
    helper.set_model_props(made, _facts(model, summary))
    return made


def _facts(model: Model, summary: ExportSummary) -> dict[str, str]:
    record, family = model.certificate, model.family
    return {
        "family": f"{family.map}, {'component-wise' if family.componentwise else 'global'}",
        "local_bias": repr(family.local_bias),
        "n_kernels": str(model.n_kernels),
        "form": summary.form,
        "form_deviation": repr(summary.deviation),
        "classes": json.dumps(model.classes.tolist()),
        "feature_names": json.dumps(model.feature_names),
        "calibration": json.dumps(None if model.calibration is None else model.calibration.method),
        "gap": repr(record.gap),
        "primal": repr(record.primal),
        "dual": repr(record.dual),
        "status": record.status,
        "n_open": str(record.n_open),
        "n_train": str(record.n_train),
        "package_version": record.package_version,
        "model_checksum": model_checksum(model),
    }
