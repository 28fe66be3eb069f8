"""The parts of a model: labels in order, arrays of consistent sizes, and the preparation of its data."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.first_step import FirstStep
from mllkm_scale.data.preparation.preprocessing import Preprocessor
from mllkm_scale.data.sources import plain_text
from mllkm_scale.data.sparse.reduction import Reduction
from mllkm_scale.data.tables.encoding import Encoding
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import check_map
from mllkm_scale.model.calibration import ISOTONIC, Calibration
from mllkm_scale.model.describe_text import one_line
from mllkm_scale.model.names import Features, as_feature_names
from mllkm_scale.model.profile import Profile
from mllkm_scale.model.record import ModelRecord

__all__ = ["ModelParts"]


@dataclass(frozen=True, eq=False, repr=False)
class ModelParts:
    """The fields of a model, as described in `Model`; inconsistent fields are refused."""

    family: Family
    classes: Array
    anchors: Array
    gammas: Array
    kernel_scale: Array
    weights: Array
    coef: Array
    local_coef: Array
    preprocessor: Preprocessor
    certificate: ModelRecord
    feature_names: tuple[str, ...] | None = None
    calibration: Calibration | None = None
    encoding: Encoding | None = None
    profile: Profile | None = None
    reduction: Reduction | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", _class_labels(self.classes))
        # C order throughout: the bits of a product depend on the memory layout of its factors.
        for name in ("anchors", "gammas", "kernel_scale", "weights", "coef", "local_coef"):
            values = np.asarray(getattr(self, name))
            if values.dtype.kind not in "fiu":
                raise ParameterError(f"{name} has type {values.dtype}: give real numbers")
            object.__setattr__(self, name, np.ascontiguousarray(values, dtype=np.float64))
        object.__setattr__(self, "feature_names", as_feature_names(self.feature_names, self.n_features_in))
        self._require_agreement()

    @property
    def n_kernels(self) -> int:
        """s, the number of kernels."""
        return len(self.gammas)

    @property
    def n_machines(self) -> int:
        """K: 1 for two classes, otherwise one per class."""
        return 1 if len(self.classes) == 2 else len(self.classes)

    @property
    def n_features_in(self) -> int:
        """Number of features of an input row."""
        return self.preprocessor.n_features_in if self.step is None else self.step.n_columns

    @property
    def step(self) -> FirstStep | None:
        """The step that makes features of input rows, before the preparation; None if there is none."""
        return self.reduction if self.encoding is None else self.encoding

    @property
    def features(self) -> Features:
        """The features with which the columns of a table are matched."""
        return Features(self.n_features_in, self.feature_names)

    def require_calibration(self) -> Calibration:
        """The calibration; an error if the model has none."""
        if self.calibration is None and self.certificate.status == "online":
            raise ParameterError(
                "the model of this stream has no probabilities yet: they need 100 samples of two classes that came"
                " after the warm-up, and were predicted before they were learned; learn more of them, or use its scores"
            )
        if self.calibration is None:
            raise ParameterError(
                "the model has no calibration, and so no probabilities: it was written by an older version, or trained"
                " without rows to hold out, or beyond its time limit; train again, or use its scores"
            )
        return self.calibration

    def codes(self, scores: Array) -> NDArray[np.int64]:
        """Position among the classes of the prediction for each row of a decision function."""
        chosen = scores > 0 if scores.ndim == 1 else np.argmax(scores, axis=1)
        return chosen.astype(np.int64)

    def require_features(self, n_features: int, name: str) -> None:
        """Refuse data with another number of features than in training."""
        if n_features != self.n_features_in:
            raise DataError(
                f"{name} has {n_features} features per row, but the model was trained with"
                f" {self.n_features_in}: give the same features in the same order"
            )

    def flat(self, scores: Array) -> Array:
        """Values (n, K) in the shape of the result: (n,) for two classes."""
        return scores[:, 0] if self.n_machines == 1 else scores

    def __repr__(self) -> str:
        return one_line(self)

    def __getstate__(self) -> dict[str, Any]:
        """Only the fields: everything derived from them is computed again when it is needed."""
        return {spec.name: getattr(self, spec.name) for spec in fields(self)}

    def _require_agreement(self) -> None:
        family = self.family
        check_map(family.map)
        if self.calibration is not None and self.calibration.method == ISOTONIC and self.n_machines > 1:
            raise ParameterError("an isotonic calibration is for two classes: calibrate again")
        if not 0 <= family.local_bias < np.inf:
            raise ParameterError(f"local_bias is {family.local_bias}: give a number that is not negative")
        if self.profile is not None:
            self.profile.require_sizes(self.preprocessor.n_features_out, self.preprocessor.n_features_in)
        if self.encoding is not None and self.reduction is not None:
            raise ParameterError("a model has an encoding or a reduction: give one of them")
        if self.step is not None and self.step.n_features != self.preprocessor.n_features_in:
            raise ParameterError(
                f"the encoding makes {self.step.n_features} features, but the preprocessor takes"
                f" {self.preprocessor.n_features_in}: give those of one training run"
            )
        s, d = self.gammas.size, self.preprocessor.n_features_out
        K = self.n_machines
        needed = {
            "anchors": (s, d),
            "gammas": (s,),
            "kernel_scale": (s,),
            "weights": (K, s) if self.weights.ndim == 2 else (s,),
            "coef": (K, s, d),
            "local_coef": (K, s),
        }
        for name, shape in needed.items():
            values = getattr(self, name)
            if values.shape != shape or not values.size:
                raise ParameterError(
                    f"{name} has shape {values.shape}, but {len(self.classes)} classes, {s} kernels and {d}"
                    f" features need {shape}: give arrays that agree"
                )
            if not np.isfinite(values).all():
                raise ParameterError(f"{name} holds NaN or infinity: give finite numbers")
            if name in ("gammas", "kernel_scale", "weights") and values.min() < 0:
                raise ParameterError(f"{name} holds {values.min()}: give numbers that are not negative")


def _class_labels(classes: ArrayLike) -> Array:
    labels = np.ascontiguousarray(plain_text(np.asarray(classes), "classes"))
    if labels.ndim != 1 or labels.dtype.kind not in "biufU" or len(labels) < 2:
        raise ParameterError(
            f"classes have shape {labels.shape} and type {labels.dtype}: give at least two numbers or texts"
        )
    if not (labels[:-1] < labels[1:]).all():
        raise ParameterError("classes are not in ascending order, each once: sort them, as encode_labels does")
    return labels
