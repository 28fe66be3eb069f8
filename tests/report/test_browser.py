"""Pages in a real browser: every image is there, nothing is wider than a phone, nothing is loaded from elsewhere."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
WIDTHS = (360, 1200)
LOOK = """
const found = [];
window.onload = () => {
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, root = page.documentElement;
    const images = [...page.images];
    found.push({
      name: frame.title,
      width: root.clientWidth,
      overflow: root.scrollWidth - root.clientWidth,
      images: images.length,
      broken: images.filter((image) => !image.complete || image.naturalWidth < 20 || image.width < 100).length,
      loaded: frame.contentWindow.performance.getEntriesByType("resource").map((entry) => entry.name)
        .filter((name) => !name.startsWith("data:")),
      headings: page.querySelectorAll("h1, h2").length,
    });
  }
  document.getElementById("found").textContent = JSON.stringify(found);
};
"""


@pytest.fixture(scope="module")
def seen(digits_run, additive_run, stream_run, comparison, tmp_path_factory):
    """What a browser has to say of each page at each width; it is started once."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    pages = {run.name: run / "report.html" for run in (digits_run, additive_run, stream_run)} | {
        "comparison": comparison
    }
    frames = "".join(
        f'<iframe title="{html.escape(name)} {width}" style="width:{width}px;height:600px;border:0"'
        f' srcdoc="{html.escape(path.read_text(encoding="utf-8"))}"></iframe>'
        for name, path in pages.items()
        for width in WIDTHS
    )
    folder = tmp_path_factory.mktemp("browser")
    harness = folder / "harness.html"
    harness.write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><pre id="found"></pre>{frames}<script>{LOOK}</script>', encoding="utf-8"
    )
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--dump-dom", harness.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    match = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match is not None, done.stderr
    return {page["name"]: page for page in json.loads(html.unescape(match[1]))}


def test_every_picture_is_drawn(seen):
    assert len(seen) == 8
    for page in seen.values():
        assert page["images"] >= 3, page
        assert page["broken"] == 0, page


def test_nothing_is_wider_than_the_window(seen):
    for name, page in seen.items():
        assert 300 < page["width"] <= int(name.rpartition(" ")[2]), page
        assert page["overflow"] == 0, page


def test_nothing_is_loaded_from_elsewhere(seen):
    for page in seen.values():
        assert page["loaded"] == [], page
        assert page["headings"] >= 3, page
