"""Joining a scheduler that runs already, by its address or by the file that it wrote."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from mllkm_scale.base.regular_files import read_regular
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
MOST_BYTES = 10_000_000  # of a scheduler file, which names the workers too


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

    A scheduler file may be of an earlier scheduler, and be written anew meanwhile: it is read before each try.
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
            # Only what the network says may be otherwise at the next try; one of no length says nothing.
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
    """An OSError if nothing at the address speaks as dask does; a client would wait for its greeting for ever."""
    from distributed.comm.core import connect
    from distributed.security import Security as Configured

    async def greet() -> None:
        arguments = (security or Configured()).get_connection_args("client")
        # Half of the time for the connection, whose failure says more than a greeting that does not come.
        comm = await asyncio.wait_for(connect(address, timeout=timeout_s / 2, **arguments), timeout_s)
        comm.abort()

    # In a thread of its own, for the caller may be a notebook, whose thread has a loop that runs.
    with ThreadPoolExecutor(1) as thread:
        try:
            thread.submit(asyncio.run, greet()).result()
        except (TimeoutError, MemoryError):  # silence, or an answer whose first bytes are not the length of a message
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
        except (ValueError, KeyError, TypeError):  # perhaps it is just being written
            problem = "is damaged and holds no address"
        if patience.is_over:
            raise ClusterError(
                f"the scheduler file {file} {problem} after {patience.total_s:.0f} s: start `dask scheduler"
                f" --scheduler-file {file}` where this machine sees the file, and name the same file here"
            )
        time.sleep(min(POLL_S, patience.left_s))
