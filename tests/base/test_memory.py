from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mllkm_scale.base import memory
from mllkm_scale.base.memory import peak_bytes, rss_bytes

BLOCK_BYTES = 64 * 2**20


def touch_a_block() -> None:
    np.ones(BLOCK_BYTES // 8).sum()


def test_resident_memory_grows_by_what_is_touched_and_held() -> None:
    memory.give_back()  # or a block that other tests have freed may be touched again
    before = rss_bytes()
    block = np.ones(BLOCK_BYTES // 8)
    assert rss_bytes() - before > 0.9 * BLOCK_BYTES
    del block


def test_peak_includes_memory_that_was_given_back() -> None:
    before = rss_bytes()
    touch_a_block()
    assert peak_bytes() > before + 0.9 * BLOCK_BYTES


def test_peak_comes_from_getrusage_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from_proc = peak_bytes()
    monkeypatch.setattr(memory, "STATUS", tmp_path / "absent")
    assert peak_bytes() == pytest.approx(from_proc, rel=0.5)


@pytest.mark.parametrize("text", ["", "VmHWM:\n", "VmHWM: many kB\n", "Name: x\n"])
def test_a_status_file_without_the_mark_is_no_mark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    status = tmp_path / "status"
    status.write_text(text)
    monkeypatch.setattr(memory, "STATUS", status)
    assert memory._from_status() is None
