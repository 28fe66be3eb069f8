"""Cores and memory: what the machine has, and what this process may take of it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psutil

from mllkm_scale.cluster.memory_limit import memory_limit
from mllkm_scale.doctor.findings import Finding
from mllkm_scale.team import n_threads
from mllkm_scale.units import format_bytes

__all__ = ["SUGGESTED_SHARE", "check_cores", "check_memory", "usable_bytes"]

SUGGESTED_SHARE = 0.7
"""Of the memory that can be had now: the rest is for the system, its cache of files, and what others start."""

_STEP_BYTES = 10**8


def check_cores(n_jobs: int) -> Iterator[Finding]:
    """Cores of the machine, those that this process may use, and the threads that it would use."""
    from dask.system import cpu_count

    there, ours, threads = os.cpu_count() or 1, n_threads(-1), n_threads(n_jobs)
    allowed = min(cpu_count(), ours)  # dask knows the limits of containers, too
    parts = [f"{there} in the machine"]
    if ours < there:
        parts.append(f"{ours} for this process by its affinity")
    if allowed < ours:
        parts.append(f"{allowed} by the limit of its container")
    text = ", ".join([*parts, f"{threads} threads in a training"])
    if threads > allowed:
        yield Finding("cores", "warning", text, f"more only wait for each other; set n-jobs to {allowed}")
    else:
        yield Finding("cores", "ok", text)


def usable_bytes() -> int:
    """Memory that this process can have now: what is available, within the limits of container and process."""
    return min(int(psutil.virtual_memory().available), memory_limit())


def check_memory(budget_bytes: int) -> Iterator[Finding]:
    """Memory that there is, that can be had, and the budget that it suggests."""
    memory, limit = psutil.virtual_memory(), memory_limit()
    parts = [format_bytes(memory.total), f"{format_bytes(memory.available)} available"]
    if limit < memory.total:
        parts.append(f"limited to {format_bytes(limit)}")
    text, usable = ", ".join(parts), usable_bytes()
    suggested = format_bytes(max(_STEP_BYTES, int(SUGGESTED_SHARE * usable) // _STEP_BYTES * _STEP_BYTES))
    budget = format_bytes(budget_bytes)
    if budget_bytes > limit:
        remedy = f"the system would end a training that uses it; set memory-budget to {suggested} or less"
        yield Finding("memory", "problem", f"{text}, but the memory budget is {budget}", remedy)
    elif budget_bytes > usable:
        remedy = f"end other programs, or set memory-budget to {suggested} or less"
        yield Finding("memory", "warning", f"{text}, but the memory budget is {budget}", remedy)
    else:
        yield Finding("memory", "ok", f"{text}; the memory budget is {budget}, and could be {suggested}")
