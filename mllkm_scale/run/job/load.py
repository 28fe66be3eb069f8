"""Reads and checks a job file: paths, parameters and cluster of a training run.

Paths are relative to the folder of the job file. Only the file itself and an array of anchors are read.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mllkm_scale.base.events import PROGRESS_MODES
from mllkm_scale.base.units import parse_bytes
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.anchors import read_anchors
from mllkm_scale.params import GAMMA_NAMES, checked
from mllkm_scale.run.job.cluster import ClusterSpec
from mllkm_scale.run.job.tables import TABLES, about_key, did_you_mean, read_value
from mllkm_scale.run.job.text import JobText

__all__ = ["Job", "load_job"]

_TABLE = ("format", "label_column", "header", "categories", "as_number")


@dataclass(frozen=True)
class Job:
    """A checked job; its paths are relative to the working folder.

    Attributes
    ----------
    path, data, run : pathlib.Path
        The job file, the data, and the run folder.
    x, y : str
        Names of the data sets of the samples and the labels.
    sample_weight : str or None
        Name of the data set of the weights of the rows.
    table : dict
        Options of `convert`, for a file that is neither HDF5 nor zarr.
    test : pathlib.Path or None
        File of test rows.
    image_shape : str or None
        Shape of the images, such as 28x28, if rows are images.
    parameters : dict
        Parameters for `resolve` and `train`, including the preset.
    cluster : ClusterSpec
        The cluster; its kind is "none" if there is no cluster.
    progress : str
        How the progress is shown.
    report : bool or None
        Whether a report is written; None if the file does not say.
    performance_report : pathlib.Path or None
        File for dask's report; needs a cluster, which may also be given by options.
    text : JobText
        The file, and the lines of its keys.
    """

    path: Path
    data: Path
    run: Path
    parameters: dict[str, Any]
    cluster: ClusterSpec
    text: JobText = field(repr=False, compare=False)
    x: str = "X"
    y: str = "y"
    sample_weight: str | None = None
    table: dict[str, Any] = field(default_factory=dict)
    test: Path | None = None
    image_shape: str | None = None
    progress: str = "auto"
    report: bool | None = None
    performance_report: Path | None = None

    def tells(self, table: str, key: str | None = None) -> bool:
        """Whether the file has a table, or a key in it."""
        return table in self.text.tables if key is None else key in self.text.table(table)

    def where(self, table: str, key: str) -> str:
        """File and line of a key, as messages name them."""
        return f"{self.path}:{self.text.line(table, key)}"


def load_job(path: str | os.PathLike[str]) -> Job:
    """Read and check a job file.

    Parameters
    ----------
    path : path
        The job file.

    Raises
    ------
    JobFileError
        One line per problem of the file, as ``job.toml:12: problem: remedy``, in the order of the lines.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "job.toml")
    ...     _ = file.write_text("data.path = 'a.h5'\\noutput.run = 'run'\\nparameters.C = 10\\n")
    ...     job = load_job(file)
    >>> job.data.name, job.parameters, job.cluster.kind
    ('a.h5', {'C': 10.0}, 'none')
    """
    text = JobText(Path(path))
    _check_names(text)
    data, parameters, budget, given_cluster, output = (_read_table(text, table) for table in TABLES)
    if not text.has_problem("parameters"):
        try:
            checked(**parameters)
        except ParameterError as error:
            text.problem(str(error), "parameters")
    cluster = _cluster(text, given_cluster)
    text.require_no_problem()
    if parameters.get("preset", "") is None:
        del parameters["preset"]
    if "memory" in budget:
        parameters["memory_budget"] = budget["memory"]
    if "scratch" in budget:
        parameters["scratch_dir"] = str(budget["scratch"])
    data["data"] = data.pop("path")
    table = {key: data.pop(key) for key in _TABLE if key in data}
    data["table"] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return Job(path=text.path, parameters=parameters, cluster=cluster, text=text, **data, **output)


def _check_names(text: JobText) -> None:
    """Report unknown and missing tables and keys."""
    for table, found in text.tables.items():
        if table not in TABLES:
            unknown = f"unknown table [{table}]: {did_you_mean(table, TABLES, '[{}]')}"
            text.problem(unknown if isinstance(found, dict) else about_key(table), table)
            continue  # its keys may be right in the table that is meant
        if not isinstance(found, dict):
            text.problem(f"{table} must be one table: write [{table}] on a line of its own, and its keys below", table)
        for key in text.table(table).keys() - TABLES[table].keys():
            text.problem(about_key(key, table), table, key)
    for table, key, example in (("data", "path", '"train.h5"'), ("output", "run", '"runs/first"')):
        if table not in text.tables:
            text.problem(f"the table [{table}] is missing: write [{table}], and below it {key} = {example}", table)
        elif key not in text.table(table):
            text.problem(f"[{table}] has no {key}: add {key} = {example}", table, key)
    if text.table("cluster") and "kind" not in text.table("cluster"):
        text.problem('[cluster] has no kind: add kind = "local", for example', "cluster", "kind")


def _read_table(text: JobText, table: str) -> dict[str, Any]:
    """The valid values of a table; the others are reported."""
    values: dict[str, Any] = {}
    given = text.table(table)
    for key, hint in TABLES[table].items():
        if key not in given or text.has_problem(table, key):
            continue
        try:
            value = read_value(key, given[key], hint, text.path.parent)
            values[key] = _checked_value(table, key, value, text.path.parent)
        except ValueError as error:
            text.problem(str(error) if key in str(error) else f"{key}: {error}", table, key)
    return values


def _checked_value(table: str, key: str, value: Any, folder: Path) -> Any:
    """Check a value by itself, without the other keys."""
    match key:
        case "image_shape":
            from mllkm_scale.data.image_shape import read_image_shape

            read_image_shape(value)
        case "memory":
            parse_bytes(value)
        case "progress" if value not in PROGRESS_MODES:
            raise ParameterError(f"progress={value!r} is not known: choose one of {', '.join(PROGRESS_MODES)}")
        case "gammas" if value not in GAMMA_NAMES:
            gammas = (value,) if isinstance(value, float) else tuple(value)
            if isinstance(value, str) or not gammas or not all(0 < gamma < math.inf for gamma in gammas):
                raise ParameterError(
                    f'gammas={value!r}: give positive numbers such as [0.1, 1, 10], "auto", "wide" or "narrow"'
                )
            return gammas
        case "anchors":
            text = str(value)
            return read_anchors(str(read_value(key, text, Path, folder)) if text.endswith(".npy") else text)
        case "n_components" if value is not None:
            if not (value >= 1 if isinstance(value, int) else 0 < value < 1):
                raise ParameterError(f"n_components={value}: give a whole number from 1, or a share between 0 and 1")
        case _ if table == "parameters":
            checked(**{key: value})
    return value


def _cluster(text: JobText, values: dict[str, Any]) -> ClusterSpec:
    if text.has_problem("cluster"):
        return ClusterSpec()
    folder = values.get("local_directory")
    try:
        if folder is not None and values["kind"] == "local":
            values["local_directory"] = str(read_value("local_directory", folder, Path, text.path.parent))
        return ClusterSpec(**values)
    except ParameterError as error:
        named = re.match(r"\w+(?=[=:])", str(error))  # the field, if the message is about one
        text.problem(str(error), "cluster", named[0] if named else "kind")
        return ClusterSpec()
