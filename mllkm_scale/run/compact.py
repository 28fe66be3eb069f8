"""Under a number of bytes on a device: which features, directions, kernels and bits a machine is made of.

Sizes that fit compete on held-out rows, each as a learned machine of a short descent: first by the number of
directions, half of the bytes being for the projection where it cannot have all features; then the best of them with
other shares. These have 4 bits. The best then meets machines of its directions whose constants have 8 bits, which are
fewer kernels; here each is scored in its integers, so that what rounding costs is seen. Everything is judged by the
log loss of rows of the training that it has not seen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.events import Notice, Phase
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.base.units import format_bytes
from mllkm_scale.base.weighted import weighted_mean
from mllkm_scale.base.wording import percent
from mllkm_scale.data import Dataset, check
from mllkm_scale.data.labels import signs_of
from mllkm_scale.data.preparation.moments import gather_moments
from mllkm_scale.data.subset import subset
from mllkm_scale.errors import ParameterError
from mllkm_scale.export.integer import integer_machine
from mllkm_scale.kernels.anchors import anchor_spec
from mllkm_scale.kernels.maps import check_map
from mllkm_scale.learn.ranking import COMPONENTS, MANY_FEATURES, importance_of, most_important
from mllkm_scale.learn.settings import Tryout
from mllkm_scale.model.model import Model
from mllkm_scale.params import Params, defaults
from mllkm_scale.plan.contenders import LEAST_ROWS, TRIED_AT_ONCE
from mllkm_scale.plan.device import (
    BITS,
    ROUNDING_ROWS,
    DeviceSize,
    judging_bytes,
    other_shares,
    sizes_within,
    with_bits,
)
from mllkm_scale.run.assembly import assemble_learned
from mllkm_scale.run.folds import error_of, folds_of, log_losses, make_trial
from mllkm_scale.run.problem import Problem, build_problem
from mllkm_scale.run.session import Resources

__all__ = ["Compacted", "compacted"]

_ROWS, _HELD = 8000, ROUNDING_ROWS
_NO_LIMIT, _EPOCHS, _RIDGE = 1e18, 0.4, 0.1
_MOST_KERNELS = 1000
_SHARES = (0.3, 0.4, 0.6, 0.7)


@dataclass(frozen=True)
class Compacted:
    """Parameters of the machine that has won, and its size."""

    params: Params
    size: DeviceSize
    max_bytes: int

    @property
    def chosen(self) -> dict[str, int]:
        """What the model has to remember: its integers have other bytes with other bits."""
        return {"max_bytes": self.max_bytes, "bits": self.size.bits}


def compacted(dataset: Dataset, params: Params, resources: Resources) -> Compacted:
    """Parameters of a machine of at most `max_bytes`: learned kernels in learned directions, left as learned."""
    max_bytes, n = params.device_bytes, dataset.n_rows
    assert max_bytes is not None
    check(dataset)
    classes, codes = dataset.label_codes()
    folds = list(folds_of(codes, int(params.random_state or 0), LEAST_ROWS - 1, _ROWS, _HELD))[:1]
    if n < LEAST_ROWS or not folds:
        raise ParameterError(f"max_bytes needs at least {LEAST_ROWS} rows, and two of each class: there are {n} rows")
    changing = int((~gather_moments(dataset.unlabelled()).constant).sum())
    n_columns = max(1, min(changing, params.max_features or changing))
    first = _fixed(params, n_columns)
    outputs = signs_of(codes[:1], len(classes)).shape[1]
    judging = judging_bytes(max_bytes, n, n_columns, outputs)
    most = anchor_spec(params.anchors).count or params.max_kernels or _MOST_KERNELS
    most_kernels = min(most, max(1, len(folds[0].rest) // 2))
    most_directions = n_columns if first.n_components is None else min(n_columns, int(first.n_components))
    sizes = sizes_within(max_bytes, check_map(first.map), outputs, n_columns, most_directions, most_kernels)
    if isinstance(params.metric, int):
        sizes = [size for size in sizes if size.directions == params.metric] or sizes
    resources.listener(
        Phase("select", f"{len(sizes)} sizes below {format_bytes(max_bytes)}, {len(folds[0].held):,} held-out rows")
    )

    importances: dict[str, Array] = {}

    def judged(task: tuple[DeviceSize, str], rounded: bool) -> tuple[float, float]:
        size, scaling = task
        settings = _of_size(replace(first, scaling=scaling), size, dataset.n_features)
        tryout, features = Tryout(_NO_LIMIT, _EPOCHS), most_important(importances[scaling], size.columns)

        def build(part: Dataset) -> Problem:
            return build_problem(part, settings, resources.single(), tryout=tryout, features=features)

        with closing(make_trial(dataset, codes, folds[0], build)) as trial:
            assert trial.problem.learned is not None
            if rounded:
                try:
                    F = in_integers(assemble_learned(trial.problem, 0.0, 0.0, settings), size)
                except ParameterError:  # its sums are beyond 32 bits
                    return math.inf, 1.0
            else:
                F = trial.problem.learned.decide(trial.rows)
            losses = log_losses(F, trial.codes, trial.weights)
            return weighted_mean(losses, trial.weights), error_of(F, trial.codes, trial.weights)

    def in_integers(model: Model, size: DeviceSize) -> Array:
        with one_blas_thread():
            return integer_machine(model, rest, size.bits).decision_function(held)

    def race(
        candidates: Sequence[DeviceSize], scalings: Sequence[str], rounded: bool = False
    ) -> dict[tuple[DeviceSize, str], Any]:
        tasks = [(size, scaling) for size in candidates for scaling in scalings]
        at_once = min(TRIED_AT_ONCE, max(1, resources.plan.inner_bytes // judging)) if rounded else TRIED_AT_ONCE
        with resources.threads.at_most(at_once) as small:
            return dict(zip(tasks, small.run(partial(judged, rounded=rounded), tasks), strict=True))

    rest = subset(dataset, folds[0].rest, "rows")
    held = dataset.rows(folds[0].held)
    scalings = ("standard", "none") if params.scaling == "auto" else (params.scaling,)
    signs, seed = signs_of(codes[folds[0].rest], len(classes)), int(params.random_state or 0)
    for scaling in scalings:
        importances[scaling] = importance_of(rest, signs, codes[folds[0].rest], scaling, seed, resources.threads)
    tried = race([sizes[len(sizes) // 2]], scalings)
    _, scaling = min(tried, key=lambda task: tried[task])
    tried |= race([size for size in sizes if (size, scaling) not in tried], [scaling])
    size, _ = min(tried, key=lambda task: tried[task])
    tried |= race(other_shares(size, max_bytes, n_columns, most_kernels, _SHARES), [scaling])
    size, scaling = min(tried, key=lambda task: tried[task])
    others = (with_bits(size, bits, max_bytes, n_columns, most_kernels) for bits in BITS if bits != size.bits)
    tried = race([size, *itertools.chain.from_iterable(others)], [scaling], rounded=True)
    size, scaling = min(tried, key=lambda task: tried[task])
    chosen = _of_size(replace(first, scaling=scaling, ridge=params.ridge), size, dataset.n_features)
    how = "no projection" if size.directions is None else f"{size.directions} directions"
    resources.listener(
        Notice(
            f"{size.columns} features, {how}, {size.kernels} kernels, at most {format_bytes(size.constant_bytes)} on a"
            f" device with {size.bits} bits: {percent(tried[size, scaling][1])} error on held-out rows"
        )
    )
    return Compacted(chosen, size, max_bytes)


def _fixed(params: Params, n_columns: int) -> Params:
    """What does not depend on the size: bumps without an exponential, wide at first, and no MKL."""
    standard = defaults()
    components = params.n_components
    if components is None and n_columns > MANY_FEATURES:
        components = COMPONENTS
    return replace(
        params,
        map="squared" if params.map == standard["map"] else params.map,
        gammas="wide" if params.gammas == standard["gammas"] else params.gammas,
        ridge=_RIDGE if params.ridge == "auto" else params.ridge,
        finish="none",
        n_components=components,
        max_bytes=None,
    )


def _of_size(params: Params, size: DeviceSize, n_features: int) -> Params:
    components = params.n_components
    return replace(
        params,
        anchors=f"learned:{size.kernels}",
        metric="diagonal" if size.directions is None else size.directions,
        n_components=None if components is None or size.directions is None else min(int(components), size.columns),
        max_features=None if size.columns == n_features else size.columns,
    )
