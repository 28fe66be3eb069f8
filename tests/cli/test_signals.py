from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from mllkm_scale.base.interruption import Interruption, interruption


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_only_sets_the_flag(number: signal.Signals) -> None:
    heard: list[str] = []
    with interruption(heard.append) as stop:
        assert not stop.requested
        signal.raise_signal(number)
        assert (stop.requested, stop.signal_name, heard) == (True, number.name, [number.name])


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_ctrl_c_after_the_first_signal_ends_at_once(first: signal.Signals) -> None:
    with interruption() as stop:
        signal.raise_signal(first)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert stop.signal_name == first.name


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_wait_at_once(number: signal.Signals) -> None:
    heard: list[str] = []
    with interruption(heard.append) as stop:
        with pytest.raises(KeyboardInterrupt), stop.waiting():
            signal.raise_signal(number)
        assert (stop.requested, stop.signal_name, stop.waits) == (True, number.name, False)
        with pytest.raises(KeyboardInterrupt), stop.waiting():  # what is asked to stop does not begin to wait
            pytest.fail("it waits")
    assert heard == []  # there is no safe point to wait for, and so nothing to say


def test_between_two_waits_a_signal_only_sets_the_flag() -> None:
    with interruption() as stop:
        with stop.waiting():
            assert stop.waits
        signal.raise_signal(signal.SIGTERM)
        assert stop.requested


def test_a_second_sigterm_changes_nothing() -> None:
    heard: list[str] = []
    with interruption(heard.append) as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    assert stop.requested
    assert heard == ["SIGTERM"]


def test_the_handlers_from_before_come_back_also_after_an_error() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(RuntimeError), interruption():
        raise RuntimeError
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.fixture
def ignored_sigint() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ignored_sigint")
def test_a_sigint_that_is_ignored_from_the_start_stays_ignored() -> None:
    with interruption() as stop:
        signal.raise_signal(signal.SIGINT)
        assert not stop.requested
        with stop.waiting():
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)  # nor is it a second signal that ends at once
        assert stop.signal_name == "SIGTERM"
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_outside_the_main_thread_nothing_is_handled() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[tuple[Interruption, bool]] = []

    def work() -> None:
        with interruption() as stop:
            seen.append((stop, signal.getsignal(signal.SIGINT) is before))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(Interruption(False, None), True)]
