"""Joining a running scheduler, by its address or by its scheduler file."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from mllkm_scale.base.files.regular import read_regular
from mllkm_scale.base.schemas import parse_json
from mllkm_scale.cluster.certificates import security_beside
from mllkm_scale.cluster.settings import POLL_S, Patience, close, reason, silence, wait_for_a_worker
from mllkm_scale.errors import ClusterError
from mllkm_scale.run.job.cluster import ClusterSpec

if TYPE_CHECKING:
    from distributed import Client
    from distributed.security import Security

__all__ = ["join"]

TRY_S = 10.0
MOST_BYTES = 10_000_000  # of a scheduler file, which also lists the workers


def join(spec: ClusterSpec, patience: Patience, opened: ExitStack) -> Client:
    client, address = _connect(spec, patience)
    opened.callback(close, client)
    wait_for_a_worker(
        client,
        patience,
        f"the scheduler {address} has no worker after {patience.total_s:.0f} s: start some with `dask worker"
        f" {address}`, and look at their output",
    )
    return client


def _connect(spec: ClusterSpec, patience: Patience) -> tuple[Client, str]:
    """A client, and the address of its scheduler.

    A scheduler file may be from an earlier scheduler, and be replaced meanwhile, so it is read before each attempt.
    """
    from distributed import Client

    file = spec.scheduler_file
    while True:
        address = _address_in(file, patience) if file is not None else str(spec.address)
        security = security_beside(file) if file is not None and address.startswith("tls://") else None
        try_s = min(patience.left_s, TRY_S)
        try:
            with silence():
                _require_answer(address, try_s, security)
                return Client(address, timeout=try_s, security=security), address
        except (OSError, ImportError, RuntimeError, TypeError, ValueError) as error:
            # Only network errors may disappear at the next attempt.
            tired = patience.left_s < 1.0
            if isinstance(error, OSError) and not tired:
                time.sleep(POLL_S)
                continue
            after = f" after {patience.total_s:.0f} s" if tired else ""
            raise ClusterError(
                f"the scheduler {address}{f' of {file}' if file else ''} is not reached{after} ({reason(error)}): see"
                " that it runs and that this machine may connect to it"
                + (", or remove the file if it is of an earlier one" if file else "")
            ) from error


def _require_answer(address: str, timeout_s: float, security: Security | None) -> None:
    """Raise an OSError if no dask process answers at the address; a client would wait for its greeting forever."""
    from distributed.comm.core import connect
    from distributed.security import Security as Configured

    async def greet() -> None:
        arguments = (security or Configured()).get_connection_args("client")
        # Half of the time is for the connection, whose failure is more informative than a missing greeting.
        comm = await asyncio.wait_for(connect(address, timeout=timeout_s / 2, **arguments), timeout_s)
        comm.abort()

    # In a separate thread, because the thread of a notebook has a running event loop.
    with ThreadPoolExecutor(1) as thread:
        try:
            thread.submit(asyncio.run, greet()).result()
        except (TimeoutError, MemoryError):  # no answer, or one that does not begin with the length of a message
            raise ConnectionError("what listens there does not answer as dask does") from None


def _address_in(file: Path, patience: Patience) -> str:
    """The address in a scheduler file, once there is one."""
    while True:
        try:
            found = parse_json(read_regular(file, ClusterError, MOST_BYTES))
            return str(found["address"])
        except FileNotFoundError:
            problem = "has not appeared"
        except OSError as error:
            problem = f"cannot be read ({error.strerror})"
        except (ValueError, KeyError, TypeError):  # it may be incomplete because it is being written
            problem = "is damaged and holds no address"
        if patience.is_over:
            raise ClusterError(
                f"the scheduler file {file} {problem} after {patience.total_s:.0f} s: start `dask scheduler"
                f" --scheduler-file {file}` where this machine sees the file, and name the same file here"
            )
        time.sleep(min(POLL_S, patience.left_s))
