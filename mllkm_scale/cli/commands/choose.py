"""`mllkm choose`: one model of a path, within limits of its cost."""

from __future__ import annotations

from pathlib import Path

import click

from mllkm_scale.cli.group import debug_option, say
from mllkm_scale.cli.output import json_option, overwrite_option, print_json
from mllkm_scale.cli.path_run import below_option, chosen_of, tell_points
from mllkm_scale.errors import ParameterError

__all__ = ["choose"]


@click.command(short_help="Choose the best model of a path within limits.")
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
@below_option
@click.option("--out", type=click.Path(path_type=Path), metavar="MODEL", help="Copy the model to this file.")
@overwrite_option
@json_option
@debug_option
def choose(path: Path, below: tuple[str, ...], out: Path | None, overwrite: bool, as_json: bool) -> None:
    """Choose a model of PATH, a folder that `mllkm path` wrote: the best one within --below, or the knee.

    \b
    Examples:
      mllkm choose path
      mllkm choose path --below 20us
      mllkm choose path --below 20us --below 100kB --out small.mllkm
    """
    from mllkm_scale.model import load_model
    from mllkm_scale.path.folder import read_path
    from mllkm_scale.run.folder import MODEL

    points, _ = read_path(path)
    chosen = chosen_of(points, below)
    file = path / chosen.name / MODEL
    if out is not None:
        if out.exists() and not overwrite:
            raise ParameterError(f"{out} exists already: choose another name, or allow it with --overwrite")
        load_model(file).save(out)
    if as_json:
        print_json({"chosen": chosen, "model": str(out or file), "points": points})
        return
    tell_points(points, chosen)
    say(f"model: {out or file}")
