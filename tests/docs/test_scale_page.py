"""The tables of docs/scale.md are those of the jobs: marks, and how they are filled."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "jobs" / "bench"
PAGE = ROOT / "docs" / "scale.md"
RESULT = {
    "rows": [
        {"features": 50, "classes": 1, "threads": 2, "scan_gflop_a_s": 70.4, "matmul_gflop_a_s": 100.0, "share": 0.704}
    ],
}


def scale_page(results: Path, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / "scale_page.py"), "--results", str(results), "--page", str(page), *options]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_every_section_has_figures_and_a_job(tmp_path: Path) -> None:
    tables = dict(re.findall(r"<!-- (\w+) -->\n(.*?)<!-- /\1 -->", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    for name, text in tables.items():
        assert len(re.findall(r"^\| ", text, re.MULTILINE)) >= 3, f"{name} has no figures"
        assert (BENCH / f"{name}.py").exists() or (BENCH.parent / f"{name}.py").exists()
    known = scale_page(tmp_path, PAGE, "--check")
    assert known.returncode == 0
    assert re.findall(r"^(\w+): no ", known.stdout, re.MULTILINE) == list(tables)


def test_a_result_fills_its_table_and_no_other(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- scan_rate -->\nold\n<!-- /scan_rate -->\nb\n<!-- mnist -->\nkept\n<!-- /mnist -->\n")
    (tmp_path / "scan_rate.json").write_text(json.dumps(RESULT))
    differs = scale_page(tmp_path, page, "--check")
    assert (differs.returncode, differs.stderr) == (1, f"{page} has other figures\n")
    assert "old" in page.read_text()
    assert scale_page(tmp_path, page).returncode == 0
    text = page.read_text()
    assert "| 50 | 1 | 2 | 70 GFLOP/s | 100 GFLOP/s | 70 % |\n" in text
    assert "old" not in text
    assert text.endswith("b\n<!-- mnist -->\nkept\n<!-- /mnist -->\n")
    assert scale_page(tmp_path, page, "--check").returncode == 0


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no marks")
    (tmp_path / "scan_rate.json").write_text(json.dumps(RESULT))
    refused = scale_page(tmp_path, page)
    assert refused.returncode == 1
    assert "has no <!-- scan_rate -->" in refused.stderr
    assert page.read_text() == "no marks"
