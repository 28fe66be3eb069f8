"""The sizes of a problem: those of the data set, and those that follow from the parameters. The plan is a function of
them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mllkm_scale.base.threads import n_threads
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.labels import n_outputs
from mllkm_scale.data.preparation.scaling import QUANTILE_SCALINGS, most_columns
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.anchors import anchor_spec
from mllkm_scale.kernels.gammas import n_gammas
from mllkm_scale.kernels.maps import MapName, check_map
from mllkm_scale.learn.machine import Metric
from mllkm_scale.learn.settings import learned_kernels
from mllkm_scale.mkl.forms import InnerSizes, inner_flops
from mllkm_scale.params import Params
from mllkm_scale.plan.contenders import contenders, may_be_learned, may_be_samples, tried_rows
from mllkm_scale.plan.device import judging_bytes
from mllkm_scale.scan.work import scan_dtype

__all__ = ["MOST_MKL_FLOPS", "NEAR_ROW_BYTES", "ROUNDS", "Sizes", "expected_working", "mkl_flops", "sizes_of"]

MOST_MKL_FLOPS = 5e10
"""Multiply-adds of solving above which `finish="auto"` leaves out MKL: about ten seconds."""

ROUNDS = 8
"""Typical number of rounds of a training run."""

NEAR_ROW_BYTES = 48
"""Bytes per output of a row near the margin: margins, duals and signed duals, and copies of them during a pass."""

_NEAR_ROWS, _NEAR_BYTES = 2**19, 2.5e8


@dataclass(frozen=True)
class Sizes:
    """The arguments of the plan."""

    n_rows: int
    n_features_in: int
    n_features: int  # after projection
    itemsize: int  # of the prepared data
    n_outputs: int  # K: columns of signs and duals
    n_anchors: int
    n_gammas: int
    componentwise: bool
    threads: int
    read_bytes: int = 0  # for reading a chunk, besides the chunk itself
    projected: bool = False  # whether principal components are taken
    map: MapName = "gaussian"
    scan_itemsize: int = 4  # of the support in a scan
    n_columns: int = 0  # after the scaling and before the projection, at most; 0 for as many as features
    sketched: bool = False  # whether quantiles are taken
    n_learned: int = 0  # kernels that are learned
    n_signs: int = 1  # columns of signs for which they are learned
    n_unmapped: int = 0  # features before the metric, where kernels are learned
    metric: Metric = None
    held_bytes: int = 0  # of reduced rows, and of the reduction
    weighted: bool = False  # whether rows have weights
    n_tried: int = 0  # rows on which a contender is trained
    judging_bytes: int = 0  # for the evaluation of a contender for a device, in integers
    as_learned: bool = False  # whether MKL is certainly left out

    @property
    def near_rows(self) -> int:
        """Largest number of rows near the margin for D of a learned machine: more rows hardly raise D."""
        return min(self.n_rows, _NEAR_ROWS, int(_NEAR_BYTES / (NEAR_ROW_BYTES * self.n_signs)))

    @property
    def mkl_flops(self) -> float:
        """Approximate multiply-adds of MKL on the learned kernels."""
        return mkl_flops(self.n_rows, self.n_signs, self.n_learned, self.n_features, self.componentwise)

    @property
    def width(self) -> int:
        """Largest number of features of a row after the scaling."""
        return self.n_columns or self.n_features_in


def sizes_of(dataset: Dataset, params: Params, n_classes: int) -> Sizes:
    """Sizes of the problem that these parameters make of the data set."""
    d = dataset.n_features
    learns, grid = may_be_learned(params, dataset.n_rows), may_be_samples(params, dataset.n_rows)
    scaling = params.scaling if learns or params.scaling != "auto" else "standard"
    p = most_columns(scaling, d)
    components = params.n_components
    if components is None or isinstance(components, float | np.floating):
        n_features = p  # a share of variance may keep all of them
    else:
        n_features = int(components)
        if not 1 <= n_features <= p:
            raise ParameterError(f"n_components={components}: give a whole number from 1 to {p}, or a share below 1")
    spec, n_unmapped = anchor_spec(params.anchors), n_features
    if learns and isinstance(params.metric, int):
        if params.metric > n_features:
            raise ParameterError(f"metric={params.metric}: the rows have {n_features} features: give a smaller number")
        n_features = n_features if grid else params.metric
    K, limit = n_outputs(n_classes), params.device_bytes
    rivals = contenders(params, dataset.n_rows, K)
    narrow = any(rival.bumps == "narrow" for rival in rivals)
    n_learned = learned_kernels(spec, params.max_kernels, dataset.n_rows, K, narrow) if learns else 0
    shared = params.multi_class == "shared" and n_classes > 2
    sizes = Sizes(
        n_rows=dataset.n_rows,
        n_features_in=d,
        n_features=n_features,
        itemsize=dataset.work_dtype.itemsize,
        n_outputs=n_classes if shared else 1,
        n_anchors=spec.n_anchors(dataset.n_rows, 0 if grid else n_learned),
        n_learned=n_learned,
        n_signs=K,
        judging_bytes=0 if limit is None else judging_bytes(limit, dataset.n_rows, p, K),
        n_tried=min(dataset.n_rows, tried_rows(d, K)) if len(rivals) > 1 else 0,
        n_unmapped=n_unmapped,
        weighted=dataset.has_weights or params.class_weight is not None,
        metric="diagonal" if params.metric == "auto" else params.metric,
        n_gammas=n_gammas(params.gammas),
        componentwise=params.componentwise,
        threads=n_threads(params.n_jobs),
        read_bytes=dataset.buffer_bytes,
        projected=components is not None,
        map=check_map(params.map),
        scan_itemsize=scan_dtype(params.tol, params.componentwise).itemsize,
        n_columns=p,
        sketched=scaling in QUANTILE_SCALINGS,
        held_bytes=dataset.held_bytes,
    )
    settled = params.finish == "none" or (params.finish == "auto" and params.local_bias != 0)
    costly = params.finish == "none" or sizes.mkl_flops > MOST_MKL_FLOPS
    return replace(sizes, as_learned=learns and not grid and settled and costly)


def mkl_flops(n_rows: int, n_outputs: int, n_kernels: int, n_features: int, componentwise: bool) -> float:
    """Approximate multiply-adds of MKL on learned kernels, with working sets of the expected sizes."""
    working = [expected_working(n_rows, n_outputs)] * n_outputs
    return ROUNDS * inner_flops(InnerSizes(working, n_kernels, n_features, componentwise), "dense")


def expected_working(n_rows: int, n_outputs: int) -> int:
    """Expected number of working samples of a class, from runs on real data."""
    return min(n_rows, 200 + n_rows // (8 if n_outputs == 1 else 20))
