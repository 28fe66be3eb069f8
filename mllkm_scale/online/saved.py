"""The state of a learner as plain arrays and numbers, from which a stream goes on with the same bits.

A probe that is under way is waited for: what it finds is a function of the duals at its start, and is a part of the
state. Rows, duals and sums are saved as they are, and not made again: sums that are made again have other last bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.data import Preprocessor
from mllkm_scale.errors import CheckpointError
from mllkm_scale.kernels.grid import Family
from mllkm_scale.kernels.maps import check_map
from mllkm_scale.online.active import ActiveKernels
from mllkm_scale.online.kept import KeptSamples
from mllkm_scale.online.learner import OnlineLearner
from mllkm_scale.online.machine import OnlineMachine
from mllkm_scale.online.params import SHARED
from mllkm_scale.online.pending import Pending
from mllkm_scale.online.prequential import Prequential
from mllkm_scale.online.probing import Candidates, Probe
from mllkm_scale.online.setup import Setup, codes_of

__all__ = ["fingerprint", "restore", "saved_state"]


_COUNTS = ("n_seen", "n_blocks", "sweep", "inserted", "dropped", "forgotten")
_FREE = ("n_jobs", "worker_timeout")  # parameters that a stream may go on with other values of


def fingerprint(learner: OnlineLearner) -> str:
    """Stands for the parameters: a stream goes on only with those that it was started with."""
    digest = hashlib.blake2b(digest_size=16)
    values = {name: getattr(learner.params, name) for name in SHARED if name not in _FREE} | vars(learner.online)
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
    arrays |= _prefixed("kept_", machine.kept.to_arrays())
    for prefix, some in (("active_", kernels), ("found_", found)):
        arrays |= {f"{prefix}{name}": getattr(some, name) for name in ("anchors", "gammas", "scales")}
    return header, arrays


def restore(learner: OnlineLearner, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Bring a new learner with the same parameters to the state that was saved."""
    try:
        learner.prequential = Prequential(header["tested"], header["errors"])
        learner.prequential.recent.extend(tuple(block) for block in header["recent"])
        if header.get("scored"):
            cuts = np.cumsum(header["scored"])[:-1]
            parts = (np.split(arrays[f"scored_{name}"], cuts) for name in ("scores", "codes"))
            learner.prequential.scored.extend(zip(*parts, strict=True))
        learner.pending = Pending(**_under("pending_", arrays))
        if "classes" in arrays:
            learner.classes = arrays["classes"]
        elif learner.classes is not None:  # they were not given when these samples came
            learner.pending.y = codes_of(learner.pending.y, learner.classes, 0)
        if header["started"] and learner.classes is not None:
            setup = _setup(learner.classes, header, arrays)
            learner.started = setup, _machine(learner, setup, header, arrays)
    except KeyError as error:
        raise CheckpointError(f"the checkpoint has no {error}: start the stream anew with --overwrite") from None


def _setup(classes: Array, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Setup:
    family = Family(**header["family"])
    check_map(family.map)
    preprocessor = Preprocessor.from_arrays(_under("preprocessor_", arrays))
    return Setup(classes, preprocessor, family, arrays["setup_gammas"], header["C"])


def _machine(
    learner: OnlineLearner, setup: Setup, header: Mapping[str, Any], arrays: Mapping[str, Array]
) -> OnlineMachine:
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


def _prefixed(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {f"{prefix}{name}": values for name, values in arrays.items()}


def _under(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}
