"""A model as one C header: float32 tables and a few functions, for devices without an operating system.

Numbers are written so that they read back as the same bits, and strings may hold any label.
"""

from __future__ import annotations

import math
import os
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.units import format_bytes
from mllkm_scale.base.version import __version__
from mllkm_scale.errors import ParameterError
from mllkm_scale.export.c_code import functions
from mllkm_scale.export.forms import FormName, find_tables
from mllkm_scale.export.layout import Layout, TableLayout, machine_layout, table_layout
from mllkm_scale.export.single import require_single, single_tables
from mllkm_scale.export.whole import ExportSummary, free_target, write_bytes
from mllkm_scale.model.files import model_checksum
from mllkm_scale.model.model import Model
from mllkm_scale.model.record import ModelRecord

__all__ = ["c_comment", "c_float", "c_string", "c_table", "export_c"]

_A_LINE = 6  # numbers
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,30}")


def c_float(value: float) -> str:
    """A float constant that reads back as the same bits, of a number that single precision holds.

    >>> c_float(float(np.float32(0.1))), c_float(2.0), c_float(2.0**-100)
    ('0.100000001f', '2.0f', '7.88860905e-31f')
    """
    text = f"{value:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def c_table(name: str, values: NDArray[Any]) -> str:
    """A constant table, all axes one after another; C knows no table without entries, so that there is always one."""
    kind = {"f": "float", "u": "unsigned short", "i": "long"}[values.dtype.kind]
    word = c_float if kind == "float" else str
    flat = values.ravel() if values.size else np.zeros(1, values.dtype)
    lines = [", ".join(map(word, flat[start : start + _A_LINE].tolist())) for start in range(0, len(flat), _A_LINE)]
    body = ",\n    ".join(lines)
    return f"static const {kind} {name}[{len(flat)}] = {{\n    {body}\n}};\n"


def c_string(text: str) -> str:
    """A string constant of any text, as UTF-8; nothing in it can be taken for an escape or a trigraph.

    >>> print(c_string('say "é"'))
    "say \\"\\303\\251\\""
    """
    plain = set(range(0x20, 0x7F)) - set(b'"\\?')
    quoted = {ord('"'): '\\"', ord("\\"): "\\\\"}
    return '"' + "".join(quoted.get(b, chr(b) if b in plain else f"\\{b:03o}") for b in text.encode()) + '"'


def c_comment(lines: list[str]) -> str:
    """A comment of these lines; what would end it early is taken apart."""
    body = "\n".join(f" * {line}".rstrip() for line in lines)
    return "/*\n" + body.replace("*/", "* /") + "\n */\n"


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

    It has float32 tables that are constant, takes raw features as float, computes in float, allocates nothing, writes
    no global variable, and calls expf, sqrtf and fabsf of math.h at most. Its first comment says how many bytes of
    constants and of stack it needs.

    Parameters
    ----------
    model : Model
    path : path
        A name that ends with ``.h``.
    prefix : str
        What the names of functions begin with, and in capitals those of macros.
    form : {"auto", "tables", "direct"}
        Component-wise machines: by tables where they can be made, by tables or not at all, or kernel by kernel, which
        is slower and often smaller.
    deviation : float, optional
        How far tables may be off; 1e-6 by default. More makes those of exponential and gaussian maps smaller.
    overwrite : bool
        Replace a file that exists.

    Raises
    ------
    ParameterError
        If the name is not that of a free header, the prefix is no name in C, or single precision cannot hold the model.
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
    if _PREFIX.fullmatch(prefix) is None:
        raise ParameterError(f"prefix={prefix!r} cannot begin names in C: use up to 31 letters, digits and _")
    target = free_target(path, ".h", overwrite=overwrite)
    tables = find_tables(model, form, deviation)
    layout = machine_layout(model)
    cells = None if tables is None else single_tables(table_layout(tables, layout))
    constants = _constants(layout, cells)
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
    guard = f"{prefix.upper()}_H"
    parts = [
        c_comment(_about(model, layout, summary, prefix)),
        f"#ifndef {guard}\n#define {guard}\n\n#include <math.h>\n",
        _renamed(_sizes(model, layout, cells), prefix),
        f"static const char *const {prefix}_classes[{len(model.classes)}] = {{\n{_class_names(model)}\n}};\n",
        _renamed("\n".join(code), prefix),
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


def _whole(numbers: np.ndarray) -> np.ndarray:
    """Numbers from 0 in the shortest type of C that holds them."""
    return numbers.astype(np.uint16 if numbers.max() < 2**16 else np.int64)


def _sizes(model: Model, layout: Layout, cells: TableLayout | None) -> str:
    sizes = {
        "N_FEATURES": model.n_features_in,
        "N_CLASSES": len(model.classes),
        "N_SCORES": layout.n_scores,
        "DIM": layout.n_features,
    }
    if layout.preparation.columns is not None:
        sizes["N_COLUMNS"] = layout.preparation.n_columns
    sizes |= {"N_KERNELS": layout.n_kernels} if cells is None else {"DEGREE": cells.degree}
    return "".join(f"#define MLLKM_{name} {size}\n" for name, size in sizes.items())


def _class_names(model: Model) -> str:
    return ",\n".join(f"    {c_string(str(label))}" for label in model.classes.tolist())


def _renamed(code: str, prefix: str) -> str:
    return code.replace("mllkm_", f"{prefix}_").replace("MLLKM_", f"{prefix.upper()}_")


def _stack_bytes(layout: Layout, cells: TableLayout | None) -> int:
    """The row as prepared and a part of it, the scores, what rounding took from them, and those of one kernel."""
    rows, scores = (1 if layout.preparation.matrix is None else 2), (2 if cells is not None else 3)
    return 4 * (rows * layout.n_features + scores * layout.n_scores)


def _training(record: ModelRecord) -> str:
    if not math.isfinite(record.gap):
        return f"{record.status}, no gap is proved"
    return f"gap {record.gap:.3g} over {record.n_open} candidate kernels, {record.status}"


def _about(model: Model, layout: Layout, summary: ExportSummary, prefix: str) -> list[str]:
    """The first comment: what the machine is, how it is called, and what it needs."""
    macro, kind = prefix.upper(), "component-wise" if layout.componentwise else "global"
    by = f"tables, off by at most {summary.deviation:.1e}" if summary.form == "tables" else "kernels"
    return [
        f"A trained classifier, written by mllkm-scale {__version__}.",
        "",
        f"  int {prefix}_predict(const float *x);",
        "      the number of the class of a row, from 0; -1 where the row is not finite",
        f"  void {prefix}_scores(const float *x, float *scores);",
        f"      {macro}_N_SCORES decision values of a row",
        f"  const char *{prefix}_class_name(int i);",
        "      the name of a class, in UTF-8",
        "",
        f"x holds {macro}_N_FEATURES raw features. C99 or C++; do not compile with -ffast-math, which assumes that no",
        "value is NaN. Nothing is allocated and no global variable is written: functions may run in several threads.",
        "",
        f"constants   {format_bytes(summary.constant_bytes)}",
        f"stack       {summary.stack_bytes} bytes of arrays, besides scalars and return addresses",
        f"machine     {model.n_kernels} {kind} {layout.map} kernels, by {by}",
        f"training    {_training(model.certificate)}",
        f"checksum    {model_checksum(model)} of the model",
    ]
