"""`mllkm inspect`: describes a model file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mllkm_scale.cli.group import debug_option
from mllkm_scale.cli.output import Facts, Table, json_option, model_path, open_model, print_json, tell, wants_model

if TYPE_CHECKING:
    from mllkm_scale.model import Description

__all__ = ["inspect"]


@click.command(short_help="Show what a model consists of.")
@wants_model
@json_option
@debug_option
def inspect(model: Path, as_json: bool) -> None:
    """Describe MODEL, a model file or a run folder.

    \b
    Examples:
      mllkm inspect run/model.mllkm
      mllkm inspect run --json
    """
    from mllkm_scale.model import describe

    description = describe(open_model(model), path=model_path(model))
    if as_json:
        print_json(description.as_dict())
    else:
        tell(description.as_text, lambda: _parts(description))


def _parts(description: Description) -> Iterator[Facts | Table]:
    """The description as tables."""
    from mllkm_scale.model.describe_text import facts_in_words

    yield Facts(facts_in_words(description))
    yield Table(
        [">gamma", ">kernels", ">weight", ">share"],
        [[f"{g.gamma:.5g}", f"{g.count}", f"{g.weight:.4g}", f"{g.share:.1%}"] for g in description.gammas],
    )
    yield Table(
        [">heaviest", ">gamma", ">weight", ">share", ">norm"],
        [
            [f"{k.position}", f"{k.gamma:.4g}", f"{k.weight:.4g}", f"{k.share:.1%}", f"{k.norm:.4g}"]
            for k in description.heaviest
        ],
    )
