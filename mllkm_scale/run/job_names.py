"""The tables and keys that a job file may have, and what is said about those that it may not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import fields

from mllkm_scale.cluster.spec import ClusterSpec
from mllkm_scale.params import Params

__all__ = ["REQUIRED", "TABLES", "about_unknown_key", "about_unknown_name", "about_unknown_table"]

_OF_OTHER_TABLES = ("memory_budget", "scratch_dir", "verbose")

TABLES: dict[str, tuple[str, ...]] = {
    "data": ("path", "x", "y", "test", "image_shape"),
    "parameters": ("preset", *(spec.name for spec in fields(Params) if spec.name not in _OF_OTHER_TABLES)),
    "budget": ("memory", "scratch"),
    "cluster": tuple(spec.name for spec in fields(ClusterSpec)),
    "output": ("run", "progress", "report", "performance_report"),
}
"""The tables of a job file and their keys."""

REQUIRED = (("data", "path"), ("output", "run"))

_CALLED = {  # in Python or on the command line, and here
    "memory_budget": ("budget", "memory"),
    "scratch_dir": ("budget", "scratch"),
    "verbose": ("output", "progress"),
    "seed": ("parameters", "random_state"),
    "jobs": ("parameters", "n_jobs"),
    "out": ("output", "run"),
}


def about_unknown_table(name: str) -> str:
    """What is wrong with a table.

    >>> about_unknown_table("dta")
    'unknown table [dta]: did you mean [data]?'
    """
    return f"unknown table [{name}]{_suggestion(name, TABLES, '[{}]')}"


def about_unknown_key(table: str, key: str) -> str:
    """What is wrong with a key of a table.

    >>> about_unknown_key("parameters", "max_round")
    'unknown key max_round in [parameters]: did you mean max_rounds?'
    >>> about_unknown_key("parameters", "memory_budget")
    'memory_budget is no key of [parameters]: write memory in [budget]'
    """
    home = _home_of(key)
    if home is None:
        return f"unknown key {key} in [{table}]{_suggestion(key, TABLES[table], '{}')}"
    where = "" if home[0] == table else f" in [{home[0]}]"
    return f"{key} is no key of [{table}]: write {home[1]}{where}"


def about_unknown_name(name: str) -> str:
    """What is wrong with a key that stands in no table, or with a table that is not written as one.

    >>> about_unknown_name("memory")
    'memory stands in no table: write memory in [budget]'
    """
    if name in TABLES:
        return f"{name} must be one table: write [{name}] on a line of its own, and its keys below"
    home = _home_of(name)
    if home is None:
        return f"{name} stands in no table: the tables are {_listed(TABLES, '[{}]')}"
    return f"{name} stands in no table: write {home[1]} in [{home[0]}]"


def _home_of(key: str) -> tuple[str, str] | None:
    homes = [(table, key) for table, keys in TABLES.items() if key in keys]
    return homes[0] if homes else _CALLED.get(key)


def _suggestion(name: str, known: Iterable[str], form: str) -> str:
    names = list(known)
    close = [other for other in names if other.lower() == name.lower()] or difflib.get_close_matches(name, names, n=1)
    return f": did you mean {form.format(close[0])}?" if close else f": known are {_listed(names, form)}"


def _listed(names: Iterable[str], form: str) -> str:
    return ", ".join(form.format(name) for name in names)
