"""The parameters of online learning, in addition to those that it shares with training."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from mllkm_scale.errors import ParameterError
from mllkm_scale.params import Params, parameter, resolve

__all__ = ["SHARED", "OnlineParams", "require_online", "stream_params"]

SHARED = (
    "C",
    "class_weight",
    "map",
    "componentwise",
    "gammas",
    "normalize",
    "local_bias",
    "scaling",
    "n_components",
    "whiten",
    "max_kernels",
    "memory_budget",
    "random_state",
    "n_jobs",
    "worker_timeout",
)
"""Parameters of training that have the same meaning in online learning."""


@dataclass(frozen=True)
class OnlineParams:
    """The parameters that only online learning has."""

    max_samples: int | None = parameter(
        None, "largest number of samples kept; when three quarters are in use, the oldest begin to fade"
    )
    window: int | None = parameter(None, "number of newer samples after which a sample is forgotten; it fades before")
    warm_up: int = parameter(1024, "first samples, from which scaling, projection and gammas are computed")

    def check(self) -> OnlineParams:
        """Return these parameters if all values are valid; otherwise raise a ParameterError that names one."""
        for spec in fields(self):
            value: Any = getattr(self, spec.name)
            if value is None and spec.default is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                none = ", or None for no limit" if spec.default is None else ""
                raise ParameterError(f"{spec.name}={value!r}: give a whole number from 1{none}")
        return self


def require_online(params: Params) -> Params:
    """Return the parameters if online learning supports them; otherwise raise a ParameterError."""
    if not (isinstance(params.anchors, str) and params.anchors in ("auto", "all")):
        raise ParameterError(
            f"anchors={params.anchors!r}: the anchors of online learning are the arriving samples: leave it at 'auto'"
        )
    if isinstance(params.class_weight, str):
        raise ParameterError(
            f"class_weight={params.class_weight!r}: how many samples of a class will come is not known: give weights by"
            " label"
        )
    if params.multi_class != "shared":
        raise ParameterError(
            f"multi_class={params.multi_class!r}: classes share the kernels in online learning: leave it at 'shared'"
        )
    return params


def stream_params(given: dict[str, Any]) -> tuple[Params, OnlineParams]:
    """Split parameters into those of the machine and those of online learning; refuse unknown ones."""
    own = {spec.name for spec in fields(OnlineParams)}
    if other := sorted(set(given) - own - set(SHARED) - {"verbose"}):
        raise ParameterError(
            f"{other[0]!r} is not a parameter of online learning: known are {', '.join([*SHARED, *sorted(own)])}"
        )
    online = OnlineParams(**{name: value for name, value in given.items() if name in own})
    return resolve(**{name: value for name, value in given.items() if name not in own}), online.check()
