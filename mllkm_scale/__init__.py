"""Multiple Locally Linear Kernel Machines, trained out of core with a certified duality gap.

    from mllkm_scale import Dataset, MLLKMClassifier, train

`train` is the function; `MLLKMClassifier` the scikit-learn estimator on top of it; `Dataset` the data on disk.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["Dataset", "MLLKMClassifier", "Model", "TrainResult", "__version__", "load_model", "train"]

if TYPE_CHECKING:
    from mllkm_scale.data import Dataset
    from mllkm_scale.model import Model, load_model
    from mllkm_scale.model.estimator import MLLKMClassifier
    from mllkm_scale.training import TrainResult, train

_HOMES = {
    "Dataset": "mllkm_scale.data",
    "MLLKMClassifier": "mllkm_scale.model.estimator",
    "Model": "mllkm_scale.model",
    "TrainResult": "mllkm_scale.training",
    "load_model": "mllkm_scale.model",
    "train": "mllkm_scale.training",
}


def __getattr__(name: str) -> Any:
    # Loaded when first used: the command line's help must not wait for numba and scikit-learn.
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
