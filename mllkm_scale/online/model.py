"""The model of the current state of an online machine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mllkm_scale.base.class_weight import class_weight_in_words
from mllkm_scale.model.calibration import Calibration
from mllkm_scale.model.model import Model
from mllkm_scale.model.record import ModelRecord
from mllkm_scale.online.active import ActiveKernels
from mllkm_scale.online.params import SHARED
from mllkm_scale.online.setup import Setup
from mllkm_scale.params import Params

__all__ = ["ONLINE", "model_of"]

ONLINE = "online"
"""Status of a model that was learned from a stream: its gap over all kernels is unknown."""

_SHAPES = tuple(name for name in SHARED if name not in ("memory_budget", "n_jobs", "worker_timeout", "max_kernels"))


def model_of(
    setup: Setup,
    active: ActiveKernels,
    params: Params,
    n_seen: int,
    feature_names: tuple[str, ...] | None = None,
    calibration: Calibration | None = None,
) -> Model:
    """A model of these kernels, with a record of its training."""
    coef, local_coef = active.coefficients()
    record = ModelRecord(
        primal=math.nan,
        dual=math.nan,
        gap=math.nan,
        tol=math.nan,
        status=ONLINE,
        n_open=n_seen * len(setup.gammas),
        n_train=n_seen,
        seed=int(params.random_state or 0),
        params={name: getattr(params, name) for name in _SHAPES}
        | {"C": setup.C, "gammas": _plain(params.gammas)}
        | {"class_weight": class_weight_in_words(params.class_weight)},
    )
    model = Model(
        family=setup.family,
        classes=setup.classes,
        anchors=active.kernels.anchors,
        gammas=active.kernels.gammas,
        kernel_scale=active.kernels.scales,
        weights=active.weights,
        coef=coef,
        local_coef=local_coef,
        preprocessor=setup.preprocessor,
        certificate=record,
        feature_names=feature_names if setup.encoding is None else None,
        calibration=calibration,
    )
    return model if setup.encoding is None else model.behind(setup.encoding)


def _plain(gammas: Any) -> Any:
    return gammas if isinstance(gammas, str) else np.ravel(gammas).tolist()
