"""Models below several numbers of bytes: each is trained separately, and evaluated in integers."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from mllkm_scale.base.events import Notice
from mllkm_scale.data import Dataset
from mllkm_scale.data.labels import signs_of
from mllkm_scale.export.integer import IntegerMachine, integer_machine
from mllkm_scale.export.integer.c_file import export_integer_c
from mllkm_scale.mkl.state import State
from mllkm_scale.model.files import load_model
from mllkm_scale.model.model import Model
from mllkm_scale.params import Params
from mllkm_scale.path.points import PathPoint, costs_of
from mllkm_scale.path.training import PathResult, PathTraining, in_words
from mllkm_scale.run.fingerprint import fingerprint_of
from mllkm_scale.run.folder import RunFolder
from mllkm_scale.run.machines import Start
from mllkm_scale.run.result import TrainResult

__all__ = ["HEADER", "DevicePath"]

HEADER = "model.h"


class DevicePath(PathTraining):
    """A path along `max_bytes`; an interrupted training run starts again, and earlier ones are kept."""

    def run(self, dataset: Dataset) -> PathResult:
        seed = int(self.params.random_state or 0)
        if self.folder is not None:
            self.folder.begin(
                parameter=self.values.parameter,
                values=self.values.values,
                seed=seed,
                data=self.finalizer.data_record(dataset),
                validation=None if self.finalizer.test is None else self.finalizer.test.name,
            )
        classes, codes = dataset.label_codes()
        signs, weights = signs_of(codes, len(classes)), dataset.weights()
        for value in self.values.values:
            params = replace(self.params, max_bytes=int(value))
            fingerprint = fingerprint_of(params, dataset.unlabelled(), signs, weights, seed, 0)
            point, model = self.point(dataset, params, value, fingerprint)
            self.points.append(point)
            self.models.append(model)
            if self.folder is not None:
                self.folder.write(self.points)
            self.listener(Notice(in_words(point)))
        return PathResult(tuple(self.points), tuple(self.models))

    def point(self, dataset: Dataset, params: Params, value: float, fingerprint: str) -> tuple[PathPoint, Model]:
        """Train the model of a point, or take it from the folder."""
        name = f"{self.values.parameter}={value:g}"
        found = None if self.folder is None else self.folder.done(name, fingerprint, State, [], lambda *end: None)
        if found is not None and self.folder is not None:
            return found[0], load_model(RunFolder(self.folder.path / name).model)
        started = time.perf_counter()
        with ExitStack() as stack:
            run = None
            if self.folder is not None:
                run, _ = self.folder.open_run(name, fingerprint)
                stack.enter_context(run)
            result = self.training(params, run).run(dataset, resume=False)
            if run is not None:
                export_integer_c(result.model, run.model.with_name(HEADER), dataset, overwrite=True)
        machine = integer_machine(result.model, dataset)
        point = self.measured(result, machine, value, dataset, time.perf_counter() - started)
        if self.folder is not None:
            self.folder.keep(point, fingerprint, Start((), float(result.model.certificate.params["C"]), ()))
        return point, result.model

    def measured(
        self, result: TrainResult, machine: IntegerMachine, value: float, dataset: Dataset, elapsed_s: float
    ) -> PathPoint:
        """The point of a model, with the error and the bytes of its integer form."""
        model, test = result.model, self.finalizer.test
        costs = costs_of(model, test or dataset) | {"model_bytes": machine.constant_bytes}
        return PathPoint(
            parameter=self.values.parameter,
            value=value,
            n_kernels=model.n_kernels,
            error=float("nan") if test is None else _error(model, machine, test),
            gap=model.certificate.gap,
            status=result.status,
            elapsed_s=elapsed_s,
            **costs,
        )


def _error(model: Model, machine: IntegerMachine, test: Dataset) -> float:
    """Share of the rows that the integer form misclassifies."""
    _, rows = model.numeric(test)
    wrong, labels = 0, test.labels()
    for start, chunk in rows.chunks():
        codes = machine.codes(machine.preparation.inputs.quantise(chunk))
        wrong += int(np.count_nonzero(model.classes[codes] != labels[start : start + len(chunk)]))
    return wrong / test.n_rows
