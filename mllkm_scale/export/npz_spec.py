"""The JSON file of an NPZ export: a description of the machine in words and numbers, for readers in any language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mllkm_scale.base.version import __version__
from mllkm_scale.data.preparation.scaling import Scaling
from mllkm_scale.export.encoded import encoding_record
from mllkm_scale.kernels.maps import MapName
from mllkm_scale.model.calibration import ISOTONIC, Calibration
from mllkm_scale.model.files import model_checksum
from mllkm_scale.model.model import Model

__all__ = ["VERSION", "ArrayNote", "describe_export"]

FORMAT, VERSION = "mllkm-export", 3
"""Version 2 has columns and knots, and version 3 has the encoding of a table; only models that need them use these
versions."""


BUMPS: dict[MapName, str] = {
    "exponential": "h(t) = exp(-gamma t)",
    "gaussian": "h(t) = exp(-gamma t^2)",
    "linear": "h(t) = max(0, 1 - gamma t)",
    "squared": "h(t) = max(0, 1 - gamma t^2)",
}
_OF_CALIBRATION = ("method", "slope", "knots", "levels")
_TYPES = {"b": "boolean", "i": "integer", "u": "integer", "f": "float", "U": "text"}


@dataclass(frozen=True)
class ArrayNote:
    """An array of the NPZ file: its shape, its type, and what it is."""

    shape: tuple[int, ...]
    dtype: str
    meaning: str


def describe_export(
    model: Model, arrays: dict[str, ArrayNote], npz: dict[str, str], deviation: float | None, tests: dict[str, Any]
) -> dict[str, Any]:
    """The contents of the JSON file; `deviation` is that of the tables, or None if there are none."""
    family, calibration = model.family, model.calibration
    return {
        "format": FORMAT,
        "version": _version(model),
        "written_by": f"mllkm-scale {__version__}",
        "npz": npz,
        "model_checksum": model_checksum(model),
        "family": {"map": family.map, "componentwise": bool(family.componentwise), "local_bias": family.local_bias},
        "classes": model.classes.tolist(),
        "class_type": _TYPES[model.classes.dtype.kind],
        "n_features_in": model.machine.n_features_in,
        "feature_names": None if model.machine.feature_names is None else list(model.machine.feature_names),
        "encoding": None if model.encoding is None else encoding_record(model.encoding),
        "n_features": int(model.anchors.shape[1]),
        "n_kernels": model.n_kernels,
        "n_scores": model.n_machines,
        "calibration": None
        if calibration is None
        else {name: value for name, value in calibration.as_dict().items() if name in _OF_CALIBRATION},
        "scaling": model.preprocessor.scaling.kind,
        "projection": model.preprocessor.projection is not None,
        "tables": None if deviation is None else {"deviation": deviation},
        "arrays": {name: vars(note) | {"shape": list(note.shape)} for name, note in arrays.items()},
        "formulas": _formulas(model, deviation is not None),
        "certificate": model.certificate.to_header(),
        "test_vectors": tests,
    }


def _version(model: Model) -> int:
    if model.encoding is not None:
        return VERSION
    return 1 if model.preprocessor.scaling.columns is None else 2


def _scaling_steps(scaling: Scaling) -> list[str]:
    unit = scaling.kind == "unit-norm"
    if scaling.columns is None:
        return ["v = x / |x|, x itself where all of it is 0" if unit else "v_j = (x_j - offset_j) factor_j"]
    steps = ["u = x / |x|, x itself where all of it is 0" if unit else "u = x"]
    if scaling.quantiles is None:
        return [*steps, "v_j = (u_columns_j - offset_j) factor_j"]
    return [
        *steps,
        "t_j(a) = a for columns without knots",
        "t_j(a) = the linear interpolation of knot_levels at knot_values, knots knot_starts_j to knot_starts_(j+1) - 1,"
        " constant beyond the first and the last",
        "v_j = (t_j(u_columns_j) - offset_j) factor_j",
    ]


def _formulas(model: Model, tables: bool) -> dict[str, list[str]]:
    steps = _scaling_steps(model.preprocessor.scaling)
    if model.preprocessor.projection is not None:
        steps.append("z_i = sum over j of projection_ij (v_j - mean_j)")
    else:
        steps.append("z = v")
    if model.family.componentwise:
        scores = [
            "f_k = sum over kernels m and features l of h(|z_l - anchors_ml|) ((z_l - anchors_ml) coef_kml"
            " + local_coef_km / n_features)"
        ]
    else:
        scores = ["f_k = sum over kernels m of h(|z - anchors_m|) (<z - anchors_m, coef_km> + local_coef_km)"]
    formulas = {"preparation": steps, "bump": [BUMPS[model.family.map]], "scores": scores}
    if tables:
        formulas["scores_by_tables"] = [
            "cell of feature l: the last j of cell_starts_l to cell_starts_(l+1) - 1 with cell_edges_j <= z_l",
            "t_l = (z_l - cell_variables_j0) cell_variables_j1",
            "f_k = sum over l and powers p of cell_coefficients_jkp t_l^p",
        ]
    two = model.n_machines == 1
    formulas["decision"] = ["classes[1] if f_0 > 0 else classes[0]" if two else "classes[k], k the first largest f_k"]
    if model.calibration is not None:
        formulas["probabilities"] = _probabilities(model.calibration, two)
    return formulas


def _probabilities(calibration: Calibration, two: bool) -> list[str]:
    if calibration.method == ISOTONIC:
        return [
            "p_1 = the linear interpolation of levels at knots, at f_0, constant beyond the first and the last",
            "p_0 = 1 - p_1",
        ]
    if two:
        return ["p_1 = 1 / (1 + exp(-slope f_0))", "p_0 = 1 - p_1"]
    return ["p_k = exp(slope f_k) / sum over j of exp(slope f_j)"]
