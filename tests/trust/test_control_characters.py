"""Text of files and data never reaches a terminal, a log or code as it is."""

from __future__ import annotations

import ast
import logging
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale import Dataset, train
from mllkm_scale.base.events import Notice, Phase
from mllkm_scale.base.wording import describe
from mllkm_scale.errors import DataError, JobFileError
from mllkm_scale.export.c_text import c_comment
from mllkm_scale.printable import printable
from mllkm_scale.run.history import LOGGER, log_to

HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\u202e\u2028"
PACKAGE = Path(__file__).parents[2] / "mllkm_scale"


@pytest.fixture(scope="module")
def hostile_data(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    labels = np.where(X[:, 0] > 0, f"same{HOSTILE}", f"other\n{HOSTILE}")
    path = tmp_path_factory.mktemp("data") / f"a{HOSTILE.replace('/', '')}.h5"
    with h5py.File(path, "w") as file:
        file["X"], file["y"] = X, np.char.encode(labels, "utf-8")
        file["feature_names"] = np.char.encode([f"one{HOSTILE}", "two"], "utf-8")
    return path


def is_plain(text):
    return all(c.isprintable() or c in "\n\t" for c in text)


@given(st.text())
def test_what_is_printable_stays_and_all_else_is_escaped(text):
    shown = printable(text)
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2028\u2066" for c in shown)
    assert shown == text or not text.isprintable()
    assert printable(text, longest=5).count("x") <= len(text)


def test_no_command_prints_a_control_character(hostile_data, tmp_path, mllkm):
    run = tmp_path / "run"
    options = ["--anchors", "all", "--jobs", "1", "--max-rounds", "2"]
    outputs = [
        mllkm("plan", hostile_data),
        mllkm("train", hostile_data, "--out", run, "--test", hostile_data, "--progress", "plain", *options),
        mllkm("inspect", run),
        mllkm("evaluate", run, hostile_data),
        mllkm("predict", run, hostile_data, "--out", tmp_path / "p.h5"),
        mllkm("explain", run, hostile_data, "--rows", "0:2"),
        mllkm("inspect", tmp_path / f"absent{HOSTILE}"),
        mllkm("report", run),
    ]
    for result in outputs:
        assert is_plain(result.output), result.output
        assert is_plain(result.stderr), result.stderr
    assert [result.exit_code for result in outputs] == [0, 0, 0, 0, 0, 0, 5, 0]
    assert is_plain((run / "run.log").read_text())
    assert is_plain((run / "report.html").read_text())


def test_a_terminal_is_shown_no_control_character_of_a_name(tmp_path):
    """Bars and tables are drawn on terminals alone."""
    source = tmp_path / f"a{HOSTILE.replace('/', '')}.csv"
    source.write_text("a,b,kind\n1,2,x\n3,4,y\n")
    shown, side = pty.openpty()
    command = [sys.executable, "-m", "mllkm_scale", "convert", source, tmp_path / "converted.h5"]
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "200"}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=side, stderr=side, env=environment)
    os.close(side)
    output = b""
    with suppress(OSError):  # what a terminal says at its end
        while piece := os.read(shown, 65536):
            output += piece
    os.close(shown)
    assert process.wait(timeout=60) == 0, output
    assert rb"converting a\x1b]0;owned\x07" in output
    assert not any(part in output for part in (b"\x1b]0", b"\x07", b"\x1b[2J", "\u202e".encode(), "\u2028".encode()))


def test_commands_print_by_one_function_alone():
    for file in sorted(PACKAGE.glob("cli/**/*.py")):
        calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
        prints = [ast.unparse(call.func) for call in calls if ast.unparse(call.func) in ("click.echo", "print")]
        assert len(prints) == (file.name in ("group.py", "completion.py")), file.name


def test_errors_events_and_logs_are_plain(tmp_path):
    assert is_plain(str(DataError(f"{HOSTILE}: mend it\n")))
    assert "\n" not in str(DataError("a\nb"))
    assert str(JobFileError(f"a:1: x{HOSTILE}\nb:2: y")).count("\n") == 1
    for event in (Notice(HOSTILE), Phase("check", f"a\n{HOSTILE}")):
        assert describe(event).isprintable()
    with log_to(tmp_path / "run.log"):
        LOGGER.log(logging.INFO, "%s", HOSTILE)
    assert is_plain((tmp_path / "run.log").read_text())


@given(st.lists(st.text(alphabet="ab*/\\?\n '\"\r\x00é", max_size=8), max_size=4))
def test_a_comment_ends_where_it_should(lines):
    comment = c_comment(lines)
    assert comment.startswith("/*\n")
    assert comment.endswith("\n */\n")
    assert comment.count("*/") == comment.count("/*") == 1
    assert not set(comment) & set("\\?\r\x00")


def test_no_text_of_a_model_reaches_the_code_of_a_header(tmp_path, gcc, hostile_model):
    header = hostile_model.export(tmp_path / "model.h")
    source = tmp_path / "use.c"
    source.write_text(f'#include "{header.name}"\nint main(void) {{ return 0; }}\n')
    command = [gcc, "-std=c99", "-trigraphs", "-Wall", "-Wcomment", "-Werror", "-Wno-unused-function", "-c"]
    subprocess.run([*command, source, "-o", tmp_path / "use.o"], check=True, timeout=60, cwd=tmp_path)
    assert "injected" not in header.read_text().partition("*/")[2]


@pytest.fixture
def gcc():
    import shutil

    found = shutil.which("gcc")
    if found is None:
        pytest.skip("no gcc")
    return found


@pytest.fixture
def hostile_model(small_data):
    """A model whose record was given a status that would close a comment."""
    from dataclasses import replace

    from mllkm_scale.export.c_file import export_c
    from mllkm_scale.model import Model

    with Dataset.open(small_data) as data:
        model = train(data, anchors="all", max_rounds=1, n_jobs=1).model
    record = replace(model.certificate, status="done *\\\n/ int injected; /*")
    fields = {name: getattr(model, name) for name in model.__getstate__()}
    made = Model(**fields | {"certificate": record})

    class Exported:
        def export(self, path):
            export_c(made, path)
            return path

    return Exported()
