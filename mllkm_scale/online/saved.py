"""The state of a learner as plain arrays and numbers, from which a stream continues with the same bits.

A running probe is waited for: its result is a function of the duals at its start, and belongs to the state. Rows, duals
and sums are saved, because recomputed sums would have other last bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.schemas import conform_array
from mllkm_scale.data import Preprocessor
from mllkm_scale.data.labels import n_outputs
from mllkm_scale.data.tables.columns import Columns
from mllkm_scale.data.tables.encoding import Encoding
from mllkm_scale.errors import MLLKMError
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import check_map
from mllkm_scale.online.active import ActiveKernels
from mllkm_scale.online.kept import KeptSamples
from mllkm_scale.online.learner import OnlineLearner, Pending
from mllkm_scale.online.machine import OnlineMachine
from mllkm_scale.online.params import SHARED
from mllkm_scale.online.prequential import Prequential
from mllkm_scale.online.probing import Candidates, Probe
from mllkm_scale.online.setup import Setup, codes_of

__all__ = ["fingerprint", "restore", "saved_state"]


_NOTHING: Array = np.empty(0)
_COUNTS = ("n_seen", "n_blocks", "sweep", "inserted", "dropped", "forgotten")
_FREE = ("n_jobs", "worker_timeout")  # parameters that may change when a stream is resumed


def fingerprint(learner: OnlineLearner) -> str:
    """Identifies the parameters: a stream is only resumed with the parameters that it was started with."""
    digest = hashlib.blake2b(digest_size=16)
    values = {name: getattr(learner.params, name) for name in SHARED if name not in _FREE} | vars(learner.online)
    if learner.params.class_weight is None:  # so that streams of older versions can be resumed
        del values["class_weight"]
    values |= {"memory_budget": learner.params.budget_bytes, "like": learner.like is not None}
    for name, value in sorted(values.items()):
        digest.update(f"{name}={np.asarray(value).tolist()!r};".encode())
    return digest.hexdigest()


def saved_state(learner: OnlineLearner) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays."""
    record, pending = learner.prequential, learner.pending
    header: dict[str, Any] = {
        "tested": record.tested,
        "errors": record.errors,
        "recent": [list(block) for block in record.recent],
        "started": learner.started is not None,
        "scored": [len(codes) for _, codes in record.scored],
    }
    arrays: dict[str, Array] = {f"pending_{name}": values for name, values in vars(pending).items()}
    if learner.classes is not None:
        arrays["classes"] = learner.classes
    if learner.columns is not None:
        names = np.array([column.name for column in learner.columns.columns], dtype=np.str_)
        arrays |= {"table_names": names} | _prefixed("table_", learner.columns.to_arrays())
    if record.scored:
        scores, codes = zip(*record.scored, strict=True)
        arrays |= {"scored_scores": np.concatenate(scores), "scored_codes": np.concatenate(codes)}
    if learner.started is None:
        return header, arrays
    setup, machine = learner.started
    header |= {name: getattr(machine, name) for name in _COUNTS}
    header |= {"C": setup.C, "family": vars(setup.family)}
    found, kernels = machine.probe.result(), machine.active.kernels
    arrays |= {
        "setup_gammas": setup.gammas,
        "weights": machine.active.weights,
        "sums": machine.active.sums,
        "latest": machine.latest,
        "queue": machine.queue,
    }
    arrays |= _prefixed("preprocessor_", setup.preprocessor.to_arrays())
    if setup.encoding is not None:
        arrays |= _prefixed("encoding_", setup.encoding.to_arrays())
    arrays |= _prefixed("kept_", machine.kept.to_arrays())
    for prefix, some in (("active_", kernels), ("found_", found)):
        arrays |= {f"{prefix}{name}": getattr(some, name) for name in ("anchors", "gammas", "scales")}
    return header, arrays


def restore(learner: OnlineLearner, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Restore the saved state in a new learner with the same parameters.

    `header` conforms to `StreamHeader`. Impossible arrays are refused by a ValueError.
    """
    learner.prequential = Prequential(header["tested"], header["errors"])
    learner.prequential.recent.extend(tuple(block) for block in header["recent"])
    learner.prequential.scored.extend(_scored(header, arrays))
    if "classes" in arrays:
        classes = arrays["classes"]
        if classes.ndim != 1 or len(classes) < 2 or not (classes[:-1] < classes[1:]).all():
            raise ValueError("the array classes is not in ascending order, each once")
        learner.classes = classes
    learner.columns = _columns(_under("table_", arrays))
    learner.pending = _pending(arrays, "classes" in arrays, learner.columns)
    if "classes" not in arrays and learner.classes is not None:  # they were not given when these samples arrived
        learner.pending.y = codes_of(learner.pending.y, learner.classes, 0)
    if not header["started"]:
        return
    if learner.classes is None:
        raise ValueError("the array classes is missing")
    setup = _setup(learner.classes, header, arrays)
    if learner.columns is not None:
        setup = setup.of_table(_encoding(arrays, setup.preprocessor.n_features_in), learner.columns)
    if len(learner.pending) and learner.pending.X.shape[1] != setup.n_features_in:
        raise ValueError("the array pending_X has another number of features than the preparation")
    learner.started = setup, _machine(learner, setup, header, arrays)


def _scored(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> list[tuple[Array, Array]]:
    """Scores and classes of the latest samples, block by block."""
    sizes = header.get("scored") or []
    if not sizes:
        return []
    n = sum(sizes)
    scores = conform_array(arrays, "scored_scores", "f", (n, None))
    codes = conform_array(arrays, "scored_codes", "i", (n,), least=0)
    cuts = np.cumsum(sizes)[:-1]
    return list(zip(np.split(scores, cuts), np.split(codes, cuts), strict=True))


def _columns(arrays: Mapping[str, Array]) -> Columns | None:
    """The columns of a table."""
    names = arrays.get("names")
    if names is None:
        return None
    if names.ndim != 1 or names.dtype.kind != "U":
        raise ValueError("the array table_names holds no names")
    try:
        return Columns.from_arrays(arrays, names.tolist(), "the stream")
    except (MLLKMError, KeyError) as error:
        raise ValueError(str(error)) from None


def _encoding(arrays: Mapping[str, Array], n_features: int) -> Encoding:
    try:
        encoding = Encoding.from_arrays(_under("encoding_", arrays))
    except MLLKMError as error:
        raise ValueError(str(error)) from None
    if encoding.n_features != n_features:
        raise ValueError("the encoding makes another number of features than the preparation takes")
    return encoding


def _pending(arrays: Mapping[str, Array], coded: bool, columns: Columns | None) -> Pending:
    """The waiting samples; `coded` labels are class numbers, and NaN is a missing value of a table."""
    stored = arrays.get("pending_X", _NOTHING)
    if columns is not None and stored.ndim == 2 and len(stored):
        arrays = {**arrays, "pending_X": np.nan_to_num(stored)}
        if stored.shape[1] != len(columns):
            raise ValueError("the array pending_X has another number of columns than the table")
    X = conform_array(arrays, "pending_X", "f" if stored.dtype.kind == "f" else "i", (None, None))
    X = X if columns is None else stored
    n = len(X)
    y = arrays.get("pending_y", _NOTHING)
    if y.shape != (n,) or y.dtype.kind not in "biufU":
        raise ValueError("the array pending_y does not fit the rows that wait")
    if coded and n:
        most = len(arrays["classes"]) - 1
        y = conform_array(arrays, "pending_y", "i", (n,), least=0, most=most)
    ids = conform_array(arrays, "pending_ids", "i", (n,))
    new, weights = conform_array(arrays, "pending_new", "b", (n,)), np.ones(n)
    if "pending_weights" in arrays:
        weights = conform_array(arrays, "pending_weights", "f", (n,), least=0.0)
    return Pending(X, y, ids, new, weights)


def _setup(classes: Array, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Setup:
    family = Family(**header["family"])
    try:
        check_map(family.map)
        preprocessor = Preprocessor.from_arrays(_under("preprocessor_", arrays))
    except MLLKMError as error:
        raise ValueError(str(error)) from None
    gammas = conform_array(arrays, "setup_gammas", "f", (None,), least=0.0)
    return Setup(classes, preprocessor, family, gammas, header["C"])


def _machine(
    learner: OnlineLearner, setup: Setup, header: Mapping[str, Any], arrays: Mapping[str, Array]
) -> OnlineMachine:
    _require_machine(setup, header, arrays)
    machine = learner.machine_for(setup, learner.beside())
    for name in _COUNTS:
        setattr(machine, name, header[name])
    active = _under("active_", arrays)
    kernels = setup.family.kernels(active["anchors"], active["gammas"], active["scales"])
    machine.active = ActiveKernels(kernels, arrays["weights"], arrays["sums"])
    machine.kept = KeptSamples.from_arrays(_under("kept_", arrays))
    machine.latest, machine.queue = arrays["latest"], arrays["queue"]
    machine.probe = Probe.done(Candidates(**_under("found_", arrays)))
    return machine


def _require_machine(setup: Setup, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Check sizes, the box of the duals, the simplex of the weights, and that sums are finite."""
    d, K = setup.preprocessor.n_features_out, n_outputs(len(setup.classes))
    for prefix in ("active_", "found_"):
        gammas = conform_array(arrays, f"{prefix}gammas", "f", (None,), least=0.0)
        conform_array(arrays, f"{prefix}anchors", "f", (len(gammas), d))
        conform_array(arrays, f"{prefix}scales", "f", (len(gammas),), least=0.0)
    s, n = len(arrays["active_gammas"]), len(conform_array(arrays, "kept_codes", "i", (None,), least=0))
    weights = conform_array(arrays, "weights", "f", (s,), least=0.0)
    if s and abs(float(weights.sum()) - 1.0) > 1e-6:
        raise ValueError(f"the array weights sums to {float(weights.sum()):g}, not to 1")
    conform_array(arrays, "sums", "f", (K, s, d + 1))
    conform_array(arrays, "kept_codes", "i", (n,), least=0, most=len(setup.classes) - 1)
    conform_array(arrays, "kept_rows", "f", (n, d))
    weights = np.ones(n)
    if "kept_weights" in arrays:
        weights = conform_array(arrays, "kept_weights", "f", (n,), least=0.0)
    duals = conform_array(arrays, "kept_duals", "f", (n, K), least=0.0)
    if (duals > header["C"] * weights[:, None] * (1.0 + 1e-9)).any():
        raise ValueError("the array kept_duals has duals beyond their box")
    conform_array(arrays, "kept_margins", "f", (n,))
    conform_array(arrays, "kept_ids", "i", (n,))
    conform_array(arrays, "kept_since", "i", (n,), least=0, most=header["n_seen"])
    conform_array(arrays, "latest", "f", (None, d))
    conform_array(arrays, "queue", "i", (None,), least=0, most=n - 1)


def _prefixed(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {f"{prefix}{name}": values for name, values in arrays.items()}


def _under(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}
