"""Model files: archive files with all arrays of a model, and without any code."""

from __future__ import annotations

import os
from typing import Any

from numpy.typing import NDArray

from mllkm_scale.base.files.archive import archive_checksum, read_archive, write_archive
from mllkm_scale.base.schemas import ModelHeader, conform
from mllkm_scale.data.preparation.preprocessing import Preprocessor
from mllkm_scale.data.sparse.reduction import REDUCTION_ARRAYS, Reduction
from mllkm_scale.data.tables.encoding import ENCODING_ARRAYS, Encoding
from mllkm_scale.errors import MLLKMError, ModelFileError, ParameterError
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import check_map
from mllkm_scale.model.calibration import Calibration
from mllkm_scale.model.model import Model
from mllkm_scale.model.profile import Profile
from mllkm_scale.model.record import ModelRecord

__all__ = ["KIND", "VERSION", "load_model", "model_arrays", "model_checksum", "save_model"]

KIND = "mllkm-model"
VERSION = 4
"""The newest version that is read. Version 2 has columns of features, quantiles or a mapped projection; version 3 has
names of features, a calibration, the encoding of a table, or a profile of the training rows; version 4 the reduction of
many columns. A model is written as the oldest version that can hold it.
"""

_ARRAYS = ("classes", "anchors", "gammas", "kernel_scale", "weights", "coef", "local_coef")


def save_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model file; even after a crash, it is either the old one or the complete new one.

    Equal models give equal files, byte for byte.

    Raises
    ------
    ParameterError
        If the record of the model has invalid values, such as an unknown status.
    ScratchError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from mllkm_scale import MLLKMClassifier
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], ["near", "near", "far", "far"]
    >>> model = MLLKMClassifier().fit(X, y).model_
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(model, f"{folder}/a.mllkm")
    ...     loaded = load_model(f"{folder}/a.mllkm")
    >>> loaded.predict([[1.0, 0.0], [4.0, 4.0]]).tolist()
    ['near', 'far']
    """
    header = _header(model)
    try:
        conform(header, ModelHeader)
    except ValueError as error:
        raise ParameterError(f"a model file cannot hold this model ({error}): give plain values") from None
    write_archive(path, kind=KIND, version=_version(model), header=header, arrays=model_arrays(model))


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read a model file; the predictions of the model are the same bits as those of the saved one.

    Raises
    ------
    ModelFileError
        If the file is missing, damaged, no model, or written by a newer version.
    """
    header, arrays = read_archive(path, kind=KIND, version=VERSION, error=ModelFileError)
    try:
        found = conform(header, ModelHeader)
        return Model(
            family=Family(check_map(found.family.map), found.family.componentwise, found.family.local_bias),
            preprocessor=Preprocessor.from_arrays(arrays),
            certificate=ModelRecord(**header["certificate"]),
            feature_names=header.get("feature_names"),
            encoding=Encoding.from_arrays(arrays) if any(name in arrays for name in ENCODING_ARRAYS) else None,
            reduction=Reduction.from_arrays(arrays) if any(name in arrays for name in REDUCTION_ARRAYS) else None,
            calibration=Calibration.from_dict(header.get("calibration")),
            profile=Profile.from_arrays(arrays),
            **{name: arrays[name] for name in _ARRAYS},
        )
    except (MLLKMError, KeyError, TypeError, ValueError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else error
        raise ModelFileError(
            f"{os.fspath(path)} holds no model that fits together ({reason}): copy it again, or train again"
        ) from error


def model_checksum(model: Model) -> str:
    """The sha256 that the file of this model holds, in hexadecimal digits."""
    return archive_checksum(kind=KIND, version=_version(model), header=_header(model), arrays=model_arrays(model))


def model_arrays(model: Model) -> dict[str, NDArray[Any]]:
    """All arrays of a model by name, including those of its preprocessor, encoding and profile."""
    own = {name: getattr(model, name) for name in _ARRAYS} | model.preprocessor.to_arrays()
    for part in (model.step, model.profile):
        own |= {} if part is None else part.to_arrays()
    return own


def _version(model: Model) -> int:
    if model.reduction is not None:
        return VERSION
    newer = (model.feature_names, model.calibration, model.encoding, model.profile)
    if any(part is not None for part in newer):
        return 3
    return 1 if model.preprocessor.is_plain else 2


def _header(model: Model) -> dict[str, Any]:
    family = {
        "map": model.family.map,
        "componentwise": bool(model.family.componentwise),
        "local_bias": float(model.family.local_bias),
    }
    header: dict[str, Any] = {"family": family, "certificate": model.certificate.to_header()}
    if model.feature_names is not None:
        header["feature_names"] = list(model.feature_names)
    if model.calibration is not None:
        header["calibration"] = model.calibration.as_dict()
    return header
