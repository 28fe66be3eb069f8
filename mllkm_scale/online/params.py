"""The parameters of learning online, beside those of training that it shares."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from mllkm_scale.errors import ParameterError
from mllkm_scale.params import Params, parameter, resolve

__all__ = ["SHARED", "OnlineParams", "require_online", "stream_params"]

SHARED = (
    "C",
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
"""Parameters of a training that mean the same to learning online; of the others, some are of no use to it."""


@dataclass(frozen=True)
class OnlineParams:
    """What only learning online is told."""

    max_samples: int | None = parameter(
        None, "most samples that are kept; when three quarters are taken, the oldest begin to fade"
    )
    window: int | None = parameter(None, "samples that came so many samples ago are forgotten, and fade before")
    warm_up: int = parameter(1024, "first samples, of which scaling, projection and gammas are taken")

    def check(self) -> OnlineParams:
        """Itself, if every value can work."""
        for spec in fields(self):
            value: Any = getattr(self, spec.name)
            if value is None and spec.default is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                none = ", or None for no limit" if spec.default is None else ""
                raise ParameterError(f"{spec.name}={value!r}: give a whole number from 1{none}")
        return self


def require_online(params: Params) -> Params:
    """Itself, if a machine that learns online can be as these parameters say."""
    if not (isinstance(params.anchors, str) and params.anchors in ("auto", "all")):
        raise ParameterError(
            f"anchors={params.anchors!r}: the anchors of a machine that learns online are the samples that come;"
            " leave it at 'auto'"
        )
    if params.multi_class != "shared":
        raise ParameterError(
            f"multi_class={params.multi_class!r}: classes share the kernels of a machine that learns online;"
            " leave it at 'shared'"
        )
    return params


def stream_params(given: dict[str, Any]) -> tuple[Params, OnlineParams]:
    """Parameters by name, as those of the machine and those of learning online alone; unknown ones are refused."""
    own = {spec.name for spec in fields(OnlineParams)}
    if other := sorted(set(given) - own - set(SHARED) - {"verbose"}):
        raise ParameterError(
            f"{other[0]!r} is no parameter of learning online: known are {', '.join([*SHARED, *sorted(own)])}"
        )
    online = OnlineParams(**{name: value for name, value in given.items() if name in own})
    return resolve(**{name: value for name, value in given.items() if name not in own}), online.check()
