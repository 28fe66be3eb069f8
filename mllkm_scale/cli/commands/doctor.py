"""`mllkm doctor`: checks a machine before a long training run."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mllkm_scale.cli.cluster_options import configured_cluster
from mllkm_scale.cli.group import debug_option
from mllkm_scale.cli.output import Table, bar, json_option, plain_table, print_json, tell
from mllkm_scale.errors import ParameterError

if TYPE_CHECKING:
    from mllkm_scale.cli.machine_checks import Checkup, Finding
    from mllkm_scale.params import Params
    from mllkm_scale.run.job.cluster import ClusterSpec

__all__ = ["doctor"]


@click.command(short_help="Check the machine for problems.")
@click.option(
    "--data", type=click.Path(path_type=Path), metavar="FILE", help="Also measure the speed of reading this file."
)
@click.option("--scheduler", metavar="ADDRESS", help="Dask scheduler to reach, such as tcp://host:8786.")
@click.option(
    "--scheduler-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Dask scheduler to reach, given by its scheduler file.",
)
@json_option
@debug_option
@click.pass_context
def doctor(
    context: click.Context, data: Path | None, scheduler: str | None, scheduler_file: Path | None, as_json: bool
) -> None:
    """Check cores, memory, BLAS, disks, packages, configuration and the cluster, and suggest remedies for problems.

    The checks take a few seconds and leave no files behind. The exit code is 0 if there is no problem, also with
    warnings.

    \b
    Examples:
      mllkm doctor
      mllkm doctor --data train.h5
      mllkm doctor --scheduler tcp://node1:8786
    """
    from mllkm_scale.cli.machine_checks import examine

    with bar("examining this machine") as progress:
        findings = examine(_checkup(context, data), progress)
    problems = [finding for finding in findings if finding.level == "problem"]
    if as_json:
        print_json({"problems": len(problems), "findings": [vars(finding) for finding in findings]})
    else:
        _show(findings)
    context.exit(1 if problems else 0)


def _checkup(context: click.Context, data: Path | None) -> Checkup:
    from mllkm_scale.base.threads import n_threads
    from mllkm_scale.cli.machine_checks import Checkup

    params = _params()
    return Checkup(
        scratch_dir=Path(params.scratch_dir or tempfile.gettempdir()),
        budget_bytes=params.budget_bytes,
        n_jobs=n_threads(params.n_jobs),
        data=data,
        cluster=_cluster(context),
    )


def _params() -> Params:
    """The configured parameters; a wrong configuration is one of the findings."""
    from mllkm_scale.params import checked, resolve

    try:
        return resolve()
    except ParameterError:
        return checked()


def _cluster(context: click.Context) -> ClusterSpec | None:
    from mllkm_scale.cli.cluster_options import given_cluster

    given = given_cluster(context)
    if given is not None:
        return given
    try:
        return configured_cluster()
    except ParameterError:
        return None


def _show(findings: list[Finding]) -> None:
    table = Table(["", "what", "found"], [[f.level, f.subject, f.in_words] for f in findings])
    counts: dict[str, Any] = {level: sum(f.level == level for f in findings) for level in ("problem", "warning")}
    last = ", ".join(f"{number} {level}{'' if number == 1 else 's'}" for level, number in counts.items())
    tell(lambda: f"{plain_table(table)}\n{last}", lambda: [table, last])
