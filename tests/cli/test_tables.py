"""Results on a terminal are tables; pipes, files and terminals that cannot show them get plain text."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]


def on_a_terminal(*arguments: str | Path, **environment: str) -> str:
    """What a command writes to a terminal of 100 columns."""
    master, slave = pty.openpty()
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM", "COLUMNS")}
    process = subprocess.Popen(
        [sys.executable, "-m", "mllkm_scale", *map(str, arguments)],
        stdout=slave,
        stderr=subprocess.DEVNULL,
        env=env | {"COLUMNS": "100"} | environment,
    )
    os.close(slave)
    written = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # Linux: the other end is closed
            break
        if not part:
            break
        written += part
    os.close(master)
    assert process.wait(timeout=60) == 0
    return written.decode()


def test_a_terminal_gets_a_table_and_a_dumb_one_plain_text(mllkm: Run) -> None:
    plain = mllkm("config").stdout
    assert on_a_terminal("config", TERM="dumb").replace("\r\n", "\n") == plain
    table = on_a_terminal("config", TERM="xterm-256color")
    assert "━" in table or "─" in table
    assert "\x1b[1m" in table
    assert "memory-budget" in table


def test_no_color_leaves_the_table_without_colours() -> None:
    table = on_a_terminal("config", TERM="xterm-256color", NO_COLOR="1")
    assert "─" in table
    assert "\x1b[3" not in table


@pytest.mark.parametrize("command", ["inspect", "evaluate", "plan"])
def test_a_table_tells_what_the_text_tells(
    command: str, mllkm: Run, trained: tuple[Path, Result], wine_h5: Path
) -> None:
    arguments = {
        "inspect": ["inspect", trained[0]],
        "evaluate": ["evaluate", trained[0], wine_h5, "--x", "X_test", "--y", "y_test"],
        "plan": ["plan", wine_h5],
    }[command]
    plain = mllkm(*arguments).stdout
    table = on_a_terminal(*arguments, TERM="xterm", NO_COLOR="1", COLUMNS="200")
    assert "─" in table
    missing = {word for word in plain.split() if word.strip("():,") not in table}
    assert missing == set()


def test_names_that_look_like_markup_are_shown_as_they_are(tmp_path: Path) -> None:
    import h5py

    data = tmp_path / "[red]:on:.h5"
    with h5py.File(data, "w") as file:
        file["X"], file["y"] = [[0.0], [1.0], [2.0], [3.0]], ["[bold]a", "[bold]a", ":dog:", ":dog:"]
    run = tmp_path / "run"
    on_a_terminal(
        "train", data, "--out", run, "--anchors", "all", "--progress", "quiet", "--memory", "1GB", TERM="xterm"
    )
    shown = on_a_terminal("evaluate", run, data, TERM="xterm", NO_COLOR="1", COLUMNS="200")
    assert "[red]:on:.h5" in shown
    assert "[bold]a" in shown
    assert ":dog:" in shown
