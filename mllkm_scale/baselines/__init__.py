"""The methods with which the paper and its reviewers compare, as scikit-learn estimators, one per file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mllkm_scale.base.lazy import lazy_names

__all__ = [
    "DCPredClassifier",
    "LDKLClassifier",
    "LLSVMClassifier",
    "LMKLClassifier",
    "LaSVMClassifier",
    "SAGClassifier",
    "SDCAClassifier",
    "SequentialMKLClassifier",
    "SimpleMKLClassifier",
]

if TYPE_CHECKING:
    from mllkm_scale.baselines.dcpred import DCPredClassifier
    from mllkm_scale.baselines.generic_mkl import SequentialMKLClassifier, SimpleMKLClassifier
    from mllkm_scale.baselines.lasvm import LaSVMClassifier
    from mllkm_scale.baselines.ldkl import LDKLClassifier
    from mllkm_scale.baselines.llsvm import LLSVMClassifier
    from mllkm_scale.baselines.lmkl import LMKLClassifier
    from mllkm_scale.baselines.sag import SAGClassifier
    from mllkm_scale.baselines.sdca import SDCAClassifier

_HOMES = {
    "DCPredClassifier": "mllkm_scale.baselines.dcpred",
    "LDKLClassifier": "mllkm_scale.baselines.ldkl",
    "LLSVMClassifier": "mllkm_scale.baselines.llsvm",
    "LMKLClassifier": "mllkm_scale.baselines.lmkl",
    "LaSVMClassifier": "mllkm_scale.baselines.lasvm",
    "SAGClassifier": "mllkm_scale.baselines.sag",
    "SDCAClassifier": "mllkm_scale.baselines.sdca",
    "SequentialMKLClassifier": "mllkm_scale.baselines.generic_mkl",
    "SimpleMKLClassifier": "mllkm_scale.baselines.generic_mkl",
}

__getattr__ = lazy_names(__name__, _HOMES)
