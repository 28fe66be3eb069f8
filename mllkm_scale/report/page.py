"""`write_report`: the page of one run, made from its folder only."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mllkm_scale.base.events import Round
from mllkm_scale.base.units import format_bytes
from mllkm_scale.base.version import __version__
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.image_shape import ImageShape, require_image_shape
from mllkm_scale.model.describe import Description, describe
from mllkm_scale.model.evaluation import evaluate
from mllkm_scale.model.model import Model
from mllkm_scale.report.curves import memory_pictures, plan_rows, stream_pictures, training_pictures
from mllkm_scale.report.explained import explained_rows, importance_bars, shown_row
from mllkm_scale.report.facts import cards, data_facts, model_facts, parameters, result_facts
from mllkm_scale.report.kernels import anchor_images, kernel_pictures
from mllkm_scale.report.learning import learning_section
from mllkm_scale.report.measured import measured
from mllkm_scale.report.picture import Picture, render, require_page, write_page
from mllkm_scale.report.regions import anchor_regions
from mllkm_scale.report.run_files import Run, read_run
from mllkm_scale.report.shape_pictures import shape_section
from mllkm_scale.run.folder import REPORT

__all__ = ["write_model_report", "write_report"]


def write_report(
    run_dir: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    image_shape: str | Sequence[int] | None = None,
    all_shapes: bool = False,
    model: Model | None = None,
) -> Path:
    """Write the report of a training run or a stream, finished or not: one HTML file that includes its pictures.

    Parameters
    ----------
    run_dir : path
        The run folder.
    out : path, optional
        The file; report.html in the run folder by default.
    image_shape : text or sequence of int, optional
        "28x28" or (28, 28) if a row is an image; the default is that of the training.
    all_shapes : bool
        Draw the shape functions of all features of a component-wise machine, not only of the most important ones.
    model : Model, optional
        The model of the folder, if it is already in memory.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    DataError
        If the folder holds no run.
    ParameterError
        If the number of pixels of this shape differs from the number of features.
    ScratchError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from mllkm_scale import Dataset, train
    >>> from sklearn.datasets import load_iris
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data = Dataset.from_arrays(*load_iris(return_X_y=True))
    ...     _ = train(data, run_dir=f"{folder}/iris", report=False, n_jobs=1)
    ...     page = write_report(f"{folder}/iris")
    ...     page.name, "<h2>Anchors</h2>" in page.read_text()
    ('report.html', True)
    """
    run = read_run(run_dir, model)
    shape = _image_shape(run, image_shape)
    target = run.path / REPORT if out is None else Path(out)
    require_page(target)
    return write_page(target, render("report.html", **_content(run, shape, all_shapes)))


def write_model_report(
    model: Model,
    out: str | os.PathLike[str],
    *,
    test: Dataset | None = None,
    rounds: Sequence[Round] = (),
    record: Mapping[str, Any] | None = None,
    plan: Mapping[str, Any] | None = None,
    image_shape: str | Sequence[int] | None = None,
    all_shapes: bool = False,
    n_jobs: int | None = None,
) -> Path:
    """Write the report of a model that has no run folder, such as that of a fitted estimator.

    Parameters
    ----------
    model : Model
    out : path
        The file.
    test : Dataset, optional
        Labelled rows for the evaluation of the model.
    rounds, record, plan : sequence of Round, mappings, optional
        The contents of history.jsonl, run.json and plan.json of a run folder.
    image_shape, all_shapes
        As in `write_report`.
    n_jobs : int, optional
        Threads for the evaluation.
    """
    target = Path(out)
    require_page(target)
    evaluation, explained = None, []
    if test is not None:
        machine, rows = model.numeric(test)
        evaluation = evaluate(machine, rows, n_jobs=n_jobs)
        explained = explained_rows(model, rows, evaluation)
    run = Run(
        path=target,
        model=model.machine,
        whole=model,
        rounds=tuple(rounds),
        reports=(),
        epochs=(),
        record=record or {},
        plan=plan or {},
        evaluation=evaluation,
        explained=tuple(explained),
        test_name="" if test is None else test.name,
        model_bytes=None,
        in_folder=False,
    )
    return write_page(target, render("report.html", **_content(run, _image_shape(run, image_shape), all_shapes)))


def _content(run: Run, shape: ImageShape | None, all_shapes: bool) -> dict[str, Any]:
    """The values for the template."""
    model = run.model
    facts = None if model is None else describe(model)
    return {
        "run": run,
        "title": str(run.data.get("name") or run.name),
        "subtitle": _subtitle(run),
        "version": __version__,
        "cards": cards(run, facts),
        "data": data_facts(run),
        "model": None if facts is None else model_facts(facts),
        "result": result_facts(run),
        "parameters": parameters(run),
        "measured": None if run.evaluation is None else measured(run.evaluation),
        "explained": [shown_row(one) for one in run.explained],
        "learning": learning_section(run, shape),
        "course": _course(run),
        "memory": memory_pictures(run),
        "plan_rows": [(what, format_bytes(size), note) for what, size, note in plan_rows(run.plan)],
        **_of_model(run, model, facts, shape, all_shapes),
    }


def _of_model(
    run: Run, model: Model | None, facts: Description | None, shape: ImageShape | None, all_shapes: bool
) -> dict[str, Any]:
    if model is None or facts is None:
        return {"importances": None, "kernels": [], "heaviest": [], "anchors": [], "shapes": None}
    names = run.feature_names
    return {
        "importances": importance_bars(run.whole or model, names),
        "kernels": kernel_pictures(model, facts),
        "heaviest": facts.heaviest,
        "anchors": [anchor_regions(model, names) if shape is None else anchor_images(model, shape)],
        "shapes": shape_section(model, names, all_shapes) if model.family.componentwise else None,
    }


def _subtitle(run: Run) -> str:
    how = "learned from a stream" if run.is_stream else "trained within a memory budget"
    return f"A multiple locally linear kernel machine, {how}" + (f"; run folder {run.name}" if run.in_folder else "")


def _course(run: Run) -> list[Picture]:
    if run.reports:
        return stream_pictures(run.reports)
    if not run.rounds:
        return []
    tol = run.parameters.get("tol")
    in_turn = run.parameters.get("multi_class") == "ovr" and (run.model is None or run.model.n_machines > 1)
    return training_pictures(run.rounds, None if tol is None else float(tol), in_turn)


def _image_shape(run: Run, given: str | Sequence[int] | None) -> ImageShape | None:
    wanted = given if given is not None else run.data.get("image_shape")
    n_features = run.data.get("features") if run.model is None else run.model.n_features_in
    return None if not wanted or n_features is None else require_image_shape(wanted, int(n_features))
