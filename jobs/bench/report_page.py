"""Pictures of docs/report.md: reports of training runs on USPS and diabetes, as shown by a browser.

    python jobs/bench/report_page.py [--docs docs] [--runs FOLDER] [--chromium chromium]

Trains both (USPS takes a minute or two), and writes docs/images/report-usps.png and report-diabetes.png with headless
Chromium. With --runs the run folders are kept there, and existing training runs are not repeated.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT, load
from PIL import Image

from mllkm_scale import Dataset, train
from mllkm_scale.report import write_report
from mllkm_scale.run.folder import RunFolder
from mllkm_scale.run.progress.listeners import PlainProgress

WIDTH = 1080
HEIGHTS = {"usps": 2395, "diabetes": 4845}  # pixels from the top to the end of a section
DIABETES = ("pregnancies", "glucose", "blood pressure", "skin fold", "insulin", "body mass index", "pedigree", "age")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--force-device-scale-factor=1",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--chromium", default="chromium")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        runs = arguments.runs or Path(scratch)
        for name, run in {"usps": usps, "diabetes": diabetes}.items():
            folder = runs / name
            if not RunFolder(folder).model.exists():
                run(folder)
            page, target = write_report(folder), arguments.docs / "images" / f"report-{name}.png"
            shoot(arguments.chromium, page, target, HEIGHTS[name], Path(scratch))
            print(f"{target}: {target.stat().st_size:,} bytes")


def usps(folder: Path) -> None:
    """Ten classes of images."""
    arrays = load("usps")
    data = Dataset.from_arrays(arrays["X"], arrays["y"], name="usps.h5:X")
    test = Dataset.from_arrays(arrays["X_test"], arrays["y_test"], name="usps.h5:X_test")
    fit(data, test, folder, image_shape="16x16", n_components=40, scaling="none", C=10.0, tol=0.02)


def diabetes(folder: Path) -> None:
    """An additive model of two classes; every fourth row is a test row."""
    arrays = load("diabetes")
    order = np.random.default_rng(0).permutation(len(arrays["X"]))
    labels = np.array(["healthy", "diabetes"])[(arrays["y"][order] > arrays["y"].min()).astype(int)]
    X, quarter = arrays["X"][order], len(order) // 4
    data = Dataset.from_arrays(X[quarter:], labels[quarter:], name="diabetes.h5:X", feature_names=DIABETES)
    test = Dataset.from_arrays(X[:quarter], labels[:quarter], name="diabetes.h5:X_test")
    fit(data, test, folder, componentwise=True, C=0.3)


def fit(data: Dataset, test: Dataset, folder: Path, **params: Any) -> None:
    train(
        data,
        test=test,
        run_dir=folder,
        overwrite=True,
        listener=PlainProgress(),
        report=False,
        **{"anchors": "all"} | params,
    )


def shoot(chromium: str, page: Path, target: Path, height: int, scratch: Path) -> None:
    """A picture of the page down to this height, as a small PNG."""
    raw = scratch / target.name
    profile = f"--user-data-dir={scratch / 'profile'}"
    command = [
        chromium,
        *FLAGS,
        profile,
        f"--window-size={WIDTH},{height}",
        f"--screenshot={raw}",
        page.resolve().as_uri(),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    except FileNotFoundError:
        sys.exit(f"{chromium} is not installed: name the browser with --chromium")
    target.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(raw) as image:
        image.convert("RGB").save(target, optimize=True)


if __name__ == "__main__":
    main()
