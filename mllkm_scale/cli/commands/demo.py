"""`mllkm demo`: runs the main commands on real data that comes with scikit-learn."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from mllkm_scale.cli.group import Invocation, debug_option, say
from mllkm_scale.errors import ParameterError, ScratchError
from mllkm_scale.run.folder import MODEL, REPORT

__all__ = ["demo"]

DATA = "digits.npz"
SEED = 0


@click.command(short_help="Run every step on real data.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("demo-run"),
    show_default=True,
    metavar="DIR",
    help="Working folder; the files of an earlier demo are replaced.",
)
@debug_option
@click.pass_context
def demo(context: click.Context, out: Path) -> None:
    """Convert, plan, train, evaluate, predict and inspect on 1,797 handwritten digits.

    Each step shows its command, so that you can repeat it on other data. The demo takes less than a minute.

    \b
    Example:
      mllkm demo
    """
    archive, data, run, predictions = out / DATA, out / "digits.h5", out / "run", out / "predictions.h5"
    held_out = ["--x", "X_test"]
    say(f"0. Data: handwritten digits, 8 x 8 pixels, ten classes, a quarter of them held out, as {archive}")
    _write_digits(out)
    steps: list[tuple[str, list[str]]] = [
        (
            "Convert the data to HDF5, which training reads in chunks",
            ["convert", f"{archive}", f"{data}", "--overwrite"],
        ),
        ("Plan the memory of training", ["plan", f"{data}", "--memory", "1GB"]),
        (
            "Train until the duality gap over all candidate kernels is at most 1 %",
            ["train", f"{data}", "--out", f"{run}", "--memory", "1GB", "--image-shape", "8x8", "--overwrite"],
        ),
        (
            "Evaluate the model on the held-out rows",
            ["evaluate", f"{run}", f"{data}", *held_out, "--y", "y_test"],
        ),
        (
            "Predict rows without labels",
            ["predict", f"{run}", f"{data}", *held_out, "--out", f"{predictions}", "--overwrite"],
        ),
        ("Show what the model consists of", ["inspect", f"{run}"]),
    ]
    for number, (title, arguments) in enumerate(steps, 1):
        say(f"\n{number}. {title}\n   $ {shlex.join(['mllkm', *arguments])}")
        _run(context, arguments)
    report = run / REPORT
    seen = f", and {report} shows it: open it in a browser" if report.exists() else ""
    say(f"\nThe model is {run / MODEL}{seen}. Next, run the same commands on your data: see mllkm train --help")


def _write_digits(folder: Path) -> None:
    import numpy as np
    from sklearn.datasets import load_digits

    if folder.is_dir() and any(folder.iterdir()) and not (folder / DATA).exists():
        raise ParameterError(f"{folder} is not empty and not from an earlier demo: name another folder with --out")
    pixels, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(digits))
    test, train = np.split(order, [len(order) // 4])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / DATA, X=pixels[train], y=digits[train], X_test=pixels[test], y_test=digits[test])
    except OSError as error:
        raise ScratchError(
            f"{folder} cannot be written ({error.strerror or error}): name another folder with --out"
        ) from error


def _run(context: click.Context, arguments: list[str]) -> None:
    """Run a command line exactly as shown."""
    root = context.find_root()
    debug = context.ensure_object(Invocation).debug
    invocation = Invocation(tuple(arguments), debug)
    with root.command.make_context(root.info_name, list(arguments), obj=invocation) as called:
        root.command.invoke(called)
