"""The methods of the paper's Table 2, with the paper's settings: C = 100, features scaled to [0, 1].

The paper follows the procedure of SimpleMKL, whose kernels have unit trace: sum_i k(x_i, x_i) = 1. Here
`normalize="trace"` gives a kernel a mean diagonal of one, n times as much, and C = 100 there is C = 100 / n here. The
gammas are the paper's ten over [0.01, 10]. Local predictors are affine (`local_bias="auto"`), or optionally linear, as
in the paper. As in the paper, the width of the kernel of LaSVM is chosen by cross-validation, and LLSVM has 32 anchors.
SimpleMKL and SequentialMKL scale the features to unit variance. The last row is not in the paper: there, C of one MLLKM
is also chosen by cross-validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mllkm_scale.kernels.gammas import logspace
from mllkm_scale.kernels.maps import MapName
from mllkm_scale.params import PRESETS

__all__ = ["FAMILIES", "GROUPS", "C", "Method", "table2_methods"]

C = float(PRESETS["paper"]["C"])
FAMILIES: dict[str, tuple[MapName, bool]] = {
    "Gaussian": ("gaussian", False),
    "Exponential": ("exponential", False),
    "Linear": ("linear", False),
    "Square": ("squared", False),
    "Component Gaussian": ("gaussian", True),
    "Component Exponential": ("exponential", True),
    "Component Linear": ("linear", True),
    "Component Square": ("squared", True),
}
"""The eight families: conformal map, and whether it is component-wise."""

GROUPS = ("MLLKM", "linear and locally linear", "non-linear", "beyond the paper")
_LLSVM_ANCHORS = 32
_LASVM_GAMMAS = tuple(2.0**power for power in range(-6, 4))
_CHOICES_OF_C = (C, 10.0 * C, 100.0 * C, 1000.0 * C)


@dataclass(frozen=True)
class Method:
    """A row of the table: functions that make its machine for n training samples, and return the size of a trained
    one."""

    name: str
    group: str
    make: Callable[[int], Any]
    size: Callable[[Any], tuple[int, int]]  # kernels, support vectors


def table2_methods(local_bias: float | str = "auto") -> Iterator[Method]:
    """Every row, in the order of the paper."""
    for name, (map, componentwise) in FAMILIES.items():
        yield Method(f"MLLKM ({name})", GROUPS[0], _mllkm(map, componentwise, local_bias), _kernels)
    yield Method("SAG", GROUPS[1], _sag, lambda machine: (1, 1))
    yield Method("LLSVM", GROUPS[1], _llsvm, lambda machine: (len(machine[-1].anchors_), 1))
    yield Method("LaSVM (Gaussian)", GROUPS[2], _lasvm, lambda machine: (1, _support(machine[-1].best_estimator_)))
    yield Method("SimpleMKL", GROUPS[2], _simple_mkl, lambda machine: (_kernels(machine)[0], _support(machine)))
    yield Method("SequentialMKL", GROUPS[2], _sequential_mkl, lambda machine: (_kernels(machine)[0], _support(machine)))
    yield Method("MLLKM (Gaussian, C chosen)", GROUPS[3], _chosen, lambda machine: _kernels(machine.best_estimator_))


def _kernels(machine: Any) -> tuple[int, int]:
    return int(np.count_nonzero(machine.weights_)), 1


def _support(machine: Any) -> int:
    return len(machine.support_)


def _mllkm(map: str, componentwise: bool, local_bias: float | str) -> Callable[[int], Any]:
    def make(n: int) -> Any:
        from mllkm_scale import MLLKMClassifier

        return MLLKMClassifier(
            C=C / n,
            map=map,
            componentwise=componentwise,
            gammas=logspace().tolist(),
            local_bias=local_bias,
            scaling="minmax",
            n_jobs=1,
        )

    return make


def _chosen(n: int) -> Any:
    """C by cross-validation, like the width of the kernel of LaSVM."""
    from sklearn.model_selection import GridSearchCV

    machine = _mllkm("gaussian", False, "auto")(n)
    return GridSearchCV(machine, {"C": [value / n for value in _CHOICES_OF_C]}, cv=_folds())


def _folds() -> Any:
    from sklearn.model_selection import StratifiedKFold

    return StratifiedKFold(5, shuffle=True, random_state=0)


def _scaled(machine: Any) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    return make_pipeline(MinMaxScaler(), machine)


def _sag(n: int) -> Any:
    from mllkm_scale.baselines import SAGClassifier

    return _scaled(SAGClassifier(C=C, max_iter=20_000))


def _llsvm(n: int) -> Any:
    from mllkm_scale.baselines import LLSVMClassifier

    return _scaled(LLSVMClassifier(n_anchors=_LLSVM_ANCHORS, C=C))


def _lasvm(n: int) -> Any:
    from sklearn.model_selection import GridSearchCV

    from mllkm_scale.baselines import LaSVMClassifier

    return _scaled(GridSearchCV(LaSVMClassifier(C=C), {"gamma": _LASVM_GAMMAS}, cv=_folds()))


def _simple_mkl(n: int) -> Any:
    from mllkm_scale.baselines import SimpleMKLClassifier

    return SimpleMKLClassifier(C=C)


def _sequential_mkl(n: int) -> Any:
    from mllkm_scale.baselines import SequentialMKLClassifier

    return SequentialMKLClassifier(C=C)
