from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mllkm_scale.errors import JobFileError
from mllkm_scale.params import Params, resolve
from mllkm_scale.run.job import Job, load_job
from mllkm_scale.run.job.cluster import ClusterSpec
from mllkm_scale.run.job.tables import TABLES
from mllkm_scale.run.job.text import JobText

ROOT = Path(__file__).parents[2]
LEAST = '[data]\npath = "train.h5"\n[output]\nrun = "run"\n'
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a job file, and return its path."""

    def to_file(text: str) -> Path:
        path = tmp_path / "job.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return to_file


@pytest.fixture
def problems(write: Write) -> Callable[[str], list[tuple[int, str]]]:
    """Lines and messages of what is wrong with a job file."""

    def refuse(text: str) -> list[tuple[int, str]]:
        path = write(text)
        with pytest.raises(JobFileError) as caught:
            load_job(path)
        found = [re.fullmatch(re.escape(str(path)) + r":(\d+): (.+)", line) for line in str(caught.value).splitlines()]
        assert None not in found, caught.value
        return [(int(match[1]), match[2]) for match in found if match]

    return refuse


def test_a_job_needs_data_and_a_run_folder_only_and_paths_are_relative_to_its_file(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(LEAST)
    monkeypatch.chdir("/")
    assert load_job(path) == Job(
        path=path,
        data=tmp_path / "train.h5",
        run=tmp_path / "run",
        parameters={},
        cluster=ClusterSpec(),
        text=JobText(path),
        x="X",
        y="y",
        progress="auto",
        performance_report=None,
    )


def test_absolute_paths_and_the_home_folder_stay_where_they_are(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    job = load_job(write('[data]\npath = "/big/train.h5"\n[output]\nrun = "~/run"\n'))
    assert (job.data, job.run) == (Path("/big/train.h5"), Path("/home/me/run"))


def test_every_table_can_be_written_in_any_way_of_toml(write: Write, tmp_path: Path) -> None:
    job = load_job(
        write("""
            data = { path = 'train.h5', x = "images", "y" = 'digits' }
            parameters.C = 10
            parameters."gammas" = [
                0.1,  # narrow
                1,
            ]
            budget.memory = '512MiB'
            budget.scratch = 'scratch'
            [cluster]
            kind = "local"
            workers = 2
            [output]
            run = 'run'
            progress = 'plain'
            performance_report = 'report.html'
        """)
    )
    assert (job.x, job.y, job.progress) == ("images", "digits", "plain")
    assert job.cluster == ClusterSpec(kind="local", workers=2)
    assert job.performance_report == tmp_path / "report.html"
    assert job.parameters == {
        "C": 10.0,
        "gammas": (0.1, 1.0),
        "memory_budget": "512MiB",
        "scratch_dir": str(tmp_path / "scratch"),
    }


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("C = 10", "C", 10.0),
        ('C = "auto"', "C", "auto"),
        ('map = "linear"', "map", "linear"),
        ("componentwise = true", "componentwise", True),
        ('gammas = "auto"', "gammas", "auto"),
        ("gammas = 2", "gammas", (2.0,)),
        ("anchors = 500", "anchors", 500),
        ('anchors = "kmeans:200"', "anchors", "kmeans:200"),
        ('normalize = "none"', "normalize", None),
        ("n_components = 50", "n_components", 50),
        ("n_components = 0.95", "n_components", 0.95),
        ('n_components = "none"', "n_components", None),
        ("max_rounds = 7", "max_rounds", 7),
        ("time_limit = 60", "time_limit", 60.0),
        ('random_state = "none"', "random_state", None),
        ("n_jobs = -1", "n_jobs", -1),
        ('scaling = "none"', "scaling", "none"),
        ('overlap = "never"', "overlap", "never"),
        ("worker_timeout = 60", "worker_timeout", 60.0),
    ],
)
def test_a_value_becomes_that_of_its_parameter(write: Write, line: str, name: str, value: object) -> None:
    found = load_job(write(f"{LEAST}[parameters]\n{line}\n")).parameters
    assert found == {name: value}
    assert type(found[name]) is type(value)


def test_a_job_means_what_the_options_of_the_command_line_mean(write: Write) -> None:
    job = load_job(write(f'{LEAST}[parameters]\npreset = "paper"\nC = 3\n[budget]\nmemory = "1GB"\n'))
    assert resolve(**job.parameters) == resolve("paper", C=3.0, memory_budget="1GB")


def test_every_parameter_has_a_place(write: Write) -> None:
    elsewhere = {"verbose", "memory_budget", "scratch_dir"}
    for spec in fields(Params):
        default = "none" if spec.default is None else spec.default
        shown = str(default).lower() if isinstance(default, bool) else repr(default)
        text = f"{LEAST}[parameters]\n{spec.name} = {shown}\n"
        if spec.name not in elsewhere:
            assert resolve(**load_job(write(text)).parameters) == resolve()


def test_anchors_are_read_from_a_file_beside_the_job(write: Write, tmp_path: Path) -> None:
    np.save(tmp_path / "anchors.npy", np.eye(3))
    job = load_job(write(f'{LEAST}[parameters]\nanchors = "anchors.npy"\n'))
    np.testing.assert_array_equal(job.parameters["anchors"], np.eye(3))


def test_variables_of_the_environment_are_put_in(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLLKM_DATA", "/data")
    monkeypatch.setenv("WHO", "me")
    job = load_job(write('[data]\npath = "${MLLKM_DATA}/a.h5"\n[output]\nrun = "/runs/${WHO}/$WHO"\n'))
    assert (job.data, job.run) == (Path("/data/a.h5"), Path("/runs/me/$WHO"))


def test_a_variable_that_is_not_set_is_named_once_with_its_line(
    problems: Callable[[str], list[tuple[int, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLLKM_NOWHERE", raising=False)
    ((line, message),) = problems(f'{LEAST}[parameters]\nanchors = "${{MLLKM_NOWHERE}}/a.npy"\n')
    assert line == 6
    assert "MLLKM_NOWHERE" in message


def test_a_job_knows_where_its_keys_stand(write: Write) -> None:
    path = write(f'{LEAST}performance_report = "r.html"\n')
    assert load_job(path).where("output", "performance_report") == f"{path}:5"


def test_the_scheduler_file_is_relative_to_the_job(write: Write, tmp_path: Path) -> None:
    job = load_job(write(f'{LEAST}[cluster]\nkind = "scheduler-file"\nscheduler_file = "s.json"\n'))
    assert job.cluster.scheduler_file == tmp_path / "s.json"


def test_the_options_of_slurm_are_texts_and_a_list(write: Write) -> None:
    table = 'kind = "slurm"\nworkers = 8\nwalltime = "04:00:00"\ndirectives = ["--constraint=fast"]\n'
    spec = load_job(write(f"{LEAST}[cluster]\n{table}")).cluster
    assert (spec.kind, spec.workers, spec.directives) == ("slurm", 8, ("--constraint=fast",))


@pytest.mark.parametrize(
    ("table", "line", "part"),
    [
        ("[parameters]\nC = -1", 6, "C=-1.0: give a positive number"),
        ('[parameters]\ntol = "small"', 6, 'tol must be a number, not the text "small"'),
        ('[parameters]\ntol = """a\nb"""', 6, 'not the text "a b"'),
        ("[parameters]\nwhiten = 1", 6, "whiten must be true or false, not the number 1"),
        ("[parameters]\nmax_rounds = 2.5", 6, "max_rounds must be a whole number"),
        ("[parameters]\nmax_rounds = true", 6, "not true"),
        ('[parameters]\nmap = "cubic"', 6, "exponential, gaussian, linear, squared"),
        ("[parameters]\nmap = [1, 2]", 6, "map must be text, not a list"),
        ("[parameters]\ntime_limit = 07:32:00", 6, "not the time 07:32:00"),
        ("[parameters]\nC = {a = 1}", 6, "not a table"),
        ("[parameters]\ngammas = [0.1, -1]", 6, "give positive numbers"),
        ("[parameters]\ngammas = []", 6, "give positive numbers"),
        ('[parameters]\ngammas = [0.1, "b"]', 6, 'gammas[1] must be a number, not the text "b"'),
        ('[parameters]\ngammas = "slim"', 6, "give positive numbers"),
        ("[parameters]\nanchors = 0", 6, "kmeans:200"),
        ('[parameters]\nanchors = "some"', 6, "kmeans:200"),
        ('[parameters]\nanchors = "absent.npy"', 6, "absent.npy does not exist"),
        ("[parameters]\nn_components = 0", 6, "whole number from 1"),
        ("[parameters]\nn_components = nan", 6, "share between 0 and 1"),
        ('[parameters]\npreset = "book"', 6, "choose one of paper"),
        ("[parameters]\nmax_round = 3", 6, "did you mean max_rounds?"),
        ("[parameters]\nc = 3", 6, "did you mean C?"),
        ("[parameters]\ncolour = 3", 6, "known are preset, C, map"),
        ("[parameters]\nseed = 3", 6, "write random_state"),
        ('[parameters]\nmemory_budget = "1GB"', 6, "write memory in [budget]"),
        ("[parameters]\nverbose = 1", 6, "write progress in [output]"),
        ("[parameters]\npath = 1", 6, "write path in [data]"),
        ('[budget]\nmemory = "lots"', 6, "'lots' is not a byte size"),
        ("[budget]\nmemory = 1.5", 6, "memory must be a whole number or text"),
        ('[budget]\nscratch = ""', 6, "scratch is empty"),
        ('[budget]\nscratch = "~no-such-user/x"', 6, "no home folder"),
        ('[budget]\nscratch = "${"', 6, "${NAME}"),
        ("[parameters]\nC = 1" + "0" * 400, 6, "C is too large"),
        ("[parameters]\nmap = 0x" + "f" * 5000, 6, "map is too large"),
        ('[parameters]\nanchors = "' + "9" * 5000 + '"', 6, "anchors: "),
        ('[cluster]\nkind = "scheduler-file"\nscheduler_file = "~no-such-user/x"', 7, "no home folder"),
        ('[cluster]\nworkers = 2\nkind = "cloud"', 7, "none, local, address"),
        ("[cluster]\nworkers = 2", 5, "[cluster] has no kind"),
        ('[cluster]\nkind = "local"', 6, "needs workers"),
        ('[cluster]\nkind = "local"\nworkers = 0', 7, "workers=0"),
        ('[cluster]\nkind = "local"\nworkers = "two"', 7, "workers must be a whole number"),
        ('[cluster]\nkind = "local"\nworkers = 1\naddress = "tcp://a:1"', 8, "address="),
        ('[cluster]\nkind = "address"\naddres = "tcp://a:1"', 7, "did you mean address?"),
        ("[budgets]\nmemory = 1", 5, "unknown table [budgets]: did you mean [budget]?"),
        ("[surprise]\nmemory = 1\nmore = 2", 5, "known are [data], [parameters], [budget], [cluster], [output]"),
        ("[[budget]]\nmemory = 1", 5, "budget must be one table"),
    ],
)
def test_a_problem_is_told_with_its_line_and_a_remedy(
    problems: Callable[[str], list[tuple[int, str]]], table: str, line: int, part: str
) -> None:
    found = problems(f"{LEAST}{table}\n")
    assert [number for number, _ in found] == [line]
    assert part in found[0][1]


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("", 1, "[data] is missing"),
        ('[output]\nrun = "r"', 1, "[data] is missing"),
        ('\n[output]\n[data]\npath = "a.h5"', 2, "[output] has no run"),
        ('[data]\npath = ["a.h5"]\n[output]\nrun = "r"', 2, "path must be text, not a list"),
        ('[data]\npath = "a.h5"\nx = ""\n[output]\nrun = "r"', 3, "x is empty"),
        ('data = 3\n[output]\nrun = "r"', 1, "write [data] on a line of its own"),
        (f"memory = '1GB'\n{LEAST}", 1, "write memory in [budget]"),
        (f"x1 = 1\n{LEAST}", 1, "is outside any table: the tables are"),
        (f'{LEAST}progress = "loud"', 5, "auto, plain, json, quiet"),
        ("[data]\npath = train.h5\n", 2, "put text in quotes"),
        ("[data]\npath = 'a.h5\n", 2, "not TOML"),
        ("[data]\n\npath = '''a.h5\n\n\n", 3, "not TOML"),
        ("[data\npath = 1", 1, "not TOML"),
        ("[data]\npath = \n", 2, "not TOML"),
        ("[data]\npath =", 2, "not TOML"),
        (f'{LEAST}\n\nrun = "again"\n', 7, "output.run is also in line 4: remove one"),
        (f"{LEAST}[data]\n", 5, "data is also in line 1"),
        ("[data]\npath = 'a'\npath.b = 1\n", 3, "not TOML"),
        ("data = {path = 'a', path = 'b'}", 1, "not TOML: duplicate inline table key 'path'"),
    ],
)
def test_what_is_no_toml_missing_or_given_twice_is_told_with_its_line(
    problems: Callable[[str], list[tuple[int, str]]], text: str, line: int, part: str
) -> None:
    found = problems(text)
    assert any(number == line and part in message for number, message in found), found
    assert found == sorted(found)


def test_what_stands_in_strings_and_comments_does_not_move_a_line(
    problems: Callable[[str], list[tuple[int, str]]],
) -> None:
    text = f'{LEAST}[parameters]\n# tol = 1\nmap = """\ntol = 1\n[cluster]\n"""\ntol = -1\n'
    assert [line for line, _ in problems(text)] == [7, 11]


def test_all_problems_are_told_at_once_in_the_order_of_their_lines(
    problems: Callable[[str], list[tuple[int, str]]],
) -> None:
    text = "[output]\nrun = 1\n[parameters]\nC = -1\ntol = -1\ncolour = 1\n[data]\npath = 2\n"
    assert [line for line, _ in problems(text)] == [2, 4, 5, 6, 8]


def test_of_many_problems_the_first_are_told_and_the_others_counted(write: Write) -> None:
    path = write(LEAST + "[parameters]\n" + "".join(f"key{number} = 1\n" for number in range(30)))
    with pytest.raises(JobFileError) as caught:
        load_job(path)
    lines = str(caught.value).splitlines()
    assert len(lines) == 21
    assert lines[-1].endswith("10 more problems: correct these first")


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match=r"absent\.toml: cannot be read .*check the path"):
        load_job(tmp_path / "absent.toml")
    with pytest.raises(JobFileError, match="cannot be read"):
        load_job(tmp_path)
    (tmp_path / "data.h5").write_bytes(b"a = 1\n\x89HDF\xff")
    with pytest.raises(JobFileError, match=r"data\.h5:2: not a text"):
        load_job(tmp_path / "data.h5")


def test_brackets_without_end_are_refused_like_any_other_mistake(write: Write) -> None:
    with pytest.raises(JobFileError, match=r"job\.toml:1: "):
        load_job(write("a = " + "[" * 100_000))


def test_a_byte_order_mark_and_line_ends_of_windows_are_read(write: Write) -> None:
    assert load_job(write("\ufeff" + LEAST.replace("\n", "\r\n"))).x == "X"


@pytest.mark.parametrize("path", sorted((ROOT / "jobs").glob("*.toml")), ids=lambda path: path.name)
def test_the_example_jobs_are_valid(path: Path) -> None:
    job = load_job(path)
    assert job.data.suffix == ".h5"
    assert job.data.parent == path.parent / "data"
    assert job.run == path.parent / "runs" / path.stem


def test_the_template_shows_every_table_and_key_of_a_job() -> None:
    text = (ROOT / "jobs" / "own-data.toml").read_text(encoding="utf-8")
    for table, keys in TABLES.items():
        assert re.search(rf"^\[{table}\]", text, re.MULTILINE)
        missing = [key for key in keys if not re.search(rf"^(# )?{key} = ", text, re.MULTILINE)]
        assert missing == []


def test_the_template_shows_the_defaults_of_the_parameters(write: Write) -> None:
    text = (ROOT / "jobs" / "own-data.toml").read_text(encoding="utf-8")
    table = re.search(r"^\[parameters\].*?(?=^\[)", text, re.MULTILINE | re.DOTALL)
    assert table is not None
    job = load_job(write(LEAST + re.sub(r"^# ", "", table[0], flags=re.MULTILINE)))
    assert len(job.parameters) == len(fields(Params)) - 3
    assert resolve(**job.parameters) == resolve()


def toml_blocks() -> list[Any]:
    page = (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [block for block in blocks if "[data]" in block]


@pytest.mark.parametrize("block", toml_blocks(), ids=lambda block: block.splitlines()[0])
def test_the_jobs_of_the_documentation_are_valid(write: Write, block: str) -> None:
    load_job(write(block))
