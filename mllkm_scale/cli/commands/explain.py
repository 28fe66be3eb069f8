"""`mllkm explain`: contributions to the scores of rows of a file."""

from __future__ import annotations

from pathlib import Path

import click

from mllkm_scale.cli.group import debug_option, say
from mllkm_scale.cli.output import json_option, open_model, print_json, wants_model
from mllkm_scale.cli.parsers import parse_rows
from mllkm_scale.cli.table_files import new_rows_options

__all__ = ["explain"]


@click.command(short_help="Show which features and kernels make a score.")
@wants_model
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "--rows",
    metavar="FIRST:LAST",
    default="0:5",
    show_default=True,
    callback=lambda context, parameter, text: parse_rows(text),
    help="Rows to explain, from 0; the last one is excluded. A single number is one row.",
)
@new_rows_options
@json_option
@debug_option
def explain(
    model: Path,
    data: Path,
    rows: tuple[int, int],
    x: str | None,
    label_column: str | int | None,
    by_position: bool,
    as_json: bool,
) -> None:
    """Explain the scores of rows of DATA by MODEL, a model file or a run folder.

    A score is a sum over kernels and features. The contributions are exact: those of the features and the constant add
    up to the score, and so do those of the kernels. The features that contribute most to the score of the predicted
    class are shown; --json has all of them, for every class. Columns are matched by name as in "mllkm predict".

    \b
    Examples:
      mllkm explain run new.csv --rows 0:5
      mllkm explain run/model.mllkm test.h5 --rows 17 --json
    """
    from mllkm_scale.prediction import explain_file

    machine = open_model(model)
    found = explain_file(machine, data, *rows, x=x, label_column=label_column, by_position=by_position)
    numbered = zip(range(*rows), found, strict=True)
    if as_json:
        print_json([{"row": number} | one.as_dict() for number, one in numbered])
    else:
        say("\n\n".join(f"row {number}: {one}" for number, one in numbered))
