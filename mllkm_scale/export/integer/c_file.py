"""A model as a C header without floats, for devices without a floating-point unit."""

from __future__ import annotations

import os

import numpy as np

from mllkm_scale.base.units import format_bytes
from mllkm_scale.base.version import __version__
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.export.c_file import about_training, named, require_prefix
from mllkm_scale.export.c_text import c_comment, c_string, c_table
from mllkm_scale.export.integer.c_code import HEAD, functions, sizes
from mllkm_scale.export.integer.fixed_point import integer_machine
from mllkm_scale.export.integer.machine import IntegerMachine
from mllkm_scale.export.whole import ExportSummary, free_target, write_bytes
from mllkm_scale.model.model import Model

__all__ = ["export_integer_c"]

_MOST_LINES = 1000  # of features in the comment


def export_integer_c(
    model: Model,
    path: str | os.PathLike[str],
    dataset: Dataset,
    bits: int | None = None,
    *,
    prefix: str = "mllkm",
    overwrite: bool = False,
) -> ExportSummary:
    """Write a model as one C header in integers: C99 and C++, without floats, allocation or global variables.

    Features are integers: whole numbers unchanged, others in steps that the first comment states. `integer_machine`
    returns the same machine in Python, with the same integer scores.

    Parameters
    ----------
    model : Model
    path : path
        A name that ends with ``.h``.
    dataset : Dataset
        Rows, such as the training rows, that determine the ranges of features; with 4 or 8 bits, local predictors are
        fitted again on them. Labels are not needed.
    bits : {4, 8, 16}, optional
        Bits of the constants; 4 applies to slopes and to projections of many features, and all other constants then
        have 8. By default those chosen by training with `max_bytes`, and otherwise 16.
    prefix : str
        Prefix of the names of functions and, in capitals, of macros.
    overwrite : bool
        Replace an existing file.

    Raises
    ------
    ParameterError
        If the name does not end with .h or is taken, or the model cannot be expressed in integers: encoded tables, rows
        scaled to unit norm, sums beyond 32 bits.

    Examples
    --------
    >>> import tempfile
    >>> from mllkm_scale import MLLKMClassifier
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], ["near", "near", "far", "far"]
    >>> model = MLLKMClassifier(map="squared").fit(X, y).model_
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     summary = export_integer_c(model, f"{folder}/nearness.h", Dataset.from_arrays(X), 8)
    ...     summary.form, summary.constant_bytes < 500, summary.stack_bytes < 100
    ('integers', True, True)
    """
    require_prefix(prefix)
    target = free_target(path, ".h", overwrite=overwrite)
    machine = integer_machine(model, dataset, bits)
    tables = "\n".join(
        c_table(f"mllkm_{name}", values, f"{values.dtype.name}_t", " MLLKM_TABLE")
        for name, values in machine.constants.items()
    )
    numbers = {"N_FEATURES": model.n_features_in, "N_CLASSES": len(model.classes), "N_SCORES": machine.n_scores}
    macros = "".join(f"#define MLLKM_{name} ({size})\n" for name, size in (numbers | sizes(machine)).items())
    guard = f"{prefix.upper()}_H"
    parts = [
        c_comment(_about(model, machine, prefix)),
        f"#ifndef {guard}\n#define {guard}\n",
        named(HEAD, prefix),
        named(macros, prefix),
        named(f"typedef {machine.preparation.inputs.kind} mllkm_input;\n", prefix),
        named(tables, prefix),
        named(functions(machine), prefix),
        "#endif\n",
    ]
    write_bytes(target, "\n".join(parts).encode("ascii"))
    return ExportSummary(
        paths=(target,),
        form="integers",
        constant_bytes=machine.constant_bytes,
        deviation=machine.deviation,
        stack_bytes=machine.stack_bytes,
    )


def _about(model: Model, machine: IntegerMachine, prefix: str) -> list[str]:
    macro, kind = prefix.upper(), "component-wise" if machine.componentwise else "global"
    labels = [c_string(str(label)) for label in model.classes.tolist()]
    return [
        f"A trained classifier in integers, written by mllkm-scale {__version__}.",
        "",
        f"  int {prefix}_predict(const {prefix}_input *x);",
        "      the number of the class of a row, from 0",
        f"  void {prefix}_scores(const {prefix}_input *x, int32_t *scores);",
        f"      {macro}_N_SCORES decision values of a row, times 2 to the power {machine.score_bits}",
        "",
        "C99 or C++, with two's complement and arithmetic shifts; there are no floats. No memory is allocated and no",
        "global variable is written. With avr-gcc, constants are in flash.",
        "",
        *_inputs(model, machine, prefix),
        "",
        f"constants   {format_bytes(machine.constant_bytes)} of flash: {machine.constant_bytes} bytes",
        f"stack       {machine.stack_bytes} bytes of arrays, besides scalars and return addresses",
        f"machine     {machine.n_kernels} {kind} {machine.map} kernels over {machine.n_features} prepared features,"
        f" with constants of {machine.bits} bits"
        + (", slopes of 4" if machine.slope_bits == 4 else "")
        + (", a projection of 4" if machine.preparation.matrix_bits == 4 else ""),
        f"arithmetic  scores differ by at most {machine.arithmetic:.2g} from exact arithmetic with these constants",
        f"rounding    and by at most {machine.deviation:.2g} from the model before rounding of its constants"
        + (" and fitted" if machine.bits == 8 else ""),
        "            (for rows within the ranges above, whose prepared features are not clipped)",
        *about_training(model),
        "",
        *(f"class {number}  {label}" for number, label in enumerate(labels)),
    ]


def _inputs(model: Model, machine: IntegerMachine, prefix: str) -> list[str]:
    """The meaning of the integers of a row, feature by feature if they differ."""
    inputs, macro = machine.preparation.inputs, prefix.upper()
    used = np.zeros(len(inputs.offsets), dtype=bool)
    used[machine.preparation.columns] = True
    lines = [f"x holds {macro}_N_FEATURES integers of type {inputs.kind}, from {inputs.low} to {inputs.high}."]
    if not (inputs.offsets[used].any() or (inputs.steps[used] != 1).any()):
        least, most = inputs.least[used].min(), inputs.most[used].max()
        return [*lines, f"They are the features themselves, whose range is {least} to {most}."]
    lines.append("The integer u means the value offset + step u; range is that of the data:")
    names = model.feature_names or [""] * len(used)
    for j in np.flatnonzero(used)[:_MOST_LINES]:
        ends = f"{inputs.least[j]} to {inputs.most[j]}"
        name = f"  {c_string(names[j])}" if names[j] else ""
        lines.append(f"  x[{j}]  offset {float(inputs.offsets[j])}, step {float(inputs.steps[j])}, range {ends}{name}")
    return lines
