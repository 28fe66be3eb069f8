"""`mllkm inspect`: what a model file holds."""

from __future__ import annotations

from pathlib import Path

import click

from mllkm_scale.cli.group import debug_option
from mllkm_scale.cli.output import json_option, model_path, print_json, wants_model

__all__ = ["inspect"]


@click.command(short_help="Show what a model is made of.")
@wants_model
@json_option
@debug_option
def inspect(model: Path, as_json: bool) -> None:
    """Show what MODEL, a model file or the run folder that holds one, is made of.

    \b
    Examples:
      mllkm inspect run/model.mllkm
      mllkm inspect run --json
    """
    from mllkm_scale.model import describe, load_model

    path = model_path(model)
    description = describe(load_model(path), path=path)
    if as_json:
        print_json(description.as_dict())
    else:
        click.echo(description.as_text())
