"""`mllkm plan`: the memory of a training run, before anything is allocated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mllkm_scale.base.units import format_bytes
from mllkm_scale.cli.group import debug_option
from mllkm_scale.cli.options import data_set_options, given_parameters, training_options
from mllkm_scale.cli.output import Table, json_option, print_json, tell
from mllkm_scale.cli.parsers import DATA
from mllkm_scale.cli.table_files import (
    format_option,
    given_table,
    labels_in,
    scratch_folder,
    table_options,
    weighted_hdf5,
)

if TYPE_CHECKING:
    from mllkm_scale.plan.training import Plan

__all__ = ["plan"]


@click.command(short_help="Print what a training run would hold in memory.")
@click.argument("data", type=DATA)
@data_set_options
@format_option
@table_options
@json_option
@training_options
@debug_option
@click.pass_context
def plan(
    context: click.Context, /, data: Path, x: str, y: str, sample_weight: str | None, as_json: bool, **options: Any
) -> None:
    """Print what a training run on DATA would hold in memory, and which form of the inner problem it would use.

    DATA is as in "mllkm train".

    Nothing is trained. If the budget is too small, the error names the smallest one that works.

    \b
    Examples:
      mllkm plan train.h5 --memory 1GB
      mllkm plan train.h5 --memory 512MB --n-components 50 --json
    """
    from mllkm_scale.data import Dataset
    from mllkm_scale.params import resolve
    from mllkm_scale.run.session import planned_rows

    params = resolve(**given_parameters(context))
    with (
        ExitStack() as stack,
        scratch_folder(params.scratch_dir) as folder,
    ):
        table = given_table(context)
        stored, weights = weighted_hdf5(data, folder, table, sample_weight)
        dataset = stack.enter_context(Dataset.open(stored, x, labels_in(stored, y, table), sample_weight=weights))
        made = planned_rows(dataset, None, params, stack, folder).plan
    if as_json:
        print_json(made.as_dict())
    else:
        tell(made.as_text, lambda: _parts(made))


def _parts(plan: Plan) -> Iterator[Table | str]:
    """The plan as a table."""
    rows = [(what, format_bytes(size), note) for what, size, note in plan.rows]
    total = ("total", format_bytes(plan.total_bytes), f"of {format_bytes(plan.budget_bytes)}")
    yield Table(["what", ">memory", "note"], [*rows, total])
    yield f"inner form: {plan.inner} ({plan.reason})"
    yield f"dask workers, if any: {format_bytes(plan.worker_bytes())} each, with one thread"
