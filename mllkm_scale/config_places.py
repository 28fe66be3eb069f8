"""Where the user's defaults stand: what dask's configuration holds under our name, and which place each is from.

dask itself, which takes time and memory that a training counts, is imported only where a file of its configuration
names us; it may be there already.
"""

from __future__ import annotations

import ast
import os
import site
import sys
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

from mllkm_scale.errors import ParameterError

__all__ = ["NAME", "Origin", "found", "origin_of"]

NAME = "mllkm"


class Origin(IntEnum):
    """Where a value is from; the larger wins."""

    BUILT_IN = 0
    FILE = 1
    ENVIRONMENT = 2
    PROGRAM = 3


def found() -> Any:
    """What stands under our name, as it was written: keys and values if it is as it should be."""
    return _from_dask() if _dask_knows_more() else _from_environment()


def _from_dask() -> Any:
    try:
        import dask.config as dask_config
    except ValueError as error:  # of a file that is no YAML, and not only of ours
        raise ParameterError(f"{' '.join(str(error).split())}: mend the file, or remove it") from error
    return dask_config.get(NAME, None)


def _from_environment() -> dict[str, Any]:
    """What dask would find in the environment variables, read as dask reads them."""
    words = {"none": None, "null": None, "false": False, "true": True}
    found: dict[str, Any] = {}
    for name, text in os.environ.items():
        if name.upper().startswith(f"DASK_{NAME.upper()}__"):
            key = name.partition("__")[2].lower()
            try:
                found[key] = ast.literal_eval(text)
            except (SyntaxError, ValueError):
                found[key] = words.get(text.lower(), text)
    return found


def _dask_knows_more() -> bool:
    """Whether there may be settings elsewhere than in environment variables."""
    return "dask" in sys.modules or "DASK_INTERNAL_INHERIT_CONFIG" in os.environ or _is_in_a_file()


@cache
def _is_in_a_file() -> bool:
    """Whether a file that dask reads when it is imported names us."""
    prefixes = [Path(prefix) / "etc" for prefix in (sys.prefix, *site.PREFIXES)]
    folders = [folder / "dask" for folder in (*prefixes, Path("~/.config").expanduser())]
    folders += [Path(os.environ.get("DASK_ROOT_CONFIG", "/etc/dask"))]
    folders += [Path(os.environ["DASK_CONFIG"])] if "DASK_CONFIG" in os.environ else []
    return any(_names_us(place) for place in folders)


def _names_us(place: Path) -> bool:
    try:
        if place.is_dir():
            return any(_names_us(file) for file in place.iterdir() if file.suffix in (".yaml", ".yml", ".json"))
        return NAME.encode() in place.read_bytes()
    except OSError:  # not there, or not for us: dask leaves it out, too
        return False


def origin_of(key: str, value: Any) -> tuple[Origin, str]:
    """Where a value of a key is from: the strongest place that has just this value, and its name."""
    import dask.config as dask_config

    path = f"{NAME}.{key}"
    if _same(dask_config.get(path, None, config=dask_config.collect_env()), value):
        return Origin.ENVIRONMENT, _variable(key)
    for file in reversed(list(dask_config.paths_containing_key(path, paths=dask_config.paths))):
        (_, content), *_ = dask_config.collect_yaml([str(file)], return_paths=True)
        if _same(dask_config.get(path, None, config=content), value):
            return Origin.FILE, str(file)
    return Origin.PROGRAM, "dask.config.set"


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _variable(key: str) -> str:
    wanted = f"DASK_{NAME}__{key}".replace("-", "_").upper()
    names = [name for name in os.environ if name.upper().replace("-", "_") == wanted]
    return names[0] if names else "of the process that started this one"
