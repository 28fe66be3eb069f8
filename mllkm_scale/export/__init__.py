"""Export of a trained machine: as ONNX, as a C header of floats or integers, or as plain arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mllkm_scale.base.lazy import lazy_names

__all__ = [
    "ExportSummary",
    "IntegerMachine",
    "export_c",
    "export_integer_c",
    "export_npz",
    "export_onnx",
    "integer_machine",
]

if TYPE_CHECKING:
    from mllkm_scale.export.c_file import export_c
    from mllkm_scale.export.integer import IntegerMachine, integer_machine
    from mllkm_scale.export.integer.c_file import export_integer_c
    from mllkm_scale.export.npz_file import export_npz
    from mllkm_scale.export.onnx_file import export_onnx
    from mllkm_scale.export.whole import ExportSummary

_HOMES = {
    "ExportSummary": "mllkm_scale.export.whole",
    "IntegerMachine": "mllkm_scale.export.integer",
    "export_c": "mllkm_scale.export.c_file",
    "export_integer_c": "mllkm_scale.export.integer.c_file",
    "export_npz": "mllkm_scale.export.npz_file",
    "export_onnx": "mllkm_scale.export.onnx_file",
    "integer_machine": "mllkm_scale.export.integer",
}

__getattr__ = lazy_names(__name__, _HOMES)
