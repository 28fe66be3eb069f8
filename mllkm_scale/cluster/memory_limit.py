"""The memory that a process may take here, as dask knows it: limits of containers and of processes included."""

from __future__ import annotations

__all__ = ["memory_limit"]


def memory_limit() -> int:
    """The least of what the machine has, and of what this process is allowed, in bytes."""
    from distributed import system

    return int(system.memory_limit())
