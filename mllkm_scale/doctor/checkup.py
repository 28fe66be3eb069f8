"""All checks, one after the other; one that fails is a finding, and the others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mllkm_scale.doctor.cluster import check_cluster
from mllkm_scale.doctor.disks import check_data, check_folders
from mllkm_scale.doctor.findings import Finding
from mllkm_scale.doctor.machine import check_cores, check_memory
from mllkm_scale.doctor.software import check_configuration, check_extras, check_numba_cache, check_versions
from mllkm_scale.doctor.threads import check_blas, check_products

if TYPE_CHECKING:
    from mllkm_scale.cluster.spec import ClusterSpec

__all__ = ["Checkup", "examine"]

Check = Callable[[], Iterable[Finding]]


@dataclass(frozen=True)
class Checkup:
    """What to look at beside the machine itself.

    Attributes
    ----------
    scratch_dir : path
        Folder of temporary files.
    budget_bytes : int
        Memory that a training may take.
    n_jobs : int
        Threads that a training is told to use.
    data : path, optional
        File whose reading is to be timed.
    cluster : ClusterSpec, optional
        Cluster that is to be reached.
    timeout_s : float
        How long the cluster may take to answer.
    """

    scratch_dir: Path
    budget_bytes: int
    n_jobs: int
    data: Path | None = None
    cluster: ClusterSpec | None = None
    timeout_s: float = 3.0

    def checks(self) -> dict[str, Check]:
        """Every check by its subject."""
        found: dict[str, Check] = {
            "versions": check_versions,
            "cores": partial(check_cores, self.n_jobs),
            "memory": partial(check_memory, self.budget_bytes),
            "BLAS": check_blas,
            "products": check_products,
            "compiled code": check_numba_cache,
            "disk": partial(check_folders, self.scratch_dir, self.budget_bytes),
            "extras": check_extras,
            "configuration": check_configuration,
        }
        if self.data is not None:
            found["data"] = partial(check_data, self.data)
        if self.cluster is not None:
            found["cluster"] = partial(check_cluster, self.cluster, self.timeout_s)
        return found


def examine(checkup: Checkup, progress: Callable[[int, int], None] | None = None) -> list[Finding]:
    """Make all checks.

    Parameters
    ----------
    checkup : Checkup
    progress : callable, optional
        Called as ``progress(done, total)`` after each check.

    Examples
    --------
    >>> import tempfile
    >>> findings = examine(Checkup(Path(tempfile.gettempdir()), 10**9, n_jobs=1))
    >>> {finding.level for finding in findings} <= {"ok", "warning", "problem"}
    True
    """
    findings: list[Finding] = []
    checks = checkup.checks()
    for number, (subject, check) in enumerate(checks.items(), 1):
        try:
            findings += check()
        except Exception as error:  # the doctor is for machines on which something is broken
            why = " ".join(f"{type(error).__name__}: {error}".split())
            findings.append(Finding(subject, "problem", f"cannot be looked at ({why})", "mend what it names first"))
        if progress is not None:
            progress(number, len(checks))
    return findings
