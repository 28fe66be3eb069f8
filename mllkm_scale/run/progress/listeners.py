"""What all listeners have in common, the one that shows nothing, and one event for several of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from mllkm_scale.base.events import Event, Listener

__all__ = ["Progress", "Quiet", "broadcast"]


class Progress(ABC):
    """A listener that may hold something open: use it in a `with` block, so that it is closed at the end.

    One that cannot write any more, because the reader of its pipe has left or the disk is full, falls silent:
    progress never ends a training.
    """

    @abstractmethod
    def __call__(self, event: Event) -> None:
        """Show an event."""

    def close(self) -> None:  # noqa: B027 - a listener that holds nothing open has nothing to do
        """Free what is open; further events are not shown."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Quiet(Progress):
    """Shows nothing."""

    def __call__(self, event: Event) -> None:
        """Do nothing."""


def broadcast(*listeners: Listener | None) -> Listener:
    """One listener that passes each event on to all, in order; None is left out.

    >>> from mllkm_scale.base.events import Phase
    >>> heard = []
    >>> broadcast(heard.append, None, heard.append)(Phase("check"))
    >>> [event.name for event in heard]
    ['check', 'check']
    """
    wanted = [listener for listener in listeners if listener is not None]

    def tell(event: Event) -> None:
        for listener in wanted:
            listener(event)

    return tell
