"""Runs that the tests of reports share, small and trained once."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from mllkm_scale import Dataset, train
from mllkm_scale.online import DatasetSamples, stream
from mllkm_scale.report import write_comparison

HOSTILE = ("<script>alert(1)</script>", "a & b -->", "$x_{", "quote \" and ' tick", "日本語", "two\nlines", "bell\x07")
HOSTILE_LABELS = np.array(["<b>no & never</b>", "$yes_{"])

RealData = Callable[[str], tuple[np.ndarray, np.ndarray]]


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory, real_data: RealData) -> Path:
    """Ten classes of images of 8 x 8, with test rows."""
    X, y = real_data("digits")
    folder = tmp_path_factory.mktemp("report") / "digits"
    train(
        Dataset.from_arrays(X[:250], y[:250], name="digits.h5:X"),
        test=Dataset.from_arrays(X[250:400], y[250:400], name="digits.h5:X_test"),
        run_dir=folder,
        report=True,
        image_shape=(8, 8),
        anchors="all",
        n_components=12,
        tol=0.2,
        n_jobs=1,
    )
    return folder


@pytest.fixture(scope="session")
def additive_run(tmp_path_factory: pytest.TempPathFactory, real_data: RealData) -> Path:
    """Two classes and features with hostile names, component-wise."""
    X, y = real_data("breast_cancer")
    folder = tmp_path_factory.mktemp("report") / "additive & <hostile>"
    train(
        Dataset.from_arrays(
            X[:150, : len(HOSTILE)], HOSTILE_LABELS[y[:150]], name="<img src=x>.h5:X", feature_names=HOSTILE
        ),
        test=Dataset.from_arrays(X[150:300, : len(HOSTILE)], HOSTILE_LABELS[y[150:300]], name="test & more"),
        run_dir=folder,
        report=True,
        anchors="all",
        componentwise=True,
        tol=0.1,
        n_jobs=1,
    )
    return folder


@pytest.fixture(scope="session")
def stream_run(tmp_path_factory: pytest.TempPathFactory, real_data: RealData) -> Path:
    """A stream of digits."""
    X, y = real_data("digits")
    folder = tmp_path_factory.mktemp("report") / "stream"
    samples = DatasetSamples(Dataset.from_arrays(X[:1200], y[:1200], name="digits.h5:X"))
    stream(samples, run_dir=folder, report=True, image_shape="8x8", warm_up=200, max_kernels=40, n_jobs=1)
    return folder


@pytest.fixture(scope="session")
def comparison(
    tmp_path_factory: pytest.TempPathFactory, digits_run: Path, additive_run: Path, stream_run: Path
) -> Path:
    """The three of them side by side."""
    out = tmp_path_factory.mktemp("comparison") / "comparison.html"
    return write_comparison([digits_run, additive_run, stream_run], out=out)


@dataclass
class Page:
    """A page as an HTML parser sees it."""

    text: str
    headings: list[str]
    images: list[dict[str, str]]
    addresses: list[str]  # of whatever is loaded or linked
    tags: set[str]


@pytest.fixture(scope="session")
def parsed() -> Callable[[Path], Page]:
    return _parsed


def _parsed(path: Path) -> Page:
    page = Page("", [], [], [], set())

    class Reader(HTMLParser):
        heading = False

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            values = {name: value or "" for name, value in attrs}
            page.tags.add(tag)
            self.heading = tag in ("h1", "h2", "h3")
            if tag == "img":
                page.images.append(values)
            page.addresses += [values[name] for name in ("src", "href", "action", "srcset", "data") if name in values]

        def handle_data(self, data: str) -> None:
            page.text += data
            if self.heading and data.strip():
                page.headings.append(data.strip())

        def handle_endtag(self, tag: str) -> None:
            self.heading = False

    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    return page


@pytest.fixture(scope="session")
def drawn() -> Callable[[dict[str, str]], bytes]:
    """The bytes of an image of a page."""

    def decode(image: dict[str, str]) -> bytes:
        match = re.fullmatch(r"data:image/(?:png|svg\+xml);base64,([A-Za-z0-9+/=]+)", image["src"])
        assert match is not None
        return base64.b64decode(match[1], validate=True)

    return decode
