"""A job file: everything of a training on one page of TOML, so that it can be repeated and sent to a batch system.

Paths are relative to the folder of the job file, whatever the folder that the program is started in. All that is
wrong with a file is told at once, with lines; nothing is read here but the file itself and an array of anchors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

from mllkm_scale.cluster.spec import ClusterSpec
from mllkm_scale.errors import MLLKMError, ParameterError
from mllkm_scale.params import PRESETS, Params, checked
from mllkm_scale.run.job_lines import Lines
from mllkm_scale.run.job_names import REQUIRED, TABLES, about_unknown_key, about_unknown_name, about_unknown_table
from mllkm_scale.run.job_text import JobText
from mllkm_scale.run.job_values import image_shape_value, memory_value, one_of, parameter_value, text_value, typed
from mllkm_scale.run.progress import MODES

__all__ = ["Job", "load_job"]

NOT_CONVERTED = (".csv", ".tsv", ".libsvm", ".svmlight", ".svm", ".npz", ".npy", ".idx", ".parquet", ".pq", ".gz")


@dataclass(frozen=True)
class Job:
    """A job that can be run; its paths lead from the working folder.

    Attributes
    ----------
    path, data, run : pathlib.Path
        The job file, the data, and the run folder.
    x, y : str
        Names of the data sets of the samples and the labels.
    test : pathlib.Path or None
        Test rows of a file of their own.
    image_shape : str or None
        Shape of the images that rows are, such as 28x28.
    parameters : dict
        For `resolve` and `train`, a preset included.
    cluster : ClusterSpec
        Where the scans run; its kind is "none" if there is no cluster.
    progress : str
        How the progress is shown.
    report : bool or None
        Whether a report is written; None if the file does not say.
    performance_report : pathlib.Path or None
        File for dask's report; needs a cluster, which may be named elsewhere.
    lines : Lines
        Where in the file what stands.
    """

    path: Path
    data: Path
    run: Path
    x: str
    y: str
    parameters: dict[str, Any]
    cluster: ClusterSpec
    progress: str
    performance_report: Path | None
    test: Path | None = None
    image_shape: str | None = None
    report: bool | None = None
    lines: Lines = field(default_factory=Lines, repr=False, compare=False)

    def tells(self, *path: str) -> bool:
        """Whether the file has a table, or a key of it."""
        return any(found[: len(path)] == path for found in self.lines.lines)

    def where(self, table: str, key: str) -> str:
        """File and line of a key, as messages name them."""
        return f"{self.path}:{self.lines.of(table, key)}"


def load_job(path: str | os.PathLike[str]) -> Job:
    """Read and check a job file.

    Parameters
    ----------
    path : path
        The job file.

    Raises
    ------
    JobFileError
        One line for each problem of the file, as ``job.toml:12: what and remedy``, in the order of the lines.

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
    reader = _Reader(text)
    reader.check_names()
    job = Job(
        path=text.path,
        data=reader.data_file("path") or Path(),
        run=reader.path("output", "run") or Path(),
        x=reader.value("data", "x", text_value, "X"),
        y=reader.value("data", "y", text_value, "y"),
        parameters=reader.parameters() | reader.budget(),
        cluster=reader.cluster(),
        progress=reader.value("output", "progress", partial(one_of, MODES), "auto"),
        performance_report=reader.path("output", "performance_report"),
        test=reader.data_file("test"),
        image_shape=reader.value("data", "image_shape", image_shape_value),
        report=reader.value("output", "report", partial(typed, bool)),
        lines=text.lines,
    )
    text.require_none()
    return job


class _Reader:
    """Takes the values of a job file one by one; what is wrong is noted, and None or the default stands for it."""

    def __init__(self, text: JobText) -> None:
        self.text = text
        tables = {name: text.tables.get(name, {}) for name in TABLES}
        self.tables: dict[str, dict[str, Any]] = {
            name: table if isinstance(table, dict) else {} for name, table in tables.items()
        }

    def check_names(self) -> None:
        """Note tables and keys that are not known, and those that are missing."""
        for table, found in self.text.tables.items():
            if not isinstance(found, dict):
                self.text.problem(about_unknown_name(table), table)
            elif table not in TABLES:
                self.text.problem(about_unknown_table(table), table)
        for table, keys in self.tables.items():
            for key in keys:
                if key not in TABLES[table]:
                    self.text.problem(about_unknown_key(table, key), table, key)
        for table, key in REQUIRED:
            if table not in self.text.tables:
                self.text.problem(f"the table [{table}] is missing: write [{table}], and below it {key} = ...", table)
            elif key not in self.tables[table]:
                self.text.problem(f"[{table}] has no {key}: add {key} = ...", table, key)

    def value(self, table: str, key: str, check: Callable[[str, Any], Any], default: Any = None) -> Any:
        """A value that `check` has made of what is given."""
        if key not in self.tables[table] or self.text.has_problem(table, key):
            return default
        try:
            return check(key, self.tables[table][key])
        except MLLKMError as error:
            self.text.problem(str(error), table, key)
            return default

    def path(self, table: str, key: str) -> Path | None:
        """Where a path of the job file leads."""
        return self.value(table, key, lambda name, value: self.place(text_value(name, value)))

    def place(self, path: str) -> Path:
        try:
            return self.text.path.parent / Path(path).expanduser()
        except RuntimeError:
            raise ParameterError(f"{path}: there is no home folder of that name: write the whole path") from None

    def data_file(self, key: str) -> Path | None:
        path = self.path("data", key)
        if path is not None and path.name.lower().endswith(NOT_CONVERTED) and not path.is_dir():
            remedy = f"convert it first: mllkm convert {path} {path.name.partition('.')[0]}.h5"
            self.text.problem(f"{path.name} is neither HDF5 nor zarr: {remedy}", "data", key)
        return path

    def parameters(self) -> dict[str, Any]:
        given = {}
        for name, hint in get_type_hints(Params).items():
            if name in TABLES["parameters"] and name in self.tables["parameters"]:
                given[name] = self.value("parameters", name, partial(parameter_value, hint, self.place))
        preset = self.value("parameters", "preset", _preset)
        if not self.text.has_problem("parameters"):
            try:
                checked(preset, **given)
            except ParameterError as error:
                self.text.problem(str(error), "parameters")
        return given if preset is None else {"preset": preset} | given

    def budget(self) -> dict[str, Any]:
        memory, scratch = self.value("budget", "memory", memory_value), self.path("budget", "scratch")
        return ({} if memory is None else {"memory_budget": memory}) | (
            {} if scratch is None else {"scratch_dir": str(scratch)}
        )

    def cluster(self) -> ClusterSpec:
        given = self.tables["cluster"]
        values = {
            name: self.value("cluster", name, partial(typed, hint))
            for name, hint in get_type_hints(ClusterSpec).items()
            if name in given
        }
        if given and "kind" not in given:
            self.text.problem('[cluster] has no kind: add kind = "local", for example', "cluster", "kind")
        if self.text.has_problem("cluster"):
            return ClusterSpec()
        if values.get("scheduler_file") is not None:
            values["scheduler_file"] = self.place(values["scheduler_file"])
        if values.get("local_directory") is not None and values["kind"] == "local":
            values["local_directory"] = str(self.place(values["local_directory"]))
        try:
            return ClusterSpec(**values)
        except ParameterError as error:
            named = re.match(r"\w+(?=[=:])", str(error))  # the field, if it is about one that is given
            self.text.problem(str(error), "cluster", named[0] if named else "kind")
            return ClusterSpec()


def _preset(key: str, value: Any) -> str | None:
    return None if value == "none" else one_of(tuple(PRESETS), key, value)
