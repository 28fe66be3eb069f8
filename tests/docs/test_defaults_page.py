"""The jobs on tables: what they compute over tables, and how docs/defaults.md is filled from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "jobs" / "bench"
PAGE = ROOT / "docs" / "defaults.md"
METHODS = ["mllkm", "svc", "lightgbm"]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module jobs/bench/tables.py."""
    monkeypatch.syspath_prepend(BENCH)
    import tables

    return tables


def measured(job: ModuleType, *errors: tuple[float, ...], train_s: float = 2.0) -> dict[str, Any]:
    """The row of a table, from the errors of each method on its splits; a negative one is a fit that failed."""
    methods = {
        name: job.condensed(
            [{"failed": "no"} if error < 0 else {"error": error, "train_s": train_s / (place + 1)} for error in found]
        )
        for place, (name, found) in enumerate(zip(METHODS, errors, strict=True))
    }
    return {"rows": 100, "features": 4, "classes": 2, "splits": len(errors[0]), "methods": methods}


def test_a_table_with_a_failed_fit_counts_in_no_mean(job: ModuleType) -> None:
    tables = {
        "easy": measured(job, (0.1, 0.1), (0.3, 0.2), (0.3, 0.4)),
        "hard": measured(job, (0.5, 0.3), (0.2, 0.2), (0.45, 0.45)),
        "broken": measured(job, (0.5, -1.0), (0.2, 0.2), (0.2, 0.2)),
        "absent": {"missing": "cannot be read"},
    }
    found = job.summary(tables, METHODS)
    assert (found["tables"], found["left_out"]) == (2, ["broken", "absent"])
    assert found["mean_error"] == pytest.approx({"mllkm": 0.25, "svc": 0.225, "lightgbm": 0.4})
    assert found["mean_rank"] == {"mllkm": 1.5, "svc": 1.5, "lightgbm": 3.0}
    assert found["train_s"] == pytest.approx({"mllkm": 4.0, "svc": 2.0, "lightgbm": 4.0 / 3.0})
    assert found["times_svc"]["mllkm"] == pytest.approx(2.0)
    assert [found["against"]["svc"][name] for name in ("wins", "ties", "losses")] == [1, 0, 1]


def test_only_differences_beyond_the_noise_of_the_splits_are_significant(job: ModuleType) -> None:
    clear = measured(job, (0.10, 0.11, 0.10), (0.30, 0.31, 0.301), (0.10, 0.11, 0.10))["methods"]
    assert job.duel([(clear["mllkm"], clear["svc"])])["clear_wins"] == 1
    assert job.duel([(clear["svc"], clear["mllkm"])])["clear_losses"] == 1
    assert job.duel([(clear["mllkm"], clear["lightgbm"])])["ties"] == 1
    noisy = measured(job, (0.1, 0.4, 0.1), (0.3, 0.1, 0.3), (0.1, 0.1, 0.1))["methods"]
    counts = job.duel([(noisy["mllkm"], noisy["svc"])])
    assert (counts["wins"], counts["clear_wins"], counts["clear_losses"]) == (1, 0, 0)


def test_a_fit_that_fails_is_a_record(job: ModuleType) -> None:
    def broken(_: int) -> Any:
        raise MemoryError("too\nlarge")

    X = job.np.zeros((4, 2))
    assert job.fit(broken, X, X[:, 0], X, X[:, 0]) == {"failed": "MemoryError: too large"}


def test_parameters_are_json_or_text(job: ModuleType) -> None:
    given = ["C=2.5", "gammas=[0.5, 1]", "map=exponential", "n_components=null", "componentwise=true"]
    values = {"C": 2.5, "gammas": [0.5, 1], "map": "exponential", "n_components": None, "componentwise": True}
    assert dict(job.parameter(text) for text in given) == values
    with pytest.raises(ValueError, match="NAME=VALUE"):
        job.parameter("C")


def test_results_fill_the_page(job: ModuleType, tmp_path: Path) -> None:
    tables = {
        "easy": measured(job, (0.1, 0.1), (0.3, 0.2), (0.3, 0.4)),
        "broken": measured(job, (0.5, -1.0), (0.2, 0.2), (-1.0, -1.0)),
        "absent": {"missing": "cannot be read"},
    }
    result = {"setting": {"methods": METHODS}, "params": {}, "missing": {}, "tables": tables}
    machine = {"test_error_percent": 3.5, "train_s": 30.0, "predict_us_a_row": 5.0, "size": "400 kernels"}
    (tmp_path / "tables.json").write_text(json.dumps(result | {"summary": job.summary(tables, METHODS)}))
    (tmp_path / "letter.json").write_text(json.dumps({"machines": {"mllkm": machine}}))
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, str(BENCH / "defaults_page.py"), "--results", str(tmp_path), "--page", str(page)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    lines = page.read_text(encoding="utf-8").splitlines()
    assert "| easy | 100 | 4 | 2 | **10.00** ± 0.00 | 25.00 ± 5.00 | 35.00 ± 5.00 | 2 s | 1 s | 0.67 s |  |" in lines
    broken = next(line for line in lines if line.startswith("| broken |"))
    assert "| failed on 1 of 2 splits | **20.00** ± 0.00 | failed on 2 of 2 splits |" in broken
    assert len({line.count("|") for line in lines if line.startswith(("| easy", "| broken", "| absent"))}) == 1
    assert "| MLLKM | 3.50 % | 30 s | 5 us | 400 kernels |" in lines
    assert subprocess.run([*command, "--check"], check=False, capture_output=True, timeout=60).returncode == 0
