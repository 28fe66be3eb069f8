"""`mllkm config`: the defaults in force, and their origin."""

from __future__ import annotations

from typing import Any

import click

from mllkm_scale.cli.group import debug_option
from mllkm_scale.cli.output import Table, json_option, plain_table, print_json, tell

__all__ = ["config"]


@click.command(short_help="Show the defaults in force, and where they come from.")
@json_option
@debug_option
def config(as_json: bool) -> None:
    """Show the defaults in force, and where each of them comes from.

    They are keys below "mllkm" in a YAML file of ~/.config/dask, or environment variables such as
    DASK_MLLKM__MEMORY_BUDGET, which override the file. Options override both.

    \b
    Examples:
      mllkm config
      mllkm config --json
    """
    from mllkm_scale.config import SETTINGS, in_force

    found = in_force()
    if as_json:
        origins = ("built-in", "file", "environment", "program")
        print_json({s.key: {"value": s.value, "origin": origins[s.origin], "place": s.place} for s in found})
        return
    rows = [[s.key, _shown(s.value), s.place, SETTINGS[s.key].help] for s in found]
    table = Table(["setting", "value", "from", "what it is"], rows)
    tell(lambda: plain_table(table), lambda: [table])


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "-" if value is None else str(value)
