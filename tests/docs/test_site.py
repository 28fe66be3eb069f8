"""The site builds without a warning, loads nothing from elsewhere, has every public name and option, and fits a screen.

All of it is in one file, so that the site is built once.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path

import click
import pytest

from mllkm_scale.cli import cli

ROOT = Path(__file__).parents[2]
LOADED = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "object": "data",
}
PACKAGES = "baselines cluster config data errors export kernels model online path report"
MODULES = "base.events cli.machine_checks data.catalogue run.job"
PUBLIC = ("mllkm_scale", *(f"mllkm_scale.{name}" for name in f"{PACKAGES} {MODULES}".split()))
ELSEWHERE = {"Client", "__version__"}  # dask's, and the one of the package


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of the site, built as `make docs` does, and what was said about it."""
    folder = tmp_path_factory.mktemp("site")
    options = ["-b", "html", "-d", str(folder / "doctrees"), "--keep-going", "--quiet", "--jobs", "2"]
    command = [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(folder / "html")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    return folder / "html", done.stdout + done.stderr


@pytest.fixture(scope="session")
def site(built: tuple[Path, str]) -> Path:
    return built[0]


class Loads(HTMLParser):
    """What a browser fetches to show a page; links that a reader may follow are not among it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag in LOADED and found.get("rel") not in ("search", "index", "next", "prev", "canonical"):
            self.targets.append(found.get(LOADED[tag]) or "")


def inventory(site: Path) -> set[str]:
    """Names that the reference describes."""
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    return {line.split(" py:")[0] for line in zlib.decompress(packed).decode().splitlines() if " py:" in line}


def test_the_site_builds_without_a_warning(built: tuple[Path, str]) -> None:
    assert built[1] == ""
    assert (built[0] / "index.html").exists()


def test_every_page_is_a_page_of_the_site(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").exists(), page


def test_pages_load_nothing_from_elsewhere_and_all_that_they_load_is_there(site: Path) -> None:
    for page in site.rglob("*.html"):
        for target in Loads(page.read_text(encoding="utf-8")).targets:
            assert not re.match(r"\w+:|//", target), f"{page.name} loads {target}"
            assert not target or (page.parent / target.split("?")[0].split("#")[0]).exists(), f"{page.name}: {target}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_no_page_names_the_machine_that_it_was_built_on(site: Path) -> None:
    for page in [*site.rglob("*.html"), site / "searchindex.js"]:
        assert str(ROOT) not in page.read_text(encoding="utf-8"), page


@pytest.mark.parametrize("package", PUBLIC)
def test_the_reference_has_every_public_name(site: Path, package: str) -> None:
    described = {name.rpartition(".")[2] for name in inventory(site)}
    assert set(import_module(package).__all__) - ELSEWHERE - described == set()


def test_the_page_of_commands_has_every_option(site: Path) -> None:
    text = (site / "commands.html").read_text(encoding="utf-8")
    for name, command in cli.commands.items():
        section = re.search(rf'<section id="mllkm-{name}">(.*?)<section id="mllkm-|\Z', text, re.DOTALL)
        assert section, name
        for parameter in command.params:
            if isinstance(parameter, click.Option) and parameter.name != "debug" and not parameter.hidden:
                assert parameter.opts[0] in (section[1] or text), f"mllkm {name} {parameter.opts[0]}"


PHONE, DESKTOP = 390, 1440
SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--virtual-time-budget=60000"),
)
LOOK = """<!doctype html><pre id="seen"></pre><script>
const looks = LOOKS, seen = [];
const later = milliseconds => new Promise(done => setTimeout(done, milliseconds));
async function look({page, width, until}) {
  const frame = document.createElement("iframe");
  frame.style = `width: ${width}px; height: 800px; border: 0`;
  const loaded = new Promise(done => frame.onload = done);
  frame.src = page;
  document.body.append(frame);
  await loaded;
  const inside = frame.contentDocument;
  for (let tries = 0; until && !inside.querySelector(until) && tries < 100; tries++) await later(50);
  const broken = [...inside.images].filter(image => !image.naturalWidth).map(image => image.src);
  const found = !until || !!inside.querySelector(until);
  seen.push({page, width, scroll: inside.documentElement.scrollWidth, broken, found});
  frame.remove();
}
(async () => {
  for (const task of looks) await look(task);
  document.getElementById("seen").textContent = JSON.stringify(seen);
})();
</script>"""


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder without a line for every request; a browser that leaves early is no error."""

    def log_message(self, format: str, *args: object) -> None:
        pass

    def handle(self) -> None:
        with suppress(ConnectionError):
            super().handle()


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no chromium to look at the site with")
def test_pages_fit_a_phone_and_a_desktop_and_search_finds(site: Path, address: str, tmp_path: Path) -> None:
    pages = sorted(str(page.relative_to(site)) for page in site.rglob("*.html"))
    looks = [{"page": page, "width": width} for page in pages for width in (PHONE, DESKTOP)]
    looks.append({"page": "search.html?q=certificate", "width": DESKTOP, "until": "#search-results li a"})
    (site / "look.html").write_text(LOOK.replace("LOOKS", json.dumps(looks)))
    switches = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
    command = [
        "chromium",
        *switches.split(),
        f"--user-data-dir={tmp_path}",
        "--virtual-time-budget=60000",
        "--dump-dom",
    ]
    done = subprocess.run([*command, f"{address}/look.html"], check=True, capture_output=True, text=True, timeout=120)
    (site / "look.html").unlink()
    shown = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert shown
    seen = json.loads(shown[1].replace("&amp;", "&"))
    assert len(seen) == len(looks)
    assert [look for look in seen if look["scroll"] > look["width"] or look["broken"] or not look["found"]] == []
