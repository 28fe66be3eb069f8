"""Completion: what a shell is offered, and that bash really completes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from click.testing import Result

from mllkm_scale.cli import cli

Run = Callable[..., Result]


def offered(*words: str) -> list[tuple[str, str]]:
    """Kind and value of what is offered for the last word."""
    *before, begun = words
    completion = BashComplete(cli, {}, "mllkm", "_MLLKM_COMPLETE")
    return [(item.type, item.value) for item in completion.get_completions(before, begun)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tra"], [("plain", "train")]),
        (["train", "--worker-t"], [("plain", "--worker-timeout")]),
        (["train", "--map", "l"], [("plain", "linear")]),
        (["train", "--C", ""], [("plain", "auto")]),
        (["train", "--anchors", "a"], [("plain", "auto"), ("plain", "all")]),
        (["train", "--anchors", "centres"], [("file", "centres")]),
        (["train", "--scratch-dir", "sc"], [("dir", "sc")]),
        (["train", ""], [("file", "")]),
        (["evaluate", "run"], [("file", "run")]),
        (["fetch", "uspz"], []),
        (["fetch", "usp"], [("plain", "usps")]),
        (["completion", "z"], [("plain", "zsh")]),
    ],
)
def test_a_word_that_was_begun_is_completed(words: list[str], expected: list[tuple[str, str]]) -> None:
    assert offered(*words) == expected


def test_what_is_configured_badly_does_not_stop_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    import dask.config

    with dask.config.set({"mllkm.progress": "loud"}):
        assert ("plain", "json") in offered("train", "--progress", "")


@pytest.mark.parametrize(("shell", "sign"), [("bash", "complete -o"), ("zsh", "#compdef mllkm"), ("fish", "complete ")])
def test_the_script_of_each_shell_is_printed(mllkm: Run, shell: str, sign: str) -> None:
    result = mllkm("completion", shell)
    assert result.exit_code == 0
    assert sign in result.stdout
    assert result.stderr == ""


def test_another_shell_is_a_usage_error(mllkm: Run) -> None:
    result = mllkm("completion", "csh")
    assert result.exit_code == 2
    assert "bash" in result.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(mllkm: Run, tmp_path: Path) -> None:
    program = tmp_path / "mllkm"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from mllkm_scale.cli import main; main()" "$@"\n')
    program.chmod(0o755)
    script = tmp_path / "completion.bash"
    script.write_text(mllkm("completion", "bash").stdout)
    ask = (
        f"source {script}; complete -p mllkm; COMP_WORDS=(mllkm insp); COMP_CWORD=1;"
        ' _mllkm_completion mllkm; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", ask],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == ["complete -o nosort -F _mllkm_completion mllkm", "inspect"], done.stderr
