"""Multiple Locally Linear Kernel Machines, trained out of core with a certified duality gap.

    from mllkm_scale import Dataset, MLLKMClassifier, train

`train` is the function; `MLLKMClassifier` the scikit-learn estimator on top of it; `Dataset` the data on disk.
`train_path` and `MLLKMClassifierCV` train models of several sizes to choose from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mllkm_scale.base.lazy import lazy_names
from mllkm_scale.base.version import __version__

__all__ = [
    "Dataset",
    "MLLKMClassifier",
    "MLLKMClassifierCV",
    "Model",
    "PathResult",
    "PredictSummary",
    "TrainResult",
    "__version__",
    "load_model",
    "predict_file",
    "train",
    "train_path",
]

if TYPE_CHECKING:
    from mllkm_scale.data import Dataset
    from mllkm_scale.estimators.classifier import MLLKMClassifier
    from mllkm_scale.estimators.cross_validation import MLLKMClassifierCV
    from mllkm_scale.model import Model, load_model
    from mllkm_scale.path import PathResult, train_path
    from mllkm_scale.prediction import PredictSummary, predict_file
    from mllkm_scale.training import TrainResult, train

_HOMES = {
    "Dataset": "mllkm_scale.data",
    "MLLKMClassifier": "mllkm_scale.estimators.classifier",
    "MLLKMClassifierCV": "mllkm_scale.estimators.cross_validation",
    "Model": "mllkm_scale.model",
    "PathResult": "mllkm_scale.path",
    "PredictSummary": "mllkm_scale.prediction",
    "TrainResult": "mllkm_scale.training",
    "load_model": "mllkm_scale.model",
    "predict_file": "mllkm_scale.prediction",
    "train": "mllkm_scale.training",
    "train_path": "mllkm_scale.path",
}

__getattr__ = lazy_names(__name__, _HOMES)
