"""The contents of a run folder, from which the report is made.

Files of earlier versions lack some fields, and an interrupted training run may have no model. Unknown values are None.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from mllkm_scale.base.events import Epoch, Round, Streamed
from mllkm_scale.base.files.folders import reading
from mllkm_scale.base.files.regular import read_regular
from mllkm_scale.base.schemas import MOST_JSON_BYTES, EvaluationFile, PlanFile, RunFile, conform, parse_json
from mllkm_scale.errors import DataError
from mllkm_scale.model.curves import Curve
from mllkm_scale.model.evaluation import Evaluation
from mllkm_scale.model.files import load_model
from mllkm_scale.model.model import Model
from mllkm_scale.run.folder import RunFolder

__all__ = ["Run", "read_run"]

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """The contents of a run folder.

    Attributes
    ----------
    path : pathlib.Path
    model : Model or None
        The model for rows of numbers, such as the features that are made of a table.
    whole : Model or None
        The same model with the encoding of a table, if there is one.
    rounds : tuple of Round
        Of a training run.
    reports : tuple of Streamed
        Of a stream.
    epochs : tuple of Epoch
        The epochs in which kernels were learned, if any.
    record, plan : mapping
        run.json and plan.json; empty if missing.
    evaluation : Evaluation or None
    explained : tuple of mapping
        The explained rows of evaluation.json.
    test_name : str
        Name of the evaluated rows.
    model_bytes : int or None
        Size of the model file.
    in_folder : bool
        Whether there is a folder; an estimator has none.
    """

    path: Path
    model: Model | None
    whole: Model | None
    rounds: tuple[Round, ...]
    reports: tuple[Streamed, ...]
    epochs: tuple[Epoch, ...]
    record: Record
    plan: Record
    evaluation: Evaluation | None
    explained: tuple[Record, ...]
    test_name: str
    model_bytes: int | None
    in_folder: bool = True

    @property
    def name(self) -> str:
        """The name of the run: that of its folder."""
        return self.path.absolute().name

    @property
    def is_stream(self) -> bool:
        """Whether it is a stream."""
        return bool(self.reports) or (not self.rounds and "max_samples" in self.parameters)

    @property
    def data(self) -> Record:
        """The entry of run.json about the data."""
        return _mapping(self.record.get("data"))

    @property
    def parameters(self) -> Record:
        """The parameters, from run.json or from the model."""
        given = _mapping(self.record.get("parameters"))
        return given or (dict(self.model.certificate.params) if self.model is not None else {})

    @property
    def result(self) -> Record:
        """The result; empty if the run has not ended."""
        return _mapping(self.record.get("result"))

    @property
    def choice(self) -> Record:
        """The choice of C and of the finish; empty if no kernels were learned."""
        return _mapping(self.record.get("choice"))

    @property
    def selection(self) -> Record:
        """The settings that were compared on held-out rows; empty if none were."""
        return _mapping(self.record.get("selection"))

    @property
    def learned(self) -> Record:
        """The entry of run.json about learned kernels; empty if there are none."""
        return _mapping(self.record.get("learned"))

    @property
    def n_candidates(self) -> int | None:
        """Number of candidate kernels of the certificate."""
        if self.rounds:
            return self.rounds[-1].n_open
        return None if self.model is None or self.is_stream else self.model.certificate.n_open

    @property
    def status(self) -> str:
        """The rule by which it ended; "not finished" before that."""
        if self.result:
            return str(self.result.get("status", "ended"))
        return "not finished" if self.model is None or self.is_stream else self.model.certificate.status

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the features, from the data."""
        names = self.data.get("feature_names")
        return tuple(map(str, names)) if isinstance(names, list) else None

    @property
    def elapsed_s(self) -> float | None:
        """Seconds of the training so far."""
        ended = self.result.get("elapsed_s")
        last = self.rounds[-1].elapsed_s if self.rounds else self.reports[-1].elapsed_s if self.reports else None
        return float(ended) if ended is not None else last

    @property
    def budget_bytes(self) -> int | None:
        """The memory budget."""
        found = self.result.get("budget_bytes") or self.plan.get("budget_bytes")
        return None if found is None else int(found)

    @property
    def peak_bytes(self) -> int | None:
        """The measured peak memory."""
        found = self.result.get("peak_bytes")
        return None if found is None else int(found)


def read_run(path: str | os.PathLike[str], model: Model | None = None) -> Run:
    """Read a run folder; `model` is that of its file, if the caller already has it.

    Raises
    ------
    DataError
        If it is not the folder of a training run or a stream.
    ModelFileError
        If the model file is damaged.
    """
    folder = RunFolder(path)
    where = folder.path
    if not where.is_dir():
        problem = "is a file" if where.exists() else "does not exist"
        raise DataError(f"{where} {problem}: name the folder of a run, which mllkm train --out has made")
    rounds, reports, epochs = folder.read_history(), folder.streamed.read(), folder.epochs.read()
    record = _read_json(folder.run, RunFile)
    if model is None and folder.model.exists():
        model = load_model(folder.model)
    if model is None and not rounds and not reports and not epochs and "parameters" not in record:
        raise DataError(
            f"{where} holds no training: it has neither {folder.model.name} nor {folder.history.name} nor"
            f" {folder.streamed.path.name}; name the folder of a run, which mllkm train --out has made"
        )
    measured = _read_json(folder.evaluation, EvaluationFile)
    return Run(
        path=where,
        model=None if model is None else model.machine,  # pictures are of features, not of the columns of a table
        whole=model,
        rounds=rounds,
        reports=reports,
        epochs=epochs,
        record=record,
        plan=_read_json(folder.plan, PlanFile) or _mapping(record.get("plan")),
        evaluation=_evaluation(measured) if measured else None,
        explained=tuple(measured.get("explained") or ()),
        test_name=str(measured.get("data", "")),
        model_bytes=folder.model.stat().st_size if folder.model.exists() else None,
    )


def _read_json(path: Path, kind: type[Any]) -> Record:
    """The contents of a file, checked against `kind`; empty if there is no file."""
    if not path.exists():
        return {}
    with reading(path.parent):
        text = read_regular(path, DataError, MOST_JSON_BYTES)
    try:
        found: Record = parse_json(text.decode("utf-8", errors="replace"))
        conform(found, kind)
        return found
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}): remove it, and the report does without") from None


def _evaluation(found: Record) -> Evaluation:
    names = ("log_loss", "brier", "calibration_error", "calibration_by_chance")
    numbers: dict[str, Any] = {name: found.get(name) for name in names}
    bins = None if found.get("bins") is None else np.array(found["bins"], dtype=np.float64)
    curves = tuple(Curve(**{spec.name: one[spec.name] for spec in fields(Curve)}) for one in found.get("curves") or ())
    confusion = np.array(found["confusion"], dtype=np.int64)
    return Evaluation(np.array(found["classes"]), confusion, **numbers, bins=bins, curves=curves)


def _mapping(value: Any) -> Record:
    return value if isinstance(value, dict) else {}
