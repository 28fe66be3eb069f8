"""Events and records of a training run: a round as an event, waiting times on a cluster, and the last steps.

The last steps evaluate the model and write the report; `Finalizer` is their interface.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from mllkm_scale.base.events import Listener, Round
from mllkm_scale.base.executor import Tally
from mllkm_scale.base.memory import rss_bytes
from mllkm_scale.data import Dataset
from mllkm_scale.data.first_step import FirstStep
from mllkm_scale.mkl.certificate import Certificate
from mllkm_scale.model.evaluation import Evaluation
from mllkm_scale.model.model import Model
from mllkm_scale.run.folder import RunFolder

__all__ = ["Finalizer", "cluster_record", "round_event"]


def round_event(
    before: Sequence[Round],
    certificate: Certificate,
    tally: Tally,
    sizes: tuple[int, int],
    elapsed_s: float,
    tol: float,
) -> Round:
    """The event of a round, given those before it; `sizes` are the open kernels and the bytes of the budget."""
    n_open, budget_bytes = sizes
    round_s = elapsed_s - (before[-1].elapsed_s if before else 0.0)
    event = Round(
        number=len(before) + 1,
        primal=certificate.primal,
        dual=certificate.dual,
        gap=certificate.gap,
        n_active=certificate.n_active,
        n_open=n_open,
        n_support=certificate.n_support,
        n_working=certificate.n_working,
        n_violating_samples=certificate.n_violating_samples,
        n_violating_kernels=certificate.n_violating_kernels,
        inner_gap=certificate.inner_gap,
        inner_steps=certificate.inner_steps,
        solve_s=certificate.solve_s,
        margins_s=certificate.margins_s,
        scan_s=certificate.scan_s,
        kernels_per_s=certificate.n_scanned / max(certificate.scan_s, 1e-9),
        rss_bytes=rss_bytes(),
        budget_bytes=budget_bytes,
        elapsed_s=elapsed_s,
        left_s=None,
        lagged=certificate.lagged,
        waited_s=tally.waited_s,
        n_workers=tally.n_workers,
        workers_idle=_idle_share(tally.busy_s, tally.n_threads * round_s),
        lost_workers=tally.lost_workers,
        likely_gap=certificate.likely_gap if certificate.lagged else None,
    )
    return replace(event, left_s=_time_left([*before, event], tol))


def _idle_share(busy_s: float, available_s: float) -> float | None:
    """Share of the time in which the workers were idle; None without workers.

    >>> _idle_share(busy_s=3.0, available_s=4.0), _idle_share(busy_s=0.0, available_s=0.0)
    (0.25, None)
    """
    return None if available_s <= 0 else min(1.0, max(0.0, 1.0 - busy_s / available_s))


def _time_left(history: Sequence[Round], tol: float) -> float | None:
    """Seconds until the gap is at `tol`, at the rate of the last rounds."""
    last = history[-1]
    if last.gap <= tol:
        return 0.0
    before = history[max(0, len(history) - 4)]
    rounds = last.number - before.number
    if rounds < 1 or not 0 < last.current_gap < before.current_gap:
        return None
    rate = math.log(before.current_gap / last.current_gap) / rounds
    left = max(1.0, math.log(last.current_gap / tol) / rate)  # a likely gap still has to be proved
    return left * (last.elapsed_s - before.elapsed_s) / rounds


def cluster_record(history: Sequence[Round], worker_peak_bytes: int, worker_bytes: int) -> dict[str, Any] | None:
    """Waiting times over all rounds, and measured and planned memory of the workers; None without workers."""
    rounds = [event for event in history if event.n_workers]
    if not rounds:
        return None
    shares = [event.workers_idle for event in rounds if event.workers_idle is not None]
    return {
        "workers": max(event.n_workers for event in rounds),
        "lost_workers": sum(event.lost_workers for event in rounds),
        "master_waited_share": sum(event.waited_s for event in rounds) / max(rounds[-1].elapsed_s, 1e-9),
        "workers_idle_share": sum(shares) / max(1, len(shares)),
        "worker_peak_bytes": worker_peak_bytes,
        "worker_bytes": worker_bytes,
    }


class Finalizer(Protocol):
    """The last steps of a training run; the one that writes a report is in `mllkm_scale.report.finalize`."""

    def data_record(self, dataset: Dataset) -> dict[str, Any]:
        """The entry of run.json about the data."""

    def round_error(self, number: int, machine: Callable[[], Model]) -> float | None:
        """The share of test rows that the machine of a round misclassifies, if it should be measured."""

    def measure(
        self,
        model: Model,
        folder: RunFolder | None,
        listener: Listener,
        n_jobs: int | None = None,
        step: FirstStep | None = None,
    ) -> Evaluation | None:
        """Evaluate the model on the test rows, if there are any; `step` made their features."""

    def draw(self, model: Model, folder: RunFolder | None, listener: Listener) -> None:
        """Write the report, if requested."""
