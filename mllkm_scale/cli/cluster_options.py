"""Options that name a dask cluster: a running one, or worker processes on this machine.

distributed is imported only when a cluster is used, so that help and usage errors are fast.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mllkm_scale.cli.group import Invocation
from mllkm_scale.errors import ParameterError

if TYPE_CHECKING:
    from mllkm_scale.cluster import Client
    from mllkm_scale.run.job.cluster import ClusterSpec

__all__ = [
    "cluster_options",
    "cluster_spec",
    "configured_cluster",
    "given_cluster",
    "in_words",
    "open_cluster",
    "report_option",
]

Command = TypeVar("Command", bound=Callable[..., Any])

FLAGS = {"scheduler": "--scheduler", "scheduler_file": "--scheduler-file", "workers": "--workers"}

report_option = click.option(
    "--performance-report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.html",
    help="Write dask's report on the workers.",
)


def cluster_options(command: Command) -> Command:
    """Give a command --scheduler, --scheduler-file and --workers, of which one may be given."""
    options = (
        click.option("--scheduler", metavar="ADDRESS", help="Running dask scheduler to use, such as tcp://host:8786."),
        click.option(
            "--scheduler-file",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Running dask scheduler to use, given by its scheduler file.",
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=0),
            metavar="N",
            help="Start N dask worker processes on this machine; 0 for no cluster.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def cluster_spec(context: click.Context) -> ClusterSpec | None:
    """The cluster named by the options, or otherwise by the configuration; None if neither names one."""
    return given_cluster(context) or configured_cluster()


def given_cluster(context: click.Context) -> ClusterSpec | None:
    """The cluster named by the options; None if there is none."""
    given = [name for name in FLAGS if context.params.get(name) is not None]
    if not given:
        return None
    if len(given) > 1:
        flags = " and ".join(FLAGS[name] for name in given)
        raise click.UsageError(f"{flags} each name a cluster: give one of them", context)
    try:
        return _spec(given[0], context.params[given[0]])
    except ParameterError as error:
        raise click.BadParameter(str(error), context, param_hint=FLAGS[given[0]]) from None


def configured_cluster() -> ClusterSpec | None:
    """The configured cluster; of several places, the one with the highest precedence."""
    from mllkm_scale.config import in_force

    named = [found for found in in_force(name.replace("_", "-") for name in FLAGS) if found.value is not None]
    strongest = [found for found in named if found.origin == max(other.origin for other in named)]
    if not strongest:
        return None
    if len(strongest) > 1:
        places = " and ".join(f"mllkm.{found.key} ({found.place})" for found in strongest)
        raise ParameterError(f"{places} each name a cluster: keep one of them")
    found = strongest[0]
    try:
        return _spec(found.key.replace("-", "_"), found.value)
    except ParameterError as error:
        raise ParameterError(f"mllkm.{found.key} ({found.place}): {error}") from None


def _spec(name: str, value: Any) -> ClusterSpec:
    from mllkm_scale.run.job.cluster import ClusterSpec

    if name == "scheduler":
        return ClusterSpec(kind="address", address=value)
    if name == "scheduler_file":
        return ClusterSpec(kind="scheduler-file", scheduler_file=Path(value))
    return ClusterSpec(kind="local", workers=value) if value else ClusterSpec()


@contextmanager
def open_cluster(
    spec: ClusterSpec, memory_budget: int, timeout_s: float, context: click.Context, folder: Path | None = None
) -> Iterator[Client]:
    """A client of the cluster; the log of dask is not shown unless --debug is given.

    The log has warnings and tracebacks of lost connections; relevant ones are raised as errors of one line.
    """
    from mllkm_scale.cluster import open_client

    levels: dict[logging.Logger, int] = {}

    def restore() -> None:
        for logger, level in levels.items():
            logger.setLevel(level)

    with ExitStack() as stack:
        stack.callback(restore)  # when the client is closed
        client = stack.enter_context(open_client(spec, memory_budget=memory_budget, timeout_s=timeout_s, folder=folder))
        assert client is not None
        if not context.ensure_object(Invocation).debug:
            for name in ("distributed", "distributed.client"):  # their levels are set when distributed is imported
                levels[logging.getLogger(name)] = logging.getLogger(name).level
                logging.getLogger(name).setLevel(logging.CRITICAL)
        yield client


def in_words(spec: ClusterSpec) -> str:
    """A description of a cluster before it is started: its kind, and its settings that are not defaults."""
    from dataclasses import fields

    settings = [
        f"{field.name} {getattr(spec, field.name)}"
        for field in fields(spec)
        if field.name != "kind" and getattr(spec, field.name) != field.default
    ]
    return ", ".join([spec.kind, *settings])
