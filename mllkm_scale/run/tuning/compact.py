"""The choice of features, directions, kernels and bits of a machine below a number of bytes on a device.

This is successive halving. The candidates are all sizes that fit: numbers of directions with constants of 4 and of 8
bits, each with as many kernels as possible. The first rung learns all of them by short descents on some rows. The
second rung learns the best of each number of bits on more rows, with every ridge. The last rung runs full descents of
the best of these, and evaluates them in integers. So it includes what short descents rank wrongly, and the effect of
rounding. The criterion is the log loss of the same held-out training rows in all rungs. The candidate with the least
loss wins; between equal losses, the one with fewer bytes. After the time limit, no further rung begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.events import Notice, Phase
from mllkm_scale.base.executor import ThreadExecutor
from mllkm_scale.base.files.regular import read_regular
from mllkm_scale.base.schemas import MOST_JSON_BYTES, SizeFile, conform, parse_json
from mllkm_scale.base.threads import one_blas_thread
from mllkm_scale.base.units import format_bytes
from mllkm_scale.base.weighted import weighted_mean
from mllkm_scale.base.wording import percent
from mllkm_scale.data import Dataset, check
from mllkm_scale.data.labels import signs_of
from mllkm_scale.data.preparation.moments import gather_moments
from mllkm_scale.data.subset import subset
from mllkm_scale.errors import CheckpointError, ParameterError
from mllkm_scale.export.integer import integer_machine
from mllkm_scale.kernels.anchors import anchor_spec
from mllkm_scale.kernels.maps import check_map
from mllkm_scale.learn.ranking import COMPONENTS, MANY_FEATURES, importance_of, most_important
from mllkm_scale.learn.settings import Tryout
from mllkm_scale.model.calibration import Calibration, fit_calibration
from mllkm_scale.params import Params, defaults
from mllkm_scale.plan.contenders import LEAST_ROWS, RIDGES, TRIED_AT_ONCE
from mllkm_scale.plan.device import (
    BITS,
    DIRECTIONS,
    ROUNDING_ROWS,
    DeviceLimit,
    DeviceSize,
    other_shares,
    sizes_within,
)
from mllkm_scale.run.assembly import assemble_learned
from mllkm_scale.run.checkpoint import START_AGAIN
from mllkm_scale.run.problem import Problem, build_problem
from mllkm_scale.run.session import Resources
from mllkm_scale.run.tuning.folds import Fold, error_of, folds_of, log_losses, make_trial, share_of

__all__ = ["Compacted", "compacted", "load_compacted"]

_NO_LIMIT = 1e18
_MOST_KERNELS = 1000
_SHARES = (0.3, 0.4, 0.6, 0.7)
_SETTLED = ("anchors", "metric", "scaling", "ridge", "n_components", "max_features")


@dataclass(frozen=True)
class _Rung:
    """Largest number of rows to learn from, and the share of the epochs."""

    rows: int
    epochs: float


_FIRST, _MIDDLE, _LAST = _Rung(8000, 0.4), _Rung(24_000, 0.4), _Rung(100_000, 1.0)
_IN_THE_MIDDLE, _AT_LAST = 3, 2  # candidates of each number of bits


@dataclass(frozen=True)
class _Candidate:
    size: DeviceSize
    scaling: str
    ridge: float


@dataclass(frozen=True)
class _Judged:
    """Log loss and error on the held-out rows, and their scores in floats."""

    loss: float
    error: float
    scores: Array


_Standings = dict[_Candidate, _Judged]


@dataclass(frozen=True)
class Compacted:
    """Parameters of the best machine, the limit that its model stores, and a calibration by the held-out rows."""

    params: Params
    limit: DeviceLimit
    calibration: Calibration | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        settled = {name: getattr(self.params, name) for name in _SETTLED}
        calibration = None if self.calibration is None else self.calibration.as_dict()
        return asdict(self.limit) | settled | {"calibration": calibration}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any], params: Params) -> Compacted:
        """The object from which `as_dict` made `found`; a ValueError if it does not fit these parameters."""
        conform(found, SizeFile)
        given = {"max_bytes": params.device_bytes} | {
            name: getattr(params, name) for name in ("metric", "scaling", "ridge") if getattr(params, name) != "auto"
        }
        for name, value in given.items():
            if found[name] != value and value != "full":
                raise ValueError(f"{name}={found[name]!r} is not that of the parameters")
        settled = replace(_fixed(params), **{name: found[name] for name in _SETTLED})
        limit = DeviceLimit(found["bits"], found["max_bytes"])
        return cls(settled, limit, Calibration.from_dict(found["calibration"]))


def compacted(dataset: Dataset, params: Params, resources: Resources) -> Compacted:
    """Parameters of a machine of at most `max_bytes`: learned kernels in learned directions, without MKL."""
    race = _Race(dataset, params, resources)
    sizes = race.sizes()
    sizes_in_words = f"{len(sizes)} sizes below {format_bytes(race.max_bytes)}"
    resources.listener(Phase("select", f"{sizes_in_words}, {len(race.held):,} held-out rows"))
    scalings = ("standard", "none") if params.scaling == "auto" else (params.scaling,)
    ridges = RIDGES if params.ridge == "auto" else (float(params.ridge),)
    judged = race.run([_Candidate(size, scalings[0], ridges[0]) for size in sizes], _FIRST)
    leaders = _best_of_bits(judged, _IN_THE_MIDDLE)
    judged |= race.run([replace(one, scaling=scaling) for one in leaders for scaling in scalings[1:]], _FIRST)
    leaders = _best_of_bits(judged, 1)
    judged |= race.run([replace(one, size=size) for one in leaders for size in race.shares(one.size)], _FIRST)
    leaders = _best_of_bits(judged, _IN_THE_MIDDLE)
    if not resources.clock.is_over():
        judged = race.run([replace(one, ridge=ridge) for one in leaders for ridge in ridges], _MIDDLE)
    if not resources.clock.is_over():
        judged = race.run(_best_of_bits(judged, _AT_LAST), _LAST)
    (winner,) = _best(judged, 1)
    resources.listener(Notice(f"{_in_words(winner.size)}: {percent(judged[winner].error)} error on held-out rows"))
    limit = DeviceLimit(winner.size.bits, race.max_bytes)
    return Compacted(race.settings(winner), limit, race.calibration(judged[winner]))


class _Race:
    """The rows on which candidates are learned, and the held-out rows on which they are evaluated."""

    def __init__(self, dataset: Dataset, params: Params, resources: Resources) -> None:
        assert params.device_bytes is not None
        self.dataset, self.resources, self.max_bytes = dataset, resources, params.device_bytes
        check(dataset)
        classes, self.codes = dataset.label_codes()
        self.seed, n = int(params.random_state or 0), dataset.n_rows
        folds = list(folds_of(self.codes, self.seed, LEAST_ROWS - 1, n, ROUNDING_ROWS))[:1]
        if n < LEAST_ROWS or not folds:
            raise ParameterError(
                f"max_bytes needs at least {LEAST_ROWS} rows, and two of each class: there are {n} rows"
            )
        self.held = folds[0].held
        self.rest = np.setdiff1d(np.arange(n), self.held)
        changing = int((~gather_moments(dataset.unlabelled()).constant).sum())
        self.n_columns = max(1, min(changing, params.max_features or changing))
        self.params = _fixed(params)
        if params.n_components is None and self.n_columns > MANY_FEATURES:
            wanted = params.metric if isinstance(params.metric, int) else COMPONENTS
            self.params = replace(self.params, n_components=max(COMPONENTS, min(wanted, self.n_columns)))
        self.signs = signs_of(self.codes, len(classes))
        most = anchor_spec(params.anchors).count or params.max_kernels or _MOST_KERNELS
        self.most_kernels = min(most, max(1, min(len(self.rest), _FIRST.rows) // 2))
        self._importance: dict[str, Array] = {}

    def sizes(self) -> list[DeviceSize]:
        """All sizes that fit, with the numbers of directions that the parameters allow."""
        components, metric = self.params.n_components, self.params.metric
        most = self.n_columns if components is None else min(self.n_columns, int(components))
        directions: tuple[int | None, ...] = (*(count for count in DIRECTIONS if count <= most), None)
        if metric != "auto":
            directions = (most if metric == "full" else metric if isinstance(metric, int) else None,)
        name, outputs = check_map(self.params.map), self.signs.shape[1]
        return sizes_within(self.max_bytes, name, outputs, self.n_columns, directions, self.most_kernels)

    def shares(self, size: DeviceSize) -> list[DeviceSize]:
        """The size with other shares of the bytes for its projection."""
        return other_shares(size, self.max_bytes, self.n_columns, self.most_kernels, _SHARES)

    def calibration(self, judged: _Judged) -> Calibration | None:
        """A calibration by the scores of the held-out rows."""
        weights = self.dataset.weights()
        own = None if weights is None else weights[self.held]
        return fit_calibration(judged.scores, self.codes[self.held], "rows held out to choose the size", own)

    def settings(self, candidate: _Candidate) -> Params:
        """The parameters of a candidate."""
        size, components = candidate.size, self.params.n_components
        unmapped = "diagonal" if self.params.metric == "auto" else self.params.metric
        return replace(
            self.params,
            scaling=candidate.scaling,
            ridge=candidate.ridge,
            anchors=f"learned:{size.kernels}",
            metric=unmapped if size.directions is None else size.directions,
            n_components=None if components is None or size.directions is None else min(int(components), size.columns),
            max_features=None if size.columns == self.dataset.n_features else size.columns,
        )

    def run(self, candidates: Iterable[_Candidate], rung: _Rung) -> _Standings:
        """Evaluate candidates: several at a time, but those of the last rung in turn, with all threads."""
        tasks = list(dict.fromkeys(candidates))
        for scaling in {task.scaling for task in tasks} - set(self._importance):
            self._importance[scaling] = self._importance_with(scaling)
        rows = share_of(self.rest, self.codes, rung.rows, np.random.default_rng([self.seed, 18]))
        share = f"{rung.epochs:.0%} of the epochs"
        self.resources.listener(Phase("select", f"{len(tasks)} machines, learned from {len(rows):,} rows, {share}"))
        judged = partial(self._evaluate, rung=rung, fold=Fold(rows, self.held))
        if rung is _LAST:
            executor = ThreadExecutor(self.resources.threads, self.resources.poll)
            resources = replace(self.resources.quiet(), executor=executor)
            found = [judged(task, resources) for task in tasks]
        else:
            with self.resources.threads.at_most(TRIED_AT_ONCE) as small:
                found = small.run(lambda task: judged(task, self.resources.single()), tasks)
        return dict(zip(tasks, found, strict=True))

    def _evaluate(self, candidate: _Candidate, resources: Resources, rung: _Rung, fold: Fold) -> _Judged:
        settings, size = self.settings(candidate), candidate.size
        features = most_important(self._importance[candidate.scaling], size.columns)

        def build(part: Dataset) -> Problem:
            return build_problem(part, settings, resources, tryout=Tryout(_NO_LIMIT, rung.epochs), features=features)

        with closing(make_trial(self.dataset, self.codes, fold, build)) as trial:
            assert trial.problem.learned is not None
            scores = F = trial.problem.learned.decide(trial.rows)
            if rung is _LAST:
                model = assemble_learned(trial.problem, 0.0, 0.0, settings)
                try:
                    with one_blas_thread():
                        machine = integer_machine(model, subset(self.dataset, fold.rest, "rows"), size.bits)
                except ParameterError:  # its sums exceed 32 bits
                    return _Judged(math.inf, 1.0, scores)
                F = machine.decision_function(self.dataset.rows(self.held))
            loss = weighted_mean(log_losses(F, trial.codes, trial.weights), trial.weights)
            return _Judged(loss, error_of(F, trial.codes, trial.weights), scores)

    def _importance_with(self, scaling: str) -> Array:
        """The importance of every feature, from the rows that are not held out."""
        rest = subset(self.dataset, self.rest, "rows")
        return importance_of(
            rest, self.signs[self.rest], self.codes[self.rest], scaling, self.seed, self.resources.threads
        )


def _best(judged: _Standings, places: int) -> list[_Candidate]:
    """The candidates with the least loss; between equal losses, those with fewer bytes."""
    return sorted(judged, key=lambda one: (judged[one].loss, one.size.constant_bytes))[:places]


def _best_of_bits(judged: _Standings, places: int) -> list[_Candidate]:
    """The best of each number of bits, because only the last rung includes the effect of rounding."""
    own = ({one: judged[one] for one in judged if one.size.bits == bits} for bits in BITS)
    return [one for group in own for one in _best(group, places)]


def load_compacted(path: Path, params: Params) -> Compacted | None:
    """The choice of an interrupted training run, if it was made before the interruption."""
    if not path.exists():
        return None
    try:
        return Compacted.from_dict(parse_json(read_regular(path, CheckpointError, MOST_JSON_BYTES)), params)
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is damaged, or belongs to a training with other parameters ({error}): resume it with those that"
            f" it was started with, or {START_AGAIN}"
        ) from None


def _in_words(size: DeviceSize) -> str:
    how = "no projection" if size.directions is None else f"{size.directions} directions"
    return (
        f"{size.columns} features, {how}, {size.kernels} kernels, at most {format_bytes(size.constant_bytes)} on a"
        f" device with {size.bits} bits"
    )


def _fixed(params: Params) -> Params:
    """What does not depend on the size: bumps without an exponential, wide at first, and no MKL."""
    standard = defaults()
    return replace(
        params,
        map="squared" if params.map == standard["map"] else params.map,
        gammas="wide" if params.gammas == standard["gammas"] else params.gammas,
        finish="none",
        max_bytes=None,
    )
