"""Signals as requests to stop at the next safe point."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

__all__ = ["Interruption", "interruption"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Interruption:
    """Whether a signal has requested a stop, and which one."""

    requested: bool = False
    signal_name: str | None = None
    waits: bool = False

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Context for waiting, for example for input: a signal ends it at once, by KeyboardInterrupt."""
        if self.requested:
            raise KeyboardInterrupt
        self.waits = True
        try:
            yield
        finally:
            self.waits = False


@contextmanager
def interruption(notify: Callable[[str], object] | None = None) -> Iterator[Interruption]:
    """Turn the first SIGINT or SIGTERM of a block into a flag; a SIGINT after it raises KeyboardInterrupt.

    The handlers from before are restored when the block ends. Only the main thread may handle signals: in any other one
    the flag stays False. A SIGINT that the process has ignored since its start, like a background job of a shell
    script, stays ignored.

    Parameters
    ----------
    notify : callable, optional
        Called with the name of the first signal, from the signal handler: it must not wait or print through a
        buffered stream.

    Examples
    --------
    >>> with interruption() as stop:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     stop.requested, stop.signal_name
    (True, 'SIGTERM')
    """
    state = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield state
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if not state.requested:
            state.signal_name = signal.Signals(number).name
            state.requested = True
            if state.waits:
                raise KeyboardInterrupt
            if notify is not None:
                notify(state.signal_name)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt

    heard = [number for number in SIGNALS if number != signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, handle) for number in heard}
    try:
        yield state
    finally:
        for number, handler in previous.items():
            # None is a handler that was not set from Python and cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
