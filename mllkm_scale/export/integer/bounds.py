"""Bounds on the error of integer scores, by propagation of errors from the rows to the sum.

With offsets o off by delta, a bump off by e_h and a local predictor P off by e_P, and bumps of at most 1,

    e_h <= L |delta| + |log(rate' / rate)| S + (arithmetic of the bump)    L, S: largest slopes by t and by log rate
    e_P <= sum_l |w'_l - w_l| |o_l| + |w'_l| delta_l + |l' - l| + (rounding)
    |h' P' - h P| <= e_h |P| + e_P

and scores are sums of these. For maps with bounded support, offsets are within the support. The bounds hold for rows
with features within the extent of the data and with Z that is not clipped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.export.integer.machine import IntegerMachine
from mllkm_scale.export.layout import Layout
from mllkm_scale.kernels.maps import MapName, falls_exponentially, uses_plain_distance

__all__ = ["arithmetic_bound", "deviation_bound", "rates_of"]

_BY_DISTANCE: dict[MapName, float] = {
    "exponential": 1.0,
    "linear": 1.0,
    "gaussian": math.sqrt(2 / math.e),
    "squared": 2.0,
}
"""Largest |dh / dt|, relative to the root of the rate."""

_BY_LOG_RATE: dict[MapName, float] = {
    "exponential": 0.5 / math.e,
    "linear": 0.5,
    "gaussian": 1 / math.e,
    "squared": 1.0,
}
"""Largest |dh / d log rate|, with q the rate times the squared distance."""


@dataclass(frozen=True)
class _Reference:
    """A machine over Z 2^0: anchors and offsets in units of Z, rates of its square, slopes and levels of its scores."""

    anchors: Array  # (s, d)
    rates: Array  # (s,)
    slopes: Array  # (s, K, d)
    levels: Array  # (s, K)


def rates_of(layout: Layout, scale_bits: int) -> Array:
    """q / D of every kernel: gamma, or its square if the map is a function of the distance, in units of Z."""
    rates = layout.gammas * 2.0**-scale_bits if uses_plain_distance(layout.map) else layout.gammas
    return rates**2 if uses_plain_distance(layout.map) else rates * 4.0**-scale_bits


def arithmetic_bound(machine: IntegerMachine) -> float:
    """Bound on the error of scores from integer arithmetic, with the same constants."""
    return _bound(machine, _own(machine), machine.preparation.rounding)


def deviation_bound(machine: IntegerMachine, layout: Layout) -> float:
    """Bound on the error of scores compared with the machine before rounding."""
    scale = 2.0**machine.scale_bits
    reference = _Reference(
        layout.anchors * scale, rates_of(layout, machine.scale_bits), layout.slopes / scale, layout.levels
    )
    return _bound(machine, reference, machine.preparation.errors)


def _own(machine: IntegerMachine) -> _Reference:
    units = machine.units * machine.step
    return _Reference(
        (machine.anchors << machine.anchor_shift).astype(np.float64),
        machine.bumps.rates,
        machine.slopes * units[:, None, None],
        machine.levels * (units * 2.0**machine.level_shift)[:, None],
    )


def _bound(machine: IntegerMachine, reference: _Reference, z_errors: Array) -> float:
    own, name = _own(machine), machine.map
    delta = z_errors + np.abs(own.anchors - reference.anchors)
    away = np.linalg.norm(delta, axis=1) if not machine.componentwise else delta.max(axis=1)
    # If either bump is not zero, distances are within this.
    reach = np.full(len(delta), np.inf)
    if not falls_exponentially(name):
        reach = np.maximum(reference.rates**-0.5, np.sqrt(machine.bumps.reach) + away)
    offsets = np.minimum(machine.preparation.limit + np.abs(reference.anchors), reach[:, None])
    logs = np.abs(np.log(own.rates / reference.rates))
    fixed = (logs * _BY_LOG_RATE[name] + machine.bumps.errors)[:, None]
    bumps = np.minimum(fixed + _BY_DISTANCE[name] * np.sqrt(reference.rates)[:, None] * delta, 1.0)
    slopes, changed = np.abs(reference.slopes), np.abs(own.slopes - reference.slopes)
    levels, constants = np.abs(reference.levels), np.abs(own.levels - reference.levels)
    moved = np.einsum("skd,sd->sk", changed, offsets) + np.einsum("skd,sd->sk", np.abs(own.slopes), delta)
    last = 0.5 * 2.0**-machine.score_bits
    units = (machine.units * machine.step)[:, None]
    if machine.componentwise:
        d = machine.n_features
        parts = np.einsum("skd,sd->sk", slopes, offsets * bumps) + levels * bumps.sum(axis=1)[:, None]
        lost = 0.5 * np.abs(own.slopes).sum(axis=2) + np.abs(machine.levels) * units
        return float((parts + moved + d * constants + lost * _over_heights(machine) + last).sum(axis=0).max())
    bumps = np.minimum(fixed[:, 0] + _BY_DISTANCE[name] * np.sqrt(reference.rates) * away, 1.0)
    with np.errstate(invalid="ignore"):
        within = np.where(np.isfinite(reach), reach, 0.0)[:, None] * np.linalg.norm(reference.slopes, axis=2)
    values = np.einsum("skd,sd->sk", slopes, offsets)
    values = np.where(np.isfinite(reach)[:, None], np.minimum(values, within), values) + levels
    rounding = 0.5 * 2.0**machine.product_shift * units
    return float((bumps[:, None] * values + moved + constants + rounding + last).sum(axis=0).max())


def _over_heights(machine: IntegerMachine) -> Array:
    """The rounding unit of a bump times an offset, relative to a bump of 1: (s, 1)."""
    return (2.0**15 / machine.bumps.heights)[:, None]
