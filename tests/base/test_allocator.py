"""What is free is given back to the system, where the C library can be asked to."""

from __future__ import annotations

import ctypes
import platform

import numpy as np
import pytest

from mllkm_scale.base.memory import give_back, rss_bytes


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc has malloc_trim, by which memory is given back"
)
def test_memory_that_is_free_within_the_heap_is_given_back():
    arrays = [np.ones(12_000) for _ in range(1000)]  # 96 kB each: below what is mapped by itself
    last = arrays[-1]
    del arrays
    before = rss_bytes()
    give_back()
    assert before - rss_bytes() > 50_000_000
    assert last.all()


def test_another_c_library_is_not_asked(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not give_back()
