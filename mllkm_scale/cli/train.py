"""`mllkm train`: from a data set to a model, in a run folder that can be resumed."""

from __future__ import annotations

import os
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mllkm_scale.cli.group import INTERRUPTED, TERMINATED, Invocation, debug_option
from mllkm_scale.cli.options import given_parameters, training_options
from mllkm_scale.cli.output import print_json
from mllkm_scale.errors import DataError, InterruptedTraining
from mllkm_scale.run.folder import MODEL, RunFolder
from mllkm_scale.run.progress import MODES, choose_listener
from mllkm_scale.run.signals import interruption

if TYPE_CHECKING:
    from mllkm_scale.data import Dataset
    from mllkm_scale.model import Evaluation

__all__ = ["train"]

STDERR = 2
TEST_SETS = ("X_test", "y_test")


@click.command(short_help="Train a model within a memory budget.")
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="RUN", help="Folder of the training.")
@click.option("--x", default="X", show_default=True, metavar="NAME", help="Data set of the samples.")
@click.option("--y", default="y", show_default=True, metavar="NAME", help="Data set of the labels.")
@click.option("--resume", is_flag=True, help="Continue the training of RUN from its last checkpoint.")
@click.option("--overwrite", is_flag=True, help="Replace the training that RUN holds.")
@click.option(
    "--progress",
    type=click.Choice(MODES),
    default="auto",
    show_default=True,
    help="auto: live on a terminal, plain lines elsewhere. json: one object an event, on stdout.",
)
@training_options
@debug_option
@click.pass_context
def train(
    context: click.Context,
    /,
    data: Path,
    out: Path,
    x: str,
    y: str,
    resume: bool,
    overwrite: bool,
    progress: str,
    **options: Any,
) -> None:
    """Train on the data sets X and y of DATA, an HDF5 file or zarr group; the model is RUN/model.mllkm.

    Training ends when the duality gap over all candidate kernels is proved to be at most --tol; its memory
    stays within --memory. Ctrl-C or SIGTERM ends it at the next safe point, and --resume goes on from there
    to the same result. If DATA holds X_test and y_test too, the model is evaluated on them at the end.

    \b
    Examples:
      mllkm train train.h5 --out run --memory 2GB
      mllkm train train.h5 --out run --C 10 --gammas 0.01,0.1,1 --n-components 50
      mllkm train train.h5 --out run --anchors kmeans:500 --tol 0.001
      mllkm train train.h5 --out run --resume
      mllkm train train.h5 --out run-paper --preset paper
    """
    from mllkm_scale.data import Dataset
    from mllkm_scale.model import evaluate
    from mllkm_scale.params import resolve
    from mllkm_scale.training import train as train_model

    if resume and overwrite:
        raise click.UsageError("--resume continues a training and --overwrite replaces it: give one of them", context)
    parameters = given_parameters(context)
    tol = resolve(**parameters).tol
    with ExitStack() as stack:
        dataset = stack.enter_context(Dataset.open(data, x, y))
        held_out = _held_out(data, dataset)
        if held_out is not None:
            stack.enter_context(held_out)
        with (
            choose_listener(progress, tol=tol) as listener,
            interruption(_notice if progress in ("auto", "plain") else None) as stop,
        ):
            try:
                result = train_model(
                    dataset,
                    run_dir=out,
                    resume=resume,
                    overwrite=overwrite,
                    listener=listener,
                    should_stop=lambda: stop.requested,
                    **parameters,
                )
            except (InterruptedTraining, KeyboardInterrupt) as error:
                listener.close()
                _say_how_to_go_on(error, out, context)
                raise SystemExit(TERMINATED if stop.signal_name == "SIGTERM" else INTERRUPTED) from error
        if progress != "json":
            click.echo(f"model: {out / MODEL} ({result.status}, {result.model.n_kernels} kernels)")
        if held_out is not None:
            _tell(evaluate(result.model, held_out), held_out.name, progress)


def _held_out(data: Path, dataset: Dataset) -> Dataset | None:
    """The test set of the same file, if it has one; what cannot be used is refused before the training."""
    import numpy as np

    from mllkm_scale.data import Dataset
    from mllkm_scale.data.hdf5_source import open_hdf5

    if data.is_dir():
        there = all((data / name).is_dir() for name in TEST_SETS)
    else:
        with open_hdf5(data.absolute()) as file:
            there = all(name in file for name in TEST_SETS)
    if not there:
        return None
    with Dataset.open(data, *TEST_SETS) as held_out:
        problem = None
        if held_out.n_features != dataset.n_features:
            problem = f"{held_out.n_features} features instead of {dataset.n_features}"
        elif unknown := set(np.unique(held_out.labels()).tolist()) - set(np.unique(dataset.labels()).tolist()):
            problem = f"the label {min(unknown)!r}, which {dataset.label_name} does not have"
        if problem is not None:
            raise DataError(
                f"{held_out.name} would be evaluated after the training, but has {problem}: correct it, or"
                " give it another name"
            )
        return held_out  # opens again when it is read


def _tell(evaluation: Evaluation, name: str, progress: str) -> None:
    if progress == "json":
        print_json({"event": "evaluation", "data": name} | evaluation.as_dict(), indent=None)
    else:
        click.echo(f"{name}: {evaluation.n:,} rows, error {100 * evaluation.error:.2f} %")


def _notice(signal_name: str) -> None:
    text = f"\nmllkm: {signal_name}: ending at the next safe point; Ctrl-C again ends at once\n"
    os.write(STDERR, text.encode())


def _say_how_to_go_on(error: BaseException, run: Path, context: click.Context) -> None:
    ended = str(error) if isinstance(error, InterruptedTraining) else "training was interrupted at once"
    given = context.ensure_object(Invocation).arguments
    words = [word for word in given if word not in ("--resume", "--overwrite")]
    if RunFolder(run).checkpoint.exists():
        words.append("--resume")
    click.echo(f"mllkm: {ended}; to go on: {shlex.join(['mllkm', *words])}", err=True)
