"""`mllkm evaluate`: the accuracy of a model on labelled data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

from mllkm_scale.cli.group import debug_option, say
from mllkm_scale.cli.output import Table, jobs_option, json_option, open_model, print_json, tell, wants_model
from mllkm_scale.cli.parsers import DATA
from mllkm_scale.cli.table_files import (
    as_hdf5,
    format_option,
    given_table,
    known_of_model,
    labels_in,
    layout_options,
    scratch_folder,
)
from mllkm_scale.printable import printable

if TYPE_CHECKING:
    from mllkm_scale.base.location import Location
    from mllkm_scale.model import Evaluation

__all__ = ["evaluate"]

MISTAKES = 10
LABEL = 60  # characters of a label that are shown


@click.command(short_help="Test a model on labelled data.")
@wants_model
@click.argument("data", type=DATA)
@click.option("--x", metavar="NAME", help="Data set of the samples.  [default: X_test if there is one, or X]")
@click.option("--y", metavar="NAME", help="Data set of the labels.  [default: that of the samples: y_test, or y]")
@click.option("--sample-weight", metavar="NAME", help="Data set of the weights of the rows.")
@click.option("--by-position", is_flag=True, help="Match columns by position, even if they have names.")
@format_option
@layout_options
@jobs_option
@json_option
@debug_option
@click.pass_context
def evaluate(
    context: click.Context,
    /,
    model: Path,
    data: Path,
    x: str | None,
    y: str | None,
    sample_weight: str | None,
    by_position: bool,
    n_jobs: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare the predictions of MODEL, a model file or a run folder, with the labels of DATA.

    DATA is HDF5, zarr, or any format that "mllkm convert" reads.

    The rows are X_test and y_test if DATA has them, because training on DATA does not use these, and otherwise X and y;
    --x and --y name others. Columns are matched by name if DATA and MODEL have names; other columns are ignored.

    \b
    Examples:
      mllkm evaluate run/model.mllkm test.h5
      mllkm evaluate run new-people.csv --label-column income
      mllkm evaluate run train.h5 --json
      mllkm evaluate run train.h5 --x X
    """
    from mllkm_scale.data import Dataset
    from mllkm_scale.model import evaluate as evaluate_model

    machine, table = open_model(model), given_table(context)
    with scratch_folder() as folder:
        known = known_of_model(machine, by_position=by_position)
        stored = as_hdf5(data, folder, table, "quiet", known)
        samples, labels = _what_to_score(stored, x, y)
        labels = labels_in(stored, labels, table)
        with Dataset.open(stored, samples, labels, sample_weight=sample_weight) as dataset:
            columns = None if by_position else machine.features.match(dataset.feature_names, dataset.name)
            if columns is not None and columns.ignored:
                say(columns.remark(dataset.name) or "", err=True)
            evaluation = evaluate_model(machine, dataset, by_position=by_position, n_jobs=n_jobs)
    if as_json:
        print_json({"data": dataset.name} | evaluation.as_dict())
    else:
        title = f"{dataset.name}: {evaluation.n:,} rows"
        tell(lambda: "\n".join([title, *_lines(evaluation)]), lambda: [title, *_parts(evaluation)])


def _what_to_score(data: Location, x: str | None, y: str | None) -> tuple[str, str]:
    """The names of samples and labels: by default those of held-out rows, if the file has them."""
    from mllkm_scale.cli.training_run import TEST_SETS, has_test_sets

    if x is None and y is None and has_test_sets(data):
        return TEST_SETS
    samples = x or ("X_test" if y == "y_test" else "X")
    return samples, y or ("y_test" if samples == "X_test" else "y")


def _accuracy(evaluation: Evaluation) -> str:
    weighted = evaluation.weighted_error
    told = "" if weighted is None else f", weighted error {100 * weighted:.2f} %"
    return f"accuracy {100 * evaluation.accuracy:.2f} %, error {100 * evaluation.error:.2f} %{told}"


def _probabilities(evaluation: Evaluation) -> str:
    if evaluation.log_loss is None:
        return "no probabilities: the model has no calibration"
    return (
        f"probabilities: log loss {evaluation.log_loss:.4f}, Brier score {evaluation.brier:.4f},"
        f" calibration error {evaluation.calibration_error:.4f} ({evaluation.calibration_by_chance:.4f} by chance)"
    )


def _parts(evaluation: Evaluation) -> Iterator[str | Table]:
    """The evaluation as tables."""
    yield _accuracy(evaluation)
    yield _probabilities(evaluation)
    columns = zip(_names(evaluation), *_columns(evaluation), strict=True)
    yield Table(
        ["class", ">rows", ">precision", ">recall", ">f1"],
        [[name, f"{n:,}", *(f"{value:.4f}" for value in values)] for name, n, *values in columns],
    )
    if mistakes := _mistakes(evaluation):
        rows = [[f"{count:,}", truth, predicted] for count, truth, predicted in mistakes]
        yield Table([">rows", "true", "predicted"], rows, title="most frequent mistakes")


def _lines(evaluation: Evaluation) -> list[str]:
    """Accuracy, a table of the classes, and the most frequent mistakes."""
    names = _names(evaluation)
    width = max(5, *(len(name) for name in names))
    lines = [
        _accuracy(evaluation),
        _probabilities(evaluation),
        "",
        f"{'class':<{width}} {'rows':>9} {'precision':>10} {'recall':>10} {'f1':>10}",
    ]
    for name, n, precision, recall, f1 in zip(names, *_columns(evaluation), strict=True):
        lines.append(f"{name:<{width}} {n:>9,} {precision:>10.4f} {recall:>10.4f} {f1:>10.4f}")
    if mistakes := _mistakes(evaluation):
        lines += ["", "most frequent mistakes (true, predicted)"]
        lines += [f"{count:>9,}  {truth}, {predicted}" for count, truth, predicted in mistakes]
    return lines


def _names(evaluation: Evaluation) -> list[str]:
    return [printable(label, longest=LABEL) for label in evaluation.classes.tolist()]


def _columns(evaluation: Evaluation) -> tuple[NDArray[Any], ...]:
    return evaluation.confusion.sum(axis=1), evaluation.precision, evaluation.recall, evaluation.f1


def _mistakes(evaluation: Evaluation) -> list[tuple[int, str, str]]:
    """Count, true and predicted class of the most frequent mistakes."""
    names = _names(evaluation)
    mistakes = [
        (int(count), names[truth], names[predicted])
        for (truth, predicted), count in np.ndenumerate(evaluation.confusion)
        if truth != predicted and count
    ]
    return sorted(mistakes, key=lambda mistake: -mistake[0])[:MISTAKES]
