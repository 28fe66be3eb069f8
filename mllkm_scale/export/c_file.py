"""A model as one C header: float32 tables and a few functions, for devices without an operating system."""

from __future__ import annotations

import math
import os
import re

import numpy as np

from mllkm_scale.base.units import format_bytes
from mllkm_scale.base.version import __version__
from mllkm_scale.errors import ParameterError
from mllkm_scale.export.c_code import functions, probabilities
from mllkm_scale.export.c_text import c_comment, c_string, c_table
from mllkm_scale.export.encoded import about_encoding, c_encoding
from mllkm_scale.export.forms import FormName, find_tables
from mllkm_scale.export.layout import Layout, TableLayout, machine_layout, table_layout
from mllkm_scale.export.single import require_single, single_tables
from mllkm_scale.export.whole import ExportSummary, free_target, write_bytes
from mllkm_scale.model.calibration import ISOTONIC
from mllkm_scale.model.files import model_checksum
from mllkm_scale.model.model import Model

__all__ = ["about_training", "export_c", "named", "require_prefix"]

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,30}")


def export_c(
    model: Model,
    path: str | os.PathLike[str],
    *,
    prefix: str = "mllkm",
    form: FormName = "auto",
    deviation: float | None = None,
    overwrite: bool = False,
) -> ExportSummary:
    """Write a model as one C header, which compiles as C99 and as C++.

    It has constant float32 tables, takes raw features as float, computes in float, allocates no memory, writes no
    global variable, and calls at most expf, sqrtf and fabsf of math.h. The header of a model that was trained on a
    table also has a function that makes features from a row of numbers and codes, and one that returns the code of a
    text by strcmp. Its first comment states the bytes of constants and of stack.

    Parameters
    ----------
    model : Model
    path : path
        A name that ends with ``.h``.
    prefix : str
        Prefix of the names of functions and, in capitals, of macros.
    form : {"auto", "tables", "direct"}
        Component-wise machines: tables if possible, tables or an error, or kernel by kernel, which is slower and often
        smaller.
    deviation : float, optional
        Largest error of tables; 1e-6 by default. A larger value gives smaller tables for exponential and gaussian maps.
    overwrite : bool
        Replace an existing file.

    Raises
    ------
    ParameterError
        If the name does not end with .h or is taken, the prefix is not a C name, or single precision cannot represent
        the model.
    ScratchError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from mllkm_scale import MLLKMClassifier
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], ["near", "near", "far", "far"]
    >>> model = MLLKMClassifier().fit(X, y).model_
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     summary = export_c(model, f"{folder}/nearness.h", prefix="nearness")
    ...     "static inline int nearness_predict(const float *x)" in Path(folder, "nearness.h").read_text()
    True
    """
    require_prefix(prefix)
    target = free_target(path, ".h", overwrite=overwrite)
    tables = find_tables(model, form, deviation)
    layout = machine_layout(model)
    cells = None if tables is None else single_tables(table_layout(tables, layout))
    constants = _constants(layout, cells) | _calibration_constants(model)
    constant_bytes = sum(values.nbytes for values in constants.values())
    summary = ExportSummary(
        paths=(target,),
        form="kernels" if tables is None else "tables",
        constant_bytes=constant_bytes,
        deviation=0.0 if tables is None else tables.deviation,
        stack_bytes=_stack_bytes(layout, cells),
    )
    code = [c_table(f"mllkm_{name}", values) for name, values in constants.items()]
    code.append(functions(layout, None if cells is None else cells.degree))
    if model.calibration is not None:
        code.append(probabilities(model.calibration, layout.n_scores))
    guard = f"{prefix.upper()}_H"
    parts = [
        c_comment(_about(model, layout, summary, prefix)),
        f"#ifndef {guard}\n#define {guard}\n\n#include <math.h>\n"
        + ("" if model.encoding is None else "#include <string.h>\n"),
        named(_sizes(model, layout, cells), prefix),
        f"static const char *const {prefix}_classes[{len(model.classes)}] = {{\n{_class_names(model)}\n}};\n",
        named("\n".join(code), prefix),
        *([] if model.encoding is None else [named(c_encoding(model.encoding), prefix)]),
        "#endif\n",
    ]
    write_bytes(target, "\n".join(parts).encode("ascii"))
    return summary


def _constants(layout: Layout, cells: TableLayout | None) -> dict[str, np.ndarray]:
    preparation = layout.preparation
    doubles = {"centre": preparation.centre, "shift": preparation.shift}
    if preparation.factors is not None:
        doubles["factors"] = preparation.factors
    if preparation.matrix is not None:
        doubles["matrix"] = preparation.matrix.T
    if cells is None:
        doubles |= {
            "anchors": layout.anchors,
            "gammas": layout.gammas,
            "slopes": layout.slopes.transpose(0, 2, 1),
            "levels": layout.levels,
        }
    if preparation.knots is not None:
        doubles |= {"knot_values": preparation.knots.values, "knot_levels": preparation.knots.levels}
    singles = {name: require_single(values, f"the array {name!r} of the model") for name, values in doubles.items()}
    if preparation.columns is not None:
        singles["columns"] = _whole(preparation.columns)
    if preparation.knots is not None:
        singles["knot_starts"] = _whole(preparation.knots.starts)
    if cells is not None:
        singles |= {"starts": _whole(cells.starts), "edges": cells.edges, "variables": cells.variables}
        singles["coefficients"] = cells.coefficients
    return singles


def _calibration_constants(model: Model) -> dict[str, np.ndarray]:
    """Knots of an isotonic calibration, and the probability of the second class at each."""
    if model.calibration is None or model.calibration.method != ISOTONIC:
        return {}
    found = {"knots": np.array(model.calibration.knots), "probability": np.array(model.calibration.levels)}
    return {name: require_single(values, f"the array {name!r} of the calibration") for name, values in found.items()}


def _whole(numbers: np.ndarray) -> np.ndarray:
    """Non-negative integers in the shortest sufficient type of C."""
    return numbers.astype(np.uint16 if numbers.max() < 2**16 else np.int64)


def _sizes(model: Model, layout: Layout, cells: TableLayout | None) -> str:
    sizes = {
        "N_FEATURES": model.machine.n_features_in,
        "N_CLASSES": len(model.classes),
        "N_SCORES": layout.n_scores,
        "DIM": layout.n_features,
    }
    if layout.preparation.columns is not None:
        sizes["N_COLUMNS"] = layout.preparation.n_columns
    if model.calibration is not None and model.calibration.method == ISOTONIC:
        sizes["N_KNOTS"] = len(model.calibration.knots)
    sizes |= {"N_KERNELS": layout.n_kernels} if cells is None else {"DEGREE": cells.degree}
    return "".join(f"#define MLLKM_{name} {size}\n" for name, size in sizes.items())


def _class_names(model: Model) -> str:
    return ",\n".join(f"    {c_string(str(label))}" for label in model.classes.tolist())


def require_prefix(prefix: str) -> None:
    """Refuse a prefix that cannot begin names in C."""
    if _PREFIX.fullmatch(prefix) is None:
        raise ParameterError(f"prefix={prefix!r} cannot begin names in C: use up to 31 letters, digits and _")


def named(code: str, prefix: str) -> str:
    """Code with another prefix instead of mllkm and MLLKM."""
    return code.replace("mllkm_", f"{prefix}_").replace("MLLKM_", f"{prefix.upper()}_")


def _stack_bytes(layout: Layout, cells: TableLayout | None) -> int:
    """Bytes of the prepared row and a part of it, the scores, their rounding errors, and the scores of one kernel."""
    rows, scores = (1 if layout.preparation.matrix is None else 2), (2 if cells is not None else 3)
    return 4 * (rows * layout.n_features + scores * layout.n_scores)


def about_training(model: Model) -> list[str]:
    """Lines of the comment about the training of the machine."""
    record = model.certificate
    proof = f"gap {record.gap:.3g} over {record.n_open} candidate kernels, {record.status}"
    said = proof if math.isfinite(record.gap) else f"{record.status}, no gap is proved"
    return [f"training    {said}", f"checksum    {model_checksum(model)} of the model"]


def _about(model: Model, layout: Layout, summary: ExportSummary, prefix: str) -> list[str]:
    """The first comment: a description of the machine, its functions and its memory."""
    macro, kind = prefix.upper(), "component-wise" if layout.componentwise else "global"
    by = f"tables, with an error of at most {summary.deviation:.1e}" if summary.form == "tables" else "kernels"
    return [
        f"A trained classifier, written by mllkm-scale {__version__}.",
        "",
        f"  int {prefix}_predict(const float *x);",
        "      the number of the class of a row, from 0; -1 if the row is not finite",
        f"  void {prefix}_scores(const float *x, float *scores);",
        f"      {macro}_N_SCORES decision values of a row",
        *(
            [
                f"  void {prefix}_probabilities(const float *x, float *p);",
                f"      the probability of each of the {macro}_N_CLASSES classes of a row",
            ]
            if model.calibration is not None
            else []
        ),
        f"  const char *{prefix}_class_name(int i);",
        "      the name of a class, in UTF-8",
        "",
        f"x has {macro}_N_FEATURES raw features. C99 or C++; do not compile with -ffast-math, which assumes that no",
        "value is NaN. No memory is allocated and no global variable is written: functions are thread-safe.",
        "",
        *([] if model.encoding is None else about_encoding(model.encoding, prefix)),
        f"constants   {format_bytes(summary.constant_bytes)}",
        f"stack       {summary.stack_bytes} bytes of arrays, besides scalars and return addresses",
        f"machine     {model.n_kernels} {kind} {layout.map} kernels, by {by}",
        *about_training(model),
        *_feature_names(model),
    ]


def _feature_names(model: Model) -> list[str]:
    """The order of x by name, as C strings, which have only ASCII and no line breaks."""
    if model.feature_names is None:
        return []
    return ["", "x by its names:", *(f"  x[{i}]  {c_string(name)}" for i, name in enumerate(model.feature_names))]
