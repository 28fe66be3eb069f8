"""`mllkm export`: a model as ONNX, as a C header, or as plain arrays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mllkm_scale.base.units import format_bytes
from mllkm_scale.cli.group import debug_option, say
from mllkm_scale.cli.output import model_path, overwrite_option, wants_model
from mllkm_scale.cli.parsers import DATA
from mllkm_scale.cli.table_files import as_hdf5, known_of_model, scratch_folder
from mllkm_scale.export.forms import FORMS, PRECISIONS, FormName

if TYPE_CHECKING:
    from mllkm_scale.base.location import Location
    from mllkm_scale.export import ExportSummary
    from mllkm_scale.model import Model

__all__ = ["export"]

SUFFIXES = {".onnx": "onnx", ".h": "c", ".npz": "npz"}
ONLY_FOR = {"prefix": "c", "precision": "onnx", "integer": "c", "data": "c"}


@click.command(short_help="Export a model as ONNX, a C header, or plain arrays.")
@wants_model
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FILE", help="File to write.")
@click.option("--to", "target", type=click.Choice(list(SUFFIXES.values())), help="Format; default: by the name.")
@click.option(
    "--form",
    type=click.Choice(FORMS),
    default="auto",
    show_default=True,
    help="Component-wise models. auto: tables if possible; tables: tables or an error; direct: kernel by kernel.",
)
@click.option("--deviation", type=float, metavar="NUMBER", help="Largest error of tables.  [default: 1e-6]")
@click.option("--prefix", metavar="NAME", help="C: prefix of all names.  [default: mllkm]")
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    help="ONNX: mixed has float32 in and out, double inside; single and double have one type.  [default: mixed]",
)
@click.option(
    "--integer",
    type=click.Choice(["4", "8", "16"]),
    help="C: integers alone, with constants of so many bits (4 for most of them, and 8 for the rest); needs --data."
    "  [default with --data: those that max_bytes chose]",
)
@click.option(
    "--data",
    type=DATA,
    metavar="DATA",
    help="C without floats: rows for the ranges of features, such as those of the training.",
)
@overwrite_option
@debug_option
def export(
    model: Path,
    out: Path,
    target: str | None,
    form: FormName,
    deviation: float | None,
    overwrite: bool,
    **own: Any,
) -> None:
    """Write MODEL, a model file or a run folder, for use without this package.

    \b
    .onnx  a graph that takes raw features, for onnxruntime and others
    .h     a C header: float tables and functions, no allocation, for small devices; with --integer without floats
    .npz   all numbers as plain arrays, with a .json that explains them and has test vectors

    \b
    Examples:
      mllkm export run --out model.onnx
      mllkm export run --out digits.h --prefix digits
      mllkm export run --out digits.h --integer 4 --data train.csv
      mllkm export run/model.mllkm --to npz --out model.npz --overwrite
    """
    from mllkm_scale.model import load_model
    from mllkm_scale.plan.device import DeviceLimit

    name = target or SUFFIXES.get(out.suffix.lower())
    if name is None:
        raise click.UsageError(f"{out.name} does not say the format: name it .onnx, .h or .npz")
    options: dict[str, Any] = {option: value for option, value in own.items() if value is not None}
    for option in options:
        if ONLY_FOR[option] != name:
            raise click.UsageError(f"--{option} is for --to {ONLY_FOR[option]}, not for {name}: leave it out")
    bits, data = options.pop("integer", None), options.pop("data", None)
    if bits is not None and data is None:
        raise click.UsageError("--integer needs --data: the fixed point is chosen for the rows of the data")
    if data is not None and (form != "auto" or deviation is not None):
        raise click.UsageError("--form and --deviation are about floats: leave them out with --data")
    path = model_path(model)
    machine = load_model(path)
    if out.exists() and out.samefile(path):
        raise click.UsageError(f"{out} is the model itself: choose another name for what is exported")
    limit = None
    if data is not None:
        limit = DeviceLimit.of(machine.certificate.params)
        if bits is None and limit is None:
            raise click.UsageError("--data is for integers: say with --integer how many bits, as max_bytes chose none")
        summary = _export_integers(
            machine, out, data, None if bits is None else int(bits), overwrite=overwrite, **options
        )
    else:
        summary = _exporter(name)(machine, out, form=form, deviation=deviation, overwrite=overwrite, **options)
    say(f"{' and '.join(str(file) for file in summary.paths)}: {format_bytes(summary.size_bytes)}")
    say("\n".join(f"  {line}" for line in _lines(summary)))
    if limit is not None and summary.constant_bytes > limit.max_bytes:
        say(
            f"  these are more than max_bytes={limit.max_bytes}, for which the training chose {limit.bits} bits:"
            f" export with --integer {limit.bits}"
        )


def _exporter(name: str) -> Any:
    from mllkm_scale.export import export_c, export_npz, export_onnx

    return {"onnx": export_onnx, "c": export_c, "npz": export_npz}[name]


def _export_integers(machine: Model, out: Path, data: Location, bits: int | None, **options: Any) -> ExportSummary:
    from mllkm_scale.data import Dataset
    from mllkm_scale.export import export_integer_c

    with scratch_folder() as folder:
        stored = as_hdf5(data, folder, {}, "quiet", known_of_model(machine))
        with Dataset.open(stored, y=None) as dataset:
            return export_integer_c(machine, out, dataset, bits, **options)


def _lines(summary: ExportSummary) -> list[str]:
    off = f"off by at most {summary.deviation:.1e}"
    forms = {"kernels": "its kernels", "tables": f"tables, {off}", "integers": f"its kernels in integers, {off}"}
    lines = [
        f"machine    by {forms[summary.form]}",
        f"constants  {format_bytes(summary.constant_bytes)}",
    ]
    if summary.stack_bytes is not None:
        lines.append(f"stack      {format_bytes(summary.stack_bytes)} of arrays")
    return lines
