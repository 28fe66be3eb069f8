"""The group of commands."""

from __future__ import annotations

import click

from mllkm_scale.base.version import __version__
from mllkm_scale.cli.commands.choose import choose
from mllkm_scale.cli.commands.completion import completion
from mllkm_scale.cli.commands.config import config
from mllkm_scale.cli.commands.convert import convert
from mllkm_scale.cli.commands.demo import demo
from mllkm_scale.cli.commands.doctor import doctor
from mllkm_scale.cli.commands.evaluate import evaluate
from mllkm_scale.cli.commands.explain import explain
from mllkm_scale.cli.commands.export import export
from mllkm_scale.cli.commands.fetch import fetch
from mllkm_scale.cli.commands.inspect import inspect
from mllkm_scale.cli.commands.path import path
from mllkm_scale.cli.commands.plan import plan
from mllkm_scale.cli.commands.predict import predict
from mllkm_scale.cli.commands.report import report
from mllkm_scale.cli.commands.reproduce import reproduce
from mllkm_scale.cli.commands.run import run
from mllkm_scale.cli.commands.stream import stream
from mllkm_scale.cli.commands.train import train
from mllkm_scale.cli.group import CommandGroup, debug_option

__all__ = ["cli", "main"]


@click.group(
    "mllkm",
    cls=CommandGroup,
    commands=[
        demo,
        fetch,
        convert,
        plan,
        train,
        run,
        path,
        choose,
        stream,
        predict,
        evaluate,
        explain,
        inspect,
        report,
        export,
        reproduce,
        doctor,
        config,
        completion,
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="mllkm")
@debug_option
def cli() -> None:
    """Train and use Multiple Locally Linear Kernel Machines on data larger than memory.

    \b
    A demonstration on real data, in about a minute:
      mllkm demo
    \b
    Your own data, from CSV to predictions:
      mllkm convert train.csv train.h5
      mllkm plan train.h5 --memory 2GB
      mllkm train train.h5 --out run --memory 2GB
      mllkm convert new.csv new.h5 --label-column none
      mllkm predict run/model.mllkm new.h5 --out predictions.h5
    \b
    A training run from a job file, with or without a cluster:
      mllkm run job.toml

    `mllkm COMMAND --help` explains a command.
    """


def main() -> None:
    """Entry point of the program."""
    cli(prog_name="mllkm")
