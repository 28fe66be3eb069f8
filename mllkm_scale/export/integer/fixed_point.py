"""The fixed-point scales of a machine: as fine as 4, 8 or 16 bits of constants and 32 bits of sums allow.

Bounds are computed by interval arithmetic over all possible rows: Z is clipped, a bump is at most its height, and if a
bump is not zero, |o| is within its support. If a sum would not fit, its terms get a coarser scale.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.errors import ParameterError
from mllkm_scale.export.forms import require_exportable
from mllkm_scale.export.integer.bounds import arithmetic_bound, deviation_bound, rates_of
from mllkm_scale.export.integer.bump_table import ONE, Bumps, BumpTable, SquaredBumps
from mllkm_scale.export.integer.compensation import rounded_in_turn
from mllkm_scale.export.integer.inputs import Extent, extent_of
from mllkm_scale.export.integer.integers import MOST, Integers
from mllkm_scale.export.integer.machine import IntegerMachine
from mllkm_scale.export.integer.preparation import LIMIT, IntegerPreparation
from mllkm_scale.export.integer.refit import design, refitted, rows_for
from mllkm_scale.export.layout import Layout, machine_layout
from mllkm_scale.kernels.anchors import random_rows
from mllkm_scale.model.model import Model
from mllkm_scale.plan.device import ROUNDING_ROWS, DeviceLimit

__all__ = ["BITS", "integer_machine", "rounded"]

BITS = (4, 8, 16)
_JUDGED = 1000
_MOST_DOWN = 30


def integer_machine(model: Model, dataset: Dataset, bits: int | None = None) -> IntegerMachine:
    """A model in integers, for rows like those of a data set.

    With 4 or 8 bits, local predictors are fitted again to the scores of the model on rows of the data, with the rounded
    bumps and features. Constants of 4 bits are rounded one after the other, so that the remaining ones compensate the
    errors.

    Parameters
    ----------
    model : Model
        A model for rows of numbers; the encoding of a table is not supported.
    dataset : Dataset
        Rows that determine the ranges of features; labels are not needed.
    bits : {4, 8, 16}, optional
        Bits of the constants; 4 applies to slopes and to projections of many features, and all other constants then
        have 8. By default those chosen by training with `max_bytes`, and otherwise 16.

    Examples
    --------
    >>> from mllkm_scale import MLLKMClassifier
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], ["near", "near", "far", "far"]
    >>> model = MLLKMClassifier(map="squared").fit(X, y).model_
    >>> machine = integer_machine(model, Dataset.from_arrays(X), 16)
    >>> rows = machine.preparation.inputs.quantise(X)
    >>> model.classes[machine.codes(rows)].tolist()
    ['near', 'near', 'far', 'far']
    """
    if bits is None:
        limit = DeviceLimit.of(model.certificate.params)
        bits = 16 if limit is None else limit.bits
    if bits not in BITS:
        raise ParameterError(f"integer={bits!r}: constants have 4, 8 or 16 bits")
    require_exportable(model)
    if model.encoding is not None:
        raise ParameterError(
            "the model was trained on a table with text or missing values, for which there is no integer header: encode"
            " the columns as numbers and train on these, or export without --integer"
        )
    _, dataset = model.numeric(dataset)
    layout, extent = machine_layout(model), extent_of(dataset)
    if not (np.isfinite(extent.low) & np.isfinite(extent.high)).all():
        raise ParameterError(f"{dataset.name} has NaN or infinity: leave such rows out, as the range is taken from it")
    rows = dataset.rows(random_rows(dataset.n_rows, ROUNDING_ROWS, np.random.default_rng(0)))
    machine = rounded(layout, extent, rows, bits, _reach(model, layout, dataset))
    if bits <= 8:
        U = machine.preparation.inputs.quantise(rows)
        targets = model.decision_function(machine.preparation.inputs.values(U)).reshape(len(U), -1)
        slopes, levels = refitted(machine, U, targets)
        machine = with_predictors(machine, slopes, levels)
        if bits == 4:
            machine = with_compensation(machine, slopes, levels, U, targets)
    return replace(machine, arithmetic=arithmetic_bound(machine), deviation=deviation_bound(machine, layout))


def rounded(layout: Layout, extent: Extent, rows: Array, slope_bits: int, reach: float) -> IntegerMachine:
    """The layout in integers, for |z'| up to `reach`; `rows` are some of the data."""
    d, bits = layout.n_features, max(8, slope_bits)
    limit = LIMIT if layout.componentwise else min(LIMIT, int(np.sqrt(MOST / (4 * d))))
    finest = int(np.floor(np.log2(limit / max(reach, float(np.abs(layout.anchors).max()), 2.0**-60))))
    preparation = IntegerPreparation.of(layout.preparation, extent, rows, finest, limit, slope_bits)
    scale_bits = preparation.scale_bits
    top, wanted = 2 ** (bits - 1) - 1, layout.anchors * 2.0**scale_bits
    anchor_shift = max(0, int(np.ceil(np.log2(max(np.abs(wanted).max(), 1.0) / top))))
    anchors = np.clip(np.rint(wanted / 2**anchor_shift), -top, top).astype(np.int64)
    rates = rates_of(layout, scale_bits)
    bumps: Bumps = SquaredBumps.of(rates, bits) if layout.map == "squared" else BumpTable.of(layout.map, rates, bits)
    s, K = layout.levels.shape
    machine = IntegerMachine(
        map=layout.map,
        componentwise=layout.componentwise,
        bits=bits,
        slope_bits=slope_bits,
        preparation=preparation,
        bumps=bumps,
        anchors=anchors,
        anchor_shift=anchor_shift,
        slopes=np.zeros((s, K, d), np.int64),
        levels=np.zeros((s, K), np.int64),
        level_shift=0,
        product_shift=0,
        downs=np.zeros(s, np.int64),
        score_bits=0,
    )
    return with_predictors(machine, layout.slopes, layout.levels)


def with_predictors(machine: IntegerMachine, slopes: Array, levels: Array) -> IntegerMachine:
    """The machine with these slopes (s, K, d) and levels (s, K) in z', in the finest scale that fits."""
    top, steepest = (2 ** (bits - 1) - 1 for bits in (machine.bits, machine.slope_bits))
    heights = machine.bumps.heights / ONE
    slopes, levels = slopes / heights[:, None, None], levels / heights[:, None] * 2.0**machine.scale_bits
    offsets = _offsets(machine)
    level_shift = _level_shift(machine, slopes, levels, offsets, top, steepest)
    # Slopes of every kernel are multiplied by 2^width, as large as the type and sums of 32 bits allow.
    tiny = 2.0**-900
    sums = _sums(machine, np.abs(slopes), np.abs(levels), offsets, 0)
    room = np.stack(
        [
            steepest / np.maximum(np.abs(slopes).max(axis=(1, 2)), tiny),
            top / np.maximum(np.abs(levels).max(axis=1) * 2.0**-level_shift, tiny),
            (2.0**30 - 2 * _sums(machine, np.ones_like(slopes), np.ones_like(levels), offsets, level_shift))
            / np.maximum(sums, tiny),
        ]
    ).min(axis=0)
    if (room <= 0).any():
        raise ParameterError("the machine has too many features for sums of 32 bits: train with n_components")
    widths = np.floor(np.log2(np.minimum(room, 2.0**60))).astype(np.int64)
    product_shift = 0
    if not machine.componentwise:
        product_shift = max(0, int(np.ceil(np.log2(float((sums * 2.0**widths).max()) + 1))) - 15)
    at_most = 15 + machine.scale_bits - product_shift if not machine.componentwise else machine.scale_bits
    for score_bits in range(int(at_most + widths.min()), -200, -1):
        cut = np.minimum(widths, _MOST_DOWN + score_bits - at_most)
        downs = at_most + cut - score_bits
        whole = np.rint(slopes * 2.0 ** cut[:, None, None]).astype(np.int64)
        constants = np.rint(levels * 2.0 ** (cut[:, None] - level_shift)).astype(np.int64)
        found = replace(
            machine,
            slopes=whole,
            levels=constants,
            level_shift=level_shift,
            product_shift=product_shift,
            downs=downs,
            score_bits=score_bits,
        )
        if _fits(found, offsets):
            return found
    raise ParameterError("the scores of the machine do not fit into 32 bits: export it without --integer")


def with_compensation(
    machine: IntegerMachine, slopes: Array, levels: Array, U: Integers, targets: Array
) -> IntegerMachine:
    """The same scale, with constants rounded with compensation on the integer rows U, if sums fit and scores
    improve."""
    s, K, d = slopes.shape
    n = rows_for(machine, len(U))
    theta = np.concatenate([slopes.transpose(0, 2, 1), levels[:, None, :]], axis=1).reshape(-1, K)
    units = np.repeat(machine.units[:, None], d + 1, axis=1)
    units[:, d] *= 2.0**machine.level_shift * machine.step
    tops = np.full((s, d + 1), 2.0 ** (machine.slope_bits - 1) - 1)
    tops[:, d] = 2.0 ** (machine.bits - 1) - 1
    whole = rounded_in_turn(design(machine, U[:n]), theta, units.reshape(-1, 1), tops.reshape(-1, 1)).astype(np.int64)
    parts = whole.reshape(s, d + 1, K)
    found = replace(machine, slopes=np.ascontiguousarray(parts[:, :d].transpose(0, 2, 1)), levels=parts[:, d].copy())
    if not _fits(found, _offsets(found)):
        return machine

    def lost(one: IntegerMachine) -> float:
        return float(np.square(one.scores(U[:_JUDGED]) * 2.0**-one.score_bits - targets[:_JUDGED]).sum())

    return min(found, machine, key=lost)


def _reach(model: Model, layout: Layout, dataset: Dataset) -> float:
    """The largest |z'| of the rows."""
    most = 0.0
    for _, chunk in dataset.chunks():
        Z = (model.preprocessor.transform(chunk, np.float64) - layout.origin) / layout.unit
        most = max(most, float(np.abs(Z).max()))
    return most


def _offsets(machine: IntegerMachine) -> Array:
    """The largest |o| (s, d) of a row with a nonzero bump."""
    most = machine.preparation.limit + np.abs(machine.anchors << machine.anchor_shift)
    offsets: Array = np.minimum(most, np.sqrt(machine.bumps.reach)[:, None])
    return offsets


def _sums(machine: IntegerMachine, slopes: Array, levels: Array, offsets: Array, level_shift: int) -> Array:
    """The largest |P| of each kernel, (s,), for absolute slopes and levels; this also bounds partial sums."""
    if machine.componentwise:
        heights = machine.bumps.heights
        moved = offsets * (heights / ONE)[:, None] + 1
        parts = np.einsum("skd,sd->sk", slopes, moved)
        constants = levels * (machine.n_features * heights / ONE * 2.0**level_shift)[:, None]
    else:
        boxed = np.einsum("skd,sd->sk", slopes, offsets)
        reach = np.minimum(machine.bumps.reach, np.square(offsets).sum(axis=1))
        within = np.linalg.norm(slopes, axis=2) * np.sqrt(reach)[:, None]
        parts, constants = np.minimum(boxed, within), levels * 2.0**level_shift
    return np.asarray((parts + constants).max(axis=1))


def _level_shift(machine: IntegerMachine, slopes: Array, levels: Array, offsets: Array, top: int, steepest: int) -> int:
    """The shift of levels with the smallest cost of rounding slopes and levels."""
    spread = np.minimum(np.square(offsets).sum(axis=1), machine.bumps.reach) / 3
    steep = np.abs(slopes).max(axis=(1, 2)) / steepest
    high = np.abs(levels).max(axis=1) / top
    costs = []
    for shift in range(16):
        units = np.maximum(steep, high * 2.0**-shift)
        costs.append(float((units**2 * (spread + 4.0**shift)).sum()))
    return int(np.argmin(costs))


def _fits(machine: IntegerMachine, offsets: Array) -> bool:
    """Whether every sum of every row is within 32 bits."""
    sums = _sums(machine, np.abs(machine.slopes), np.abs(machine.levels), offsets, machine.level_shift)
    half = 2.0 ** (machine.downs - 1)
    if machine.componentwise:
        products = sums
    else:
        before = sums + 2.0 ** (machine.product_shift - 1)
        if before.max() >= MOST:
            return False
        products = machine.bumps.heights * (before * 2.0**-machine.product_shift + 1)
    shares = (products + half) * 2.0**-machine.downs + 1
    return bool((products + half).max() < MOST and shares.sum() < MOST and (machine.downs >= 0).all())
