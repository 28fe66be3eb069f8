"""From a data set and parameters to the problem that is solved: prepared rows, signs, and the grid of kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.automatic import local_bias_of, weight_of_loss
from mllkm_scale.crew import Crew
from mllkm_scale.data import Dataset, Preprocessor, check, encode_labels, prepare
from mllkm_scale.data.labels import signs_of
from mllkm_scale.errors import DataError, ParameterError
from mllkm_scale.kernels.anchors import kmeans_centres, random_rows
from mllkm_scale.kernels.gammas import resolve_gammas
from mllkm_scale.kernels.grid import Family, KernelGrid, RowSource
from mllkm_scale.kernels.maps import check_map
from mllkm_scale.kernels.normalisation import REFERENCE_ROWS, trace_scales
from mllkm_scale.params import Params
from mllkm_scale.run.advice import advice_on_data, advice_on_memory
from mllkm_scale.run.events import Listener, Phase
from mllkm_scale.run.plan import Plan

__all__ = ["Problem", "build_problem"]

Array = NDArray[Any]

_SAMPLE_ROWS = 1000  # for distances
_RESULT_FREE = (
    "tol",
    "max_kernels",
    "max_rounds",
    "time_limit",
    "memory_budget",
    "scratch_dir",
    "n_jobs",
    "worker_timeout",
    "verbose",
)  # parameters that a resumed training may change


@dataclass(frozen=True)
class Problem:
    """All that the solver needs to know of the data; `signs` (n, K), K = 1 for two classes."""

    data: Dataset
    classes: Array
    signs: Array
    grid: KernelGrid
    preprocessor: Preprocessor
    C: float
    seed: int
    fingerprint: str

    def close(self) -> None:
        self.data.close()


def build_problem(
    dataset: Dataset,
    params: Params,
    plan: Plan,
    listener: Listener,
    crew: Crew,
    poll: Callable[[], None] = lambda: None,
) -> Problem:
    """Check, scale, project, and lay out the open set; streamed, within the plan, the passes by the crew."""
    listener(Phase("check", dataset.name))
    for advice in (*advice_on_memory(plan.budget_bytes), *advice_on_data(check(dataset), params)):
        listener(advice)
    classes, codes = encode_labels(dataset.labels())
    poll()
    listener(Phase("prepare", f"scaling {params.scaling}, components {params.n_components or 'all'}"))
    dataset = crew.place(dataset.unlabelled())
    preprocessor = Preprocessor.fit(dataset, params.scaling, params.n_components, params.whiten, crew)
    scratch = None if params.scratch_dir is None else Path(params.scratch_dir)
    in_memory = plan.in_memory and not crew.remote
    data = prepare(dataset, preprocessor, in_memory=in_memory, scratch_dir=crew.folder or scratch)
    poll()
    seed = int(params.random_state or 0)
    sample = data.rows(random_rows(data.n_rows, _SAMPLE_ROWS, _rng(seed, 1)))
    sample = sample[_rng(seed, 2).permutation(len(sample))]
    family = Family(check_map(params.map), params.componentwise, local_bias_of(params.local_bias, sample))
    gammas = resolve_gammas(params.gammas, family, sample)
    anchors = _anchors(params.anchors, data, preprocessor, seed, crew)
    listener(Phase("normalise", f"{anchors.n_rows * len(gammas)} candidate kernels"))
    scales = np.ones((anchors.n_rows, len(gammas)))
    if params.normalize == "trace":
        reference = data.rows(random_rows(data.n_rows, REFERENCE_ROWS, _rng(seed, 3)))
        scales = trace_scales(family, anchors, gammas, reference, crew)
        if not scales.any():
            raise ParameterError(
                f"no kernel with gammas={params.gammas!r} tells more than a few samples from its anchor:"
                " use other gammas, or check that the samples differ"
            )
    grid = KernelGrid(family, anchors, gammas, scales)
    signs = signs_of(codes, len(classes))
    C = weight_of_loss(params.C, data.n_features)
    return Problem(data, classes, signs, grid, preprocessor, C, seed, _fingerprint(params, data, signs, seed))


def _rng(seed: int, use: int) -> np.random.Generator:
    return np.random.default_rng([seed, use])


def _anchors(anchors: Any, data: Dataset, preprocessor: Preprocessor, seed: int, crew: Crew) -> RowSource:
    """The candidates' anchors as rows in the prepared space, where the crew can read them."""
    if isinstance(anchors, str):
        if anchors == "all":
            return data
        count = int(anchors.partition(":")[2])
        return crew.place(Dataset.from_arrays(kmeans_centres(data, count, _rng(seed, 4)), name="k-means anchors"))
    if isinstance(anchors, int | np.integer):
        rows = random_rows(data.n_rows, int(anchors), _rng(seed, 4))
        return crew.place(Dataset.from_arrays(data.rows(rows), name="random anchors"))
    given = np.atleast_2d(np.asarray(anchors))
    if given.ndim != 2 or given.dtype.kind not in "fiu" or not np.isfinite(given).all():
        raise DataError("anchors: give a matrix of finite numbers, one anchor a row, in the space of X")
    if given.shape[1] != preprocessor.n_features_in:
        raise DataError(
            f"anchors have {given.shape[1]} features, but X has {preprocessor.n_features_in}: give one column a feature"
        )
    return crew.place(Dataset.from_arrays(preprocessor.transform(given), name="anchors"))


def _fingerprint(params: Params, data: Dataset, signs: Array, seed: int) -> str:
    """Names the problem: the same for the same prepared data and the same parameters that shape the result."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in sorted(vars(params).items()):
        if name not in _RESULT_FREE:
            digest.update(f"{name}={np.asarray(value).tolist()!r};".encode())
    digest.update(f"seed={seed};{data.n_rows}x{data.n_features};".encode())
    digest.update(np.packbits(signs > 0).tobytes())
    for _, chunk in data.chunks():
        digest.update(np.ascontiguousarray(chunk).data)
    return digest.hexdigest()
