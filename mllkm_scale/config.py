"""The user's defaults, from dask's configuration under the name ``mllkm``.

    argument or option  >  job file  >  dask.config.set  >  environment  >  file  >  built-in

They determine how a training run is executed, not its result. dask finds and reads them; this module checks them.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from mllkm_scale.base.events import PROGRESS_MODES
from mllkm_scale.base.units import parse_bytes
from mllkm_scale.errors import ParameterError

__all__ = [
    "PARAMETERS",
    "SETTINGS",
    "InForce",
    "Origin",
    "configured",
    "configured_parameters",
    "in_force",
    "is_configured",
]

PARAMETERS = ("memory_budget", "scratch_dir", "n_jobs", "worker_timeout")
"""Parameters of a training run whose default can be configured."""


class Origin(IntEnum):
    """Where a value comes from; a larger origin overrides a smaller one."""

    BUILT_IN = 0
    FILE = 1
    ENVIRONMENT = 2
    PROGRAM = 3


@dataclass(frozen=True)
class Setting:
    """A key of the configuration: its built-in value, its meaning, and the function that reads a given value."""

    default: Any
    help: str
    read: Callable[[Any], Any]


@dataclass(frozen=True)
class InForce:
    """The current value of a setting; `place` names the file or the variable from which it comes."""

    key: str
    value: Any
    origin: Origin
    place: str


def _size(value: Any) -> str | int:
    parse_bytes(value)
    return value if isinstance(value, str) else int(value)


def _folder(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ParameterError(f"{value!r} is not a path")
    return str(Path(value).expanduser())


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ParameterError(f"{value!r} is not an address such as tcp://node1:8786")
    return value


def _jobs(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value == 0:
        raise ParameterError(f"{value!r} is not a number of threads, nor -1 for one per core")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParameterError(f"{value!r} is not a whole number from 0")
    return value


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ParameterError(f"{value!r} is not a positive number of seconds")
    return float(value)


def _switch(value: Any) -> bool:
    if value not in (True, False):  # 0 and 1 of the environment equal them
        raise ParameterError(f"{value!r} is neither true nor false")
    return bool(value)


def _progress(value: Any) -> str:
    if value not in PROGRESS_MODES:
        raise ParameterError(f"{value!r} is none of {', '.join(PROGRESS_MODES)}")
    return str(value)


SETTINGS = {
    "memory-budget": Setting("2GB", "bound on the peak memory of a training run", _size),
    "scratch-dir": Setting(None, "folder for temporary files", _folder),
    "n-jobs": Setting(-1, "threads; -1 for one per core", _jobs),
    "worker-timeout": Setting(300.0, "seconds to wait for the next result of dask workers", _seconds),
    "report": Setting(True, "whether a training run writes report.html", _switch),
    "progress": Setting("auto", "how the command line shows progress", _progress),
    "workers": Setting(None, "dask workers that the command line starts", _count),
    "scheduler": Setting(None, "dask scheduler that the command line uses", _text),
    "scheduler-file": Setting(None, "dask scheduler that the command line uses, by its file", _folder),
}
"""The keys below ``mllkm``."""


def configured(key: str) -> Any:
    """The value of a setting: the configured one, or the built-in one.

    Raises
    ------
    ParameterError
        If a key below ``mllkm`` is unknown, or the value is invalid. The message names the file or variable.

    Examples
    --------
    >>> import dask
    >>> with dask.config.set({"mllkm.memory-budget": "4GB"}):
    ...     configured("memory-budget")
    '4GB'
    """
    given = _given()
    return _read(key, given[key]) if key in given else SETTINGS[key].default


def is_configured(key: str) -> bool:
    """Whether the user has configured this setting."""
    return key in _given()


def configured_parameters() -> dict[str, Any]:
    """The parameters of a training run that are configured."""
    given = _given()
    keys = {name: name.replace("_", "-") for name in PARAMETERS}
    return {name: _read(key, given[key]) for name, key in keys.items() if key in given}


def in_force(keys: Iterable[str] = SETTINGS) -> tuple[InForce, ...]:
    """The current values of these settings (default: all), and where they come from."""
    given = _given()
    return tuple(
        InForce(key, _read(key, given[key]), *_origin(key, given[key]))
        if key in given
        else InForce(key, SETTINGS[key].default, Origin.BUILT_IN, "built-in")
        for key in keys
    )


def _given() -> dict[str, Any]:
    """What the user has configured, as written; a key with the value null counts as absent."""
    try:
        import dask.config as dask_config  # takes a tenth of a second, and --help must be fast
    except ValueError as error:  # a file is not YAML; it may belong to another package
        raise ParameterError(f"{' '.join(str(error).split())}: correct the file, or remove it") from error
    written = dask_config.get("mllkm", None) or {}
    if not isinstance(written, Mapping):
        raise ParameterError(
            f"mllkm is {written!r} in dask's configuration: write keys below it, as memory-budget: 4GB"
        )
    given = {str(key).replace("_", "-"): value for key, value in written.items()}
    for key, value in given.items():
        if key not in SETTINGS:
            close = difflib.get_close_matches(key, SETTINGS, n=1)
            remedy = f"did you mean {close[0]}?" if close else f"known are {', '.join(SETTINGS)}"
            raise ParameterError(f"mllkm.{key} ({_origin(key, value)[1]}) is not known: {remedy}")
    return {key: value for key, value in given.items() if value is not None}


def _read(key: str, value: Any) -> Any:
    try:
        return SETTINGS[key].read(value)
    except ParameterError as error:
        remedy = "" if ": " in str(error) else ": correct it there"
        raise ParameterError(f"mllkm.{key} ({_origin(key, value)[1]}): {error}{remedy}") from None


def _origin(key: str, value: Any) -> tuple[Origin, str]:
    """The place of highest precedence with exactly this value, and its name."""
    import dask.config as dask_config

    def has(config: dict[str, Any]) -> bool:
        found = dask_config.get(f"mllkm.{key}", None, config=config)
        return type(found) is type(value) and bool(found == value)

    if has(dask_config.collect_env()):
        variable = f"DASK_MLLKM__{key}".replace("-", "_").upper()
        names = [name for name in os.environ if name.upper().replace("-", "_") == variable]
        return Origin.ENVIRONMENT, names[0] if names else "of the process that started this one"
    for path, config in reversed(list(dask_config.collect_yaml(dask_config.paths, return_paths=True))):
        if has(config):
            return Origin.FILE, str(path)
    return Origin.PROGRAM, "dask.config.set"
