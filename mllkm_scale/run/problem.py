"""The problem to solve, from a data set and parameters: prepared rows, signs, and the grid of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.events import Notice, Phase
from mllkm_scale.base.executor import Executor, ThreadExecutor
from mllkm_scale.base.weighted import unit_weights
from mllkm_scale.data import Dataset, Preprocessor, check, prepare
from mllkm_scale.data.checks import DataSummary
from mllkm_scale.data.labels import signs_of
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.kernels.anchors import anchor_spec, kmeans_centres, random_rows
from mllkm_scale.kernels.automatic import local_bias_of, weight_of_loss
from mllkm_scale.kernels.gammas import resolve_gammas
from mllkm_scale.kernels.grid import Family, KernelGrid, RowSource
from mllkm_scale.kernels.maps import check_map
from mllkm_scale.kernels.normalisation import REFERENCE_ROWS, trace_scales
from mllkm_scale.learn.machine import Metric
from mllkm_scale.learn.proposals import Keeper, Learned, learn_kernels
from mllkm_scale.learn.ranking import importance_of, most_important
from mllkm_scale.learn.settings import TIME_SHARE, Tryout, learn_settings, learned_kernels
from mllkm_scale.learn.start import LearnedRecord, LearnedStart, folded, record_of, start_of
from mllkm_scale.model.names import unique_names
from mllkm_scale.params import Params
from mllkm_scale.plan.contenders import FOLD_ROWS, contenders
from mllkm_scale.run.advice import advice_on_data, advice_on_memory
from mllkm_scale.run.fingerprint import fingerprint_of
from mllkm_scale.run.session import Resources
from mllkm_scale.solver.box import Box

__all__ = ["Problem", "build_problem", "check_by"]

_SAMPLE_ROWS = 1000  # for distances


@dataclass(frozen=True)
class Problem:
    """The data for the solver; `signs` (n, K) with one byte each, K = 1 for two classes.

    `weights` are those of the rows in the loss, None if all are one.
    """

    data: Dataset
    classes: Array
    codes: Array  # number of the class of every row
    signs: Array
    grid: KernelGrid
    preprocessor: Preprocessor
    C: float
    seed: int
    fingerprint: str
    learned: LearnedStart | None = None
    learned_record: LearnedRecord | None = None
    feature_names: tuple[str, ...] | None = None
    weights: Array | None = None

    @property
    def row_weights(self) -> Array:
        """The weight of every row in the loss."""
        return unit_weights(len(self.codes)) if self.weights is None else self.weights

    @property
    def box(self) -> Box:
        """The box of the duals, and the loss."""
        return Box(self.C, self.row_weights)

    def close(self) -> None:
        self.data.close()


class Opening(Protocol):
    """Opens the file of the descent of a training run with this fingerprint and seed."""

    def __call__(self, fingerprint: str, seed: int) -> Keeper: ...


def build_problem(
    dataset: Dataset,
    params: Params,
    resources: Resources,
    *,
    keeping: Opening | None = None,
    tryout: Tryout | None = None,
    features: Array | None = None,
    summary: DataSummary | None = None,
) -> Problem:
    """Check, scale, project, learn kernels, and define the open set; streamed, within the plan, with passes by the
    executor.

    If settings are still open, the first one is used. With a `tryout`, the descent is a short one to compare settings.
    `features` are the indices of the features to use, if known, and `summary` is given if the data have been checked.

    Kernels are learned by the threads of this process.
    """
    params = contenders(params, dataset.n_rows)[0]
    plan, listener, executor, poll = resources.plan, resources.listener, resources.executor, resources.poll
    if summary is None:
        listener(Phase("check", dataset.name))
        summary = check_by(dataset, resources)
    for advice in (*advice_on_memory(plan.budget_bytes), *advice_on_data(summary, params)):
        listener(advice)
    samples = _Samples.of(dataset, params)
    poll()
    listener(Phase("prepare", f"scaling {params.scaling}, components {params.n_components or 'all'}"))
    names, indicators = unique_names(dataset.feature_names), dataset.indicators
    dataset = executor.place(dataset.unlabelled())
    if features is None:
        features = _features_to_use(dataset, samples, params, resources)
    preprocessor = Preprocessor.fit(
        dataset, params.scaling, params.n_components, params.whiten, executor, indicators, features
    )
    scratch = None if params.scratch_dir is None else Path(params.scratch_dir)
    in_memory = plan.in_memory and not executor.remote

    def prepared(preprocessor: Preprocessor) -> Dataset:
        return prepare(dataset, preprocessor, in_memory=in_memory, scratch_dir=scratch, executor=executor)

    data = prepared(preprocessor)
    poll()
    spec, learned, record, count = anchor_spec(params.anchors), None, None, 0
    if spec.learned:
        narrow = params.bumps == "narrow"
        count = learned_kernels(spec, params.max_kernels, data.n_rows, samples.signs.shape[1], narrow)
        learned = _learn(data, samples, count, params, resources, keeping, tryout)
        record = record_of(learned, preprocessor)
        if learned.machine.metric is not None:
            data.close()
            listener(Phase("prepare", "with the learned metric"))
            preprocessor = folded(preprocessor, learned)
            data = prepared(preprocessor)
    grid, start = _open_set(data, preprocessor, learned, params, samples.seed, resources)
    return Problem(
        data=data,
        classes=samples.classes,
        codes=samples.codes,
        signs=samples.signs,
        grid=grid,
        preprocessor=preprocessor,
        C=weight_of_loss(params.C, data.n_features),
        seed=samples.seed,
        fingerprint=samples.fingerprint(params, data, count, executor),
        learned=start,
        learned_record=record,
        feature_names=names,
        weights=samples.weights,
    )


@dataclass(frozen=True)
class _Samples:
    """All that a problem has of its samples besides their rows, and the seed."""

    classes: Array
    codes: Array
    signs: Array
    weights: Array | None
    seed: int

    @classmethod
    def of(cls, dataset: Dataset, params: Params) -> _Samples:
        (classes, codes), weights = dataset.label_codes(), dataset.weights()
        return cls(classes, codes, signs_of(codes, len(classes), np.int8), weights, int(params.random_state or 0))

    def fingerprint(self, params: Params, data: Dataset, n_learned: int, executor: Executor) -> str:
        return fingerprint_of(params, data, self.signs, self.weights, self.seed, n_learned, executor)


def _features_to_use(dataset: Dataset, samples: _Samples, params: Params, resources: Resources) -> Array | None:
    """The `max_features` most important features; None for all."""
    if params.max_features is None or params.max_features >= dataset.n_features:
        return None
    scaling = "standard" if params.scaling == "auto" else params.scaling
    importance = importance_of(dataset, samples.signs, samples.codes, scaling, samples.seed, resources.threads)
    features = most_important(importance, params.max_features)
    resources.poll()
    return features


def _learn(
    data: Dataset,
    samples: _Samples,
    count: int,
    params: Params,
    resources: Resources,
    keeping: Opening | None,
    tryout: Tryout | None,
) -> Learned:
    """Learn so many kernels on the prepared rows (F12)."""
    n_outputs, seed, listener = samples.signs.shape[1], samples.seed, resources.listener
    metric = _metric(params.metric, data.n_features)
    settings = learn_settings(data.n_rows, count, metric, seed, n_outputs, float(params.ridge), params.bumps)
    if tryout is not None:
        settings = settings.cut(data.n_rows, data.n_features, n_outputs, tryout)
    left = resources.clock.left_s()
    listener(Phase("learn", f"{count} kernels, {settings.epochs} epochs, metric {params.metric or 'none'}"))
    keeper = None
    if keeping is not None:
        keeper = keeping(samples.fingerprint(params, data, count, resources.executor), seed)
    learned = learn_kernels(
        data,
        samples.signs,
        samples.codes,
        Family(check_map(params.map), params.componentwise),
        settings,
        resources.threads,
        weights=samples.weights,
        hold_out=data.n_rows > FOLD_ROWS,
        keeper=keeper,
        listener=listener,
        poll=resources.poll,
        seconds=None if left is None else TIME_SHARE * left,
    )
    if learned.hurried:
        begun = f"{learned.epochs[-1].number} of {settings.epochs} epochs were begun"
        listener(Notice(f"the time limit shortened the learning: {begun}"))
    return learned


def _open_set(
    data: Dataset,
    preprocessor: Preprocessor,
    learned: Learned | None,
    params: Params,
    seed: int,
    resources: Resources,
) -> tuple[KernelGrid, LearnedStart | None]:
    """The grid of candidate kernels with their normalisation (F9), and the start of MKL at the learned kernels."""
    spec, executor = anchor_spec(params.anchors), resources.executor
    sample = data.rows(random_rows(data.n_rows, _SAMPLE_ROWS, _rng(seed, 1)))
    sample = sample[_rng(seed, 2).permutation(len(sample))]
    family = Family(check_map(params.map), params.componentwise, local_bias_of(params.local_bias, sample))
    reference = None
    if params.normalize == "trace":
        reference = data.rows(random_rows(data.n_rows, REFERENCE_ROWS, _rng(seed, 3)))
    start = None if learned is None else start_of(learned, family, reference)
    if start is not None and isinstance(params.gammas, str):
        gammas = start.spread_gammas()
    else:
        gammas = resolve_gammas(params.gammas, family, sample)
    if start is None or spec.beside:
        anchors = _anchors(spec.beside if spec.learned else params.anchors, data, preprocessor, seed, executor)
    else:
        anchors = executor.place(Dataset.from_arrays(start.kernels.anchors, name="learned anchors"))
    resources.listener(Phase("normalise", f"{anchors.n_rows * len(gammas)} candidate kernels"))
    scales = np.ones((anchors.n_rows, len(gammas)))
    if reference is not None:
        scales = trace_scales(family, anchors, gammas, reference, executor)
        if not scales.any() and start is None:
            raise ParameterError(
                f"no kernel with gammas={params.gammas!r} is nonzero on more than a few samples:"
                " use other gammas, or check that the samples differ"
            )
    return KernelGrid(family, anchors, gammas, scales, None if start is None else start.kernels), start


def check_by(dataset: Dataset, resources: Resources) -> DataSummary:
    """Check data by the executor, or by the threads of this process if the workers cannot read them."""
    here = resources.executor.remote and dataset.path is None
    return check(dataset, ThreadExecutor(resources.threads, resources.poll) if here else resources.executor)


def _metric(metric: str | int | None, n_features: int) -> Metric:
    """The metric for this number of features; None for a single feature."""
    if isinstance(metric, int) and metric > n_features:
        raise ParameterError(f"metric={metric}: the prepared rows have {n_features} features: give a smaller number")
    return None if n_features == 1 and not isinstance(metric, int) else metric


def _rng(seed: int, use: int) -> np.random.Generator:
    return np.random.default_rng([seed, use])


def _anchors(anchors: Any, data: Dataset, preprocessor: Preprocessor, seed: int, executor: Executor) -> RowSource:
    """The anchors of the candidates as prepared rows, which the executor can read."""
    if isinstance(anchors, str):
        if anchors == "all":
            return data
        count = int(anchors.partition(":")[2])
        return executor.place(Dataset.from_arrays(kmeans_centres(data, count, _rng(seed, 4)), name="k-means anchors"))
    if isinstance(anchors, int | np.integer):
        rows = random_rows(data.n_rows, int(anchors), _rng(seed, 4))
        return executor.place(Dataset.from_arrays(data.rows(rows), name="random anchors"))
    given = np.atleast_2d(np.asarray(anchors))
    if given.ndim != 2 or given.dtype.kind not in "fiu" or not np.isfinite(given).all():
        raise DataError("anchors: give a matrix of finite numbers, one anchor per row, in the space of X")
    if given.shape[1] != preprocessor.n_features_in:
        raise DataError(
            f"anchors have {given.shape[1]} features, but X has {preprocessor.n_features_in}:"
            " give one column per feature"
        )
    return executor.place(Dataset.from_arrays(preprocessor.transform(given), name="anchors"))
