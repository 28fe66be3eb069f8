"""All parameters of a training run: their defaults, their meaning, and the checks of their values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.class_weight import ClassWeight, check_class_weight
from mllkm_scale.base.units import parse_bytes
from mllkm_scale.config import PARAMETERS, configured_parameters
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.anchors import anchor_spec
from mllkm_scale.kernels.gammas import GAMMA_NAMES, logspace
from mllkm_scale.kernels.maps import MAPS

__all__ = ["GAMMA_NAMES", "PRESETS", "Params", "changed", "checked", "defaults", "parameter", "resolve"]

Choice = tuple[str, ...]


def parameter(default: Any, help: str, choices: Choice | None = None) -> Any:
    """A field of a dataclass of parameters, with the help text of its option."""
    return field(default=default, metadata={"help": help, "choices": choices})


@dataclass(frozen=True)
class Params:
    """Parameters of a training run; the documentation of the estimator explains them in full."""

    C: float | str = parameter(
        "auto",
        "weight of the hinge loss against the norm; 'auto': chosen on held-out rows, or by the number of features",
    )
    map: str = parameter("gaussian", "conformal map of the kernels", MAPS)
    componentwise: bool = parameter(False, "one bump per component instead of one per kernel")
    gammas: str | float | Sequence[float] = parameter(
        "auto", "scales of the bumps: numbers, or 'auto', 'wide' or 'narrow' for bumps by the distances"
    )
    anchors: str | int | NDArray[Any] = parameter(
        "auto",
        "candidate anchors: 'learned' ones (also 'learned:N', 'learned+all', 'learned+N'), 'all' samples, a number of"
        " random ones, 'kmeans:N' centres, an array, or 'auto': learned ones, or with few rows those that are"
        " better on held-out rows",
    )
    metric: str | int | None = parameter(
        "auto",
        "map of the features that is learned with the anchors: a 'diagonal' scaling ('auto'), a 'full' linear map, a"
        " number of its rows, or None",
    )
    ridge: float | str = parameter(
        "auto", "weight of the squared norms, times the rows, when kernels are learned; 'auto': chosen on held-out rows"
    )
    finish: str = parameter(
        "auto",
        "what follows when kernels are learned: 'mkl' computes weights and a certificate, 'none' keeps the learned"
        " machine, 'auto' is 'mkl' unless it would take too long or predict worse",
        ("auto", "mkl", "none"),
    )
    normalize: str | None = parameter("trace", "divide each kernel by its mean diagonal, or None", ("trace", "none"))
    local_bias: float | str = parameter("auto", "square of the constant component of each kernel; the paper has 0")
    scaling: str = parameter(
        "auto",
        "scaling of the features; 'auto': standard, with additional quantile columns if kernels are learned and the"
        " columns add information",
        ("none", "standard", "minmax", "unit-norm", "quantile", "standard+quantile", "auto"),
    )
    reduction: str | None = parameter(
        "auto",
        "reduction of many columns to few features, before the scaling: by singular vectors ('svd:N') or random signs"
        " ('random:N'), 'none', or 'auto': for sparse rows with more than 1,024 columns",
    )
    n_components: int | float | None = parameter(None, "principal components kept, or their share of variance below 1")
    whiten: bool = parameter(False, "give each principal component unit variance")
    multi_class: str = parameter(
        "shared", "kernel weights shared by the classes, or one machine per class", ("shared", "ovr")
    )
    class_weight: ClassWeight = parameter(
        None,
        "weight of the rows of each class in the loss: label:weight,..., or 'balanced' for the same sum in each class",
    )
    strategy: str = parameter("working-sets", "two working sets, or Algorithm 2 as printed", ("working-sets", "paper"))
    overlap: str = parameter(
        "auto",
        "scan the open kernels while the next round is solved: 'auto' if scanning is the larger part",
        ("auto", "always", "never"),
    )
    pricing: str = parameter(
        "auto",
        "'auto' scans only a share of the open kernels in rounds in which a full scan would dominate; 'full' scans all",
        ("auto", "full"),
    )
    tol: float = parameter(0.01, "relative duality gap over all candidate kernels at which training stops")
    max_kernels: int | None = parameter(None, "largest number of kernels of the model, in every round")
    max_features: int | None = parameter(
        None, "largest number of features that are used: the most important ones in a short descent of learned kernels"
    )
    max_bytes: str | int | None = parameter(
        None,
        "bytes of constants that the model may have in integers on a device, such as 16kB: features, directions,"
        " kernels and bits are chosen to fit",
    )
    max_rounds: int | None = parameter(None, "largest number of rounds of the outer loop")
    time_limit: float | None = parameter(
        None, "seconds to train for: learning is fitted to them, and the round in which they end is the last"
    )
    memory_budget: str | int = parameter("2GB", "bound on the peak memory of the process, such as 1GB")
    scratch_dir: str | None = parameter(None, "folder for temporary files (default: the system's)")
    random_state: int | None = parameter(0, "seed of all random choices")
    n_jobs: int | None = parameter(-1, "threads; -1 for one per core")
    worker_timeout: float = parameter(
        300.0, "seconds to wait for the next result of the workers before training stops with an error"
    )
    verbose: int = parameter(0, "1 prints a line per round")

    @property
    def bumps(self) -> str:
        """The widths of the bumps by name; "auto" if scales are given."""
        return self.gammas if isinstance(self.gammas, str) else "auto"

    @property
    def budget_bytes(self) -> int:
        """The memory budget in bytes."""
        try:
            return parse_bytes(self.memory_budget)
        except ParameterError as error:
            raise ParameterError(f"memory_budget={self.memory_budget!r}: {error}") from None

    def check(self) -> Params:
        """Return these parameters if all values are valid; otherwise raise a ParameterError that names one."""
        for spec in fields(self):
            choices, value = spec.metadata["choices"], getattr(self, spec.name)
            if choices is not None and (value if value is not None else "none") not in choices:
                raise ParameterError(f"{spec.name}={value!r} is not known: choose one of {', '.join(choices)}")
        if self.C != "auto":
            _positive("C", self.C)
        check_class_weight(self.class_weight)
        if self.reduction not in ("auto", "none", None):
            from mllkm_scale.data.sparse.reduction import reduction_spec  # slow to import, and --help must be fast

            reduction_spec(self.reduction)
        self._check_learned()
        self._check_device()
        metric = self.metric
        known = metric is None or metric in ("auto", "diagonal", "full", "none")
        if not known and (not isinstance(metric, int | np.integer) or isinstance(metric, bool) or metric < 1):
            raise ParameterError(f"metric={metric!r}: give 'auto', 'diagonal', 'full', a number of components, or None")
        if self.ridge != "auto":
            _positive("ridge", self.ridge)
        _positive("tol", self.tol)
        _positive("worker_timeout", self.worker_timeout)
        for name in ("max_kernels", "max_features", "max_rounds"):
            _count(name, getattr(self, name))
        if self.time_limit is not None:
            _positive("time_limit", self.time_limit)
        if self.local_bias != "auto" and not (_is_number(self.local_bias) and self.local_bias >= 0):  # type: ignore[operator]
            raise ParameterError(f"local_bias={self.local_bias!r}: give a number that is not negative, or 'auto'")
        if self.random_state is not None and (
            not isinstance(self.random_state, int | np.integer) or self.random_state < 0
        ):
            raise ParameterError(
                f"random_state={self.random_state!r}: give a whole number from 0, or None for a random one"
            )
        if self.n_jobs is not None and (not isinstance(self.n_jobs, int | np.integer) or self.n_jobs == 0):
            raise ParameterError(f"n_jobs={self.n_jobs!r}: give a number of threads, or -1 for one per core")
        _ = self.budget_bytes
        return self

    @property
    def device_bytes(self) -> int | None:
        """The bytes that the model may have on a device; None for no limit."""
        try:
            return None if self.max_bytes is None else parse_bytes(self.max_bytes)
        except ParameterError as error:
            raise ParameterError(f"max_bytes={self.max_bytes!r}: {error}") from None

    def _check_device(self) -> None:
        """Refuse settings for which the bytes on a device are not known in advance."""
        if self.device_bytes is None:
            return
        fixed = {
            "scaling": ("none", "standard", "minmax", "auto"),
            "componentwise": (False,),
            "finish": ("auto", "none"),
        }
        for name, values in fixed.items():
            if getattr(self, name) not in values:
                raise ParameterError(
                    f"{name}={getattr(self, name)!r} does not work with max_bytes: use {' or '.join(map(repr, values))}"
                )
        spec = anchor_spec(self.anchors)
        if not spec.learned and spec.kind != "auto":
            raise ParameterError(f"anchors={self.anchors!r} does not work with max_bytes, which needs learned kernels")

    def _check_learned(self) -> None:
        """Refuse settings that exclude learned kernels; with finish="none", automatic anchors are learned."""
        spec = anchor_spec(self.anchors)
        if not spec.learned and not (spec.kind == "auto" and self.finish == "none"):
            return
        if self.strategy == "paper":
            raise ParameterError(
                f"strategy='paper' needs a grid of anchors, but anchors={self.anchors!r}, finish={self.finish!r} learn"
                " them: use strategy='working-sets', or anchors='all'"
            )
        if self.finish == "none" and self.local_bias == 0:
            raise ParameterError(
                "local_bias=0 does not work with finish='none', because a learned machine has local biases: give a"
                " positive value or 'auto', or use finish='mkl'"
            )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and math.isfinite(float(value))


def _positive(name: str, value: object) -> None:
    if not _is_number(value) or not float(value) > 0:  # type: ignore[arg-type]
        raise ParameterError(f"{name}={value!r}: give a positive number")


def _count(name: str, value: object) -> None:
    if value is not None and (not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1):
        raise ParameterError(f"{name}={value!r}: give a whole number from 1, or None for no limit")


PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "C": 100.0,
        "gammas": tuple(logspace().tolist()),
        "anchors": "all",
        "metric": None,
        "normalize": None,
        "local_bias": 0.0,
        "scaling": "none",
        "multi_class": "ovr",
    }
}
"""Named settings. "paper": C = 100, ten gammas over [0.01, 10], all samples as anchors, unnormalised kernels and
features, one-vs-rest."""


def defaults() -> dict[str, Any]:
    """Name and default of every parameter."""
    return {spec.name: spec.default for spec in fields(Params)}


def resolve(preset: str | None = None, **given: Any) -> Params:
    """Checked parameters: given values override the preset, which overrides the configuration and the defaults.

    None means the configured value, for parameters that can be configured.

    >>> resolve("paper", C=10.0).C, resolve("paper").C, resolve().C
    (10.0, 100.0, 'auto')
    """
    told = {name: value for name, value in given.items() if value is not None or name not in PARAMETERS}
    return checked(preset, **(configured_parameters() | told))


def checked(preset: str | None = None, **given: Any) -> Params:
    """Like `resolve`, but without the configuration."""
    if preset is not None and preset not in PRESETS:
        raise ParameterError(f"preset={preset!r} is not known: choose one of {', '.join(PRESETS)}, or None")
    standard = defaults()
    if unknown := sorted(set(given) - set(standard)):
        raise ParameterError(f"unknown parameter {unknown[0]!r}: known are {', '.join(standard)}")
    params = replace(Params(), **{**(PRESETS[preset] if preset else {}), **given})
    if params.normalize == "none":
        params = replace(params, normalize=None)
    if params.metric == "none":
        params = replace(params, metric=None)
    if isinstance(params.metric, np.integer):
        params = replace(params, metric=int(params.metric))
    return params.check()


def changed(given: dict[str, Any]) -> dict[str, Any]:
    """The given parameters that differ from their defaults."""
    standard = defaults()
    return {name: value for name, value in given.items() if not _same(value, standard[name])}


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(np.all(value == default))
