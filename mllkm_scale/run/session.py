"""What a training, a path and a stream begin with: a seed that is fixed, listeners, and threads to work with."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from mllkm_scale.base.events import Listener
from mllkm_scale.base.threads import Threads, n_threads, one_blas_thread
from mllkm_scale.params import Params
from mllkm_scale.run.progress.listeners import PlainProgress, broadcast

__all__ = ["listeners_of", "seeded", "working_threads"]


def seeded(params: Params, resumed: Callable[[], int] | None = None) -> Params:
    """The parameters with a seed: the given one, or that of the work that is resumed, or a fresh one.

    >>> seeded(Params(random_state=3)).random_state, seeded(Params(random_state=None), lambda: 7).random_state
    (3, 7)
    """
    if params.random_state is not None:
        return params
    return replace(params, random_state=secrets.randbits(63) if resumed is None else resumed())


def listeners_of(params: Params, listener: Listener | None, record: Listener | None = None) -> Listener:
    """One listener for the caller's, for lines on stderr if the parameters ask for them, and for the record."""
    return broadcast(listener, PlainProgress() if params.verbose else None, record)


@contextmanager
def working_threads(params: Params) -> Iterator[Threads]:
    """The threads of a block, in which BLAS has one for each."""
    with one_blas_thread(), Threads(n_threads(params.n_jobs)) as threads:
        yield threads
