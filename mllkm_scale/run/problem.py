"""From a data set and parameters to the problem that is solved: prepared rows, signs, and the grid of kernels."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.events import Phase
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
from mllkm_scale.learn.proposals import Keeper, learn_kernels
from mllkm_scale.learn.ranking import importance_of, most_important
from mllkm_scale.learn.settings import Tryout, learn_settings, learned_kernels
from mllkm_scale.learn.start import LearnedRecord, LearnedStart, folded, record_of, start_of
from mllkm_scale.model.names import unique_names
from mllkm_scale.params import Params
from mllkm_scale.plan.contenders import FOLD_ROWS, contenders
from mllkm_scale.run.advice import advice_on_data, advice_on_memory
from mllkm_scale.run.session import Resources
from mllkm_scale.solver.box import Box

__all__ = ["Problem", "build_problem", "check_by", "fingerprint_of"]

_SAMPLE_ROWS = 1000  # for distances
_ADDED = ("max_bytes", "max_features")  # after the first fingerprints, which have to stay what they were
_RESULT_FREE = (
    "class_weight",  # shapes it by the weights of the rows
    "tol",
    "max_kernels",
    "max_rounds",
    "time_limit",
    "memory_budget",
    "scratch_dir",
    "n_jobs",
    "worker_timeout",
    "verbose",
    "reduction",
)  # parameters that a resumed training may change; what a reduction makes of the rows is in their prepared values


@dataclass(frozen=True)
class Problem:
    """All that the solver needs to know of the data; `signs` (n, K) in one byte each, K = 1 for two classes.

    `weights` are those of the rows in the loss, None where they are one.
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
    """Opens the file that keeps the descent of a training, which this fingerprint and seed stand for."""

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
    """Check, scale, project, learn, and lay out the open set; streamed, within the plan, the passes by the executor.

    Of settings that are still open, the first is taken. With a `tryout` the descent is one to compare settings by.
    `features` are numbers of those that are used, where they are known already, and `summary` is of data that have been
    checked.

    Kernels are learned by the threads of this process.
    """
    params = contenders(params, dataset.n_rows)[0]
    plan, listener, executor, poll = resources.plan, resources.listener, resources.executor, resources.poll
    if summary is None:
        listener(Phase("check", dataset.name))
        summary = check_by(dataset, resources)
    for advice in (*advice_on_memory(plan.budget_bytes), *advice_on_data(summary, params)):
        listener(advice)
    (classes, codes), weights = dataset.label_codes(), dataset.weights()
    poll()
    listener(Phase("prepare", f"scaling {params.scaling}, components {params.n_components or 'all'}"))
    names, indicators = unique_names(dataset.feature_names), dataset.indicators
    dataset = executor.place(dataset.unlabelled())
    seed, signs = int(params.random_state or 0), signs_of(codes, len(classes), np.int8)
    if params.max_features is not None and params.max_features < dataset.n_features and features is None:
        scaling = "standard" if params.scaling == "auto" else params.scaling
        importance = importance_of(dataset, signs, codes, scaling, seed, resources.threads)
        features = most_important(importance, params.max_features)
        poll()
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
        count = learned_kernels(spec, params.max_kernels, data.n_rows, signs.shape[1])
        metric = _metric(params.metric, data.n_features)
        wide = isinstance(params.gammas, str) and params.gammas == "wide"
        settings = learn_settings(data.n_rows, count, metric, seed, signs.shape[1], float(params.ridge), wide=wide)
        if tryout is not None:
            settings = settings.cut(data.n_rows, data.n_features, signs.shape[1], tryout)
        listener(Phase("learn", f"{count} kernels, {settings.epochs} epochs, metric {params.metric or 'none'}"))
        learned = learn_kernels(
            data,
            signs,
            codes,
            Family(check_map(params.map), params.componentwise),
            settings,
            resources.threads,
            weights=weights,
            hold_out=data.n_rows > FOLD_ROWS,
            keeper=None
            if keeping is None
            else keeping(fingerprint_of(params, data, signs, weights, seed, count, executor), seed),
            listener=listener,
            poll=poll,
            out_of_time=resources.out_of_time,
        )
        record = record_of(learned, preprocessor)
        if learned.machine.metric is not None:
            data.close()
            listener(Phase("prepare", "with the learned metric"))
            preprocessor = folded(preprocessor, learned)
            data = prepared(preprocessor)
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
    listener(Phase("normalise", f"{anchors.n_rows * len(gammas)} candidate kernels"))
    scales = np.ones((anchors.n_rows, len(gammas)))
    if reference is not None:
        scales = trace_scales(family, anchors, gammas, reference, executor)
        if not scales.any() and start is None:
            raise ParameterError(
                f"no kernel with gammas={params.gammas!r} tells more than a few samples from its anchor:"
                " use other gammas, or check that the samples differ"
            )
    grid = KernelGrid(family, anchors, gammas, scales, None if start is None else start.kernels)
    C = weight_of_loss(params.C, data.n_features)
    fingerprint = fingerprint_of(params, data, signs, weights, seed, count, executor)
    return Problem(data, classes, codes, signs, grid, preprocessor, C, seed, fingerprint, start, record, names, weights)


def check_by(dataset: Dataset, resources: Resources) -> DataSummary:
    """Check data by the executor, or by the threads of this process where its members cannot read them."""
    here = resources.executor.remote and dataset.path is None
    return check(dataset, ThreadExecutor(resources.threads, resources.poll) if here else resources.executor)


def _metric(metric: str | int | None, n_features: int) -> Metric:
    """The metric of rows with so many features; of a single one there is nothing to weigh."""
    if isinstance(metric, int) and metric > n_features:
        raise ParameterError(f"metric={metric}: the prepared rows have {n_features} features: give a smaller number")
    return None if n_features == 1 and not isinstance(metric, int) else metric


def _rng(seed: int, use: int) -> np.random.Generator:
    return np.random.default_rng([seed, use])


def _anchors(anchors: Any, data: Dataset, preprocessor: Preprocessor, seed: int, executor: Executor) -> RowSource:
    """The candidates' anchors as rows in the prepared space, where the executor can read them."""
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
        raise DataError("anchors: give a matrix of finite numbers, one anchor a row, in the space of X")
    if given.shape[1] != preprocessor.n_features_in:
        raise DataError(
            f"anchors have {given.shape[1]} features, but X has {preprocessor.n_features_in}: give one column a feature"
        )
    return executor.place(Dataset.from_arrays(preprocessor.transform(given), name="anchors"))


@dataclass(frozen=True)
class DigestWork:
    """Digests of the chunks of the prepared rows, one after the other."""

    data: Dataset

    @property
    def unit_work(self) -> float:
        return 4.0 * self.data.chunk_rows * self.data.n_features

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.data.paths

    def __call__(self, units: range) -> bytes:
        return b"".join(hashlib.blake2b(self.data.chunk(unit).data, digest_size=16).digest() for unit in units)

    def describe(self, units: range) -> str:
        return f"chunks {units[0]} to {units[-1]} of the prepared rows, of which a digest is taken"


def fingerprint_of(
    params: Params,
    data: Dataset,
    signs: Array,
    weights: Array | None,
    seed: int,
    n_learned: int,
    executor: Executor | None = None,
) -> str:
    """Names the problem: the same for the same prepared data and the same parameters that shape the result.

    `max_kernels` shapes it where it bounds the number of kernels that are learned.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, value in sorted(vars(params).items()):
        if name not in _RESULT_FREE and not (name in _ADDED and value is None):
            digest.update(f"{name}={np.asarray(value).tolist()!r};".encode())
    digest.update(f"seed={seed};{data.n_rows}x{data.n_features};learned={n_learned};".encode())
    digest.update(np.packbits(signs > 0).tobytes())
    if weights is not None:
        digest.update(np.ascontiguousarray(weights).data)
    if data.n_chunks == 1:
        digest.update(data.chunk(0).data)
        return digest.hexdigest()
    for digests in (executor or ThreadExecutor()).start(DigestWork(data), data.n_chunks):
        digest.update(digests)
    return digest.hexdigest()
