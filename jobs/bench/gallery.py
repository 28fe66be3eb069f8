"""Pictures of docs/gallery.md that no other page has, from small training runs on data of scikit-learn.

    python jobs/bench/gallery.py [--docs docs]

Writes docs/images/gallery-*.svg: shape functions, ROC and precision-recall curves and a calibration plot of the breast
cancer data, and anchors of digits.
"""

from __future__ import annotations

import argparse
import base64
from pathlib import Path

from common import ROOT
from sklearn.datasets import load_breast_cancer, load_digits

from mllkm_scale import Dataset, train
from mllkm_scale.model import evaluate
from mllkm_scale.report.kernels import anchor_images
from mllkm_scale.report.measured import measured
from mllkm_scale.report.picture import Picture
from mllkm_scale.report.shape_pictures import shape_section


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    images = parser.parse_args().docs / "images"
    cancer = load_breast_cancer()
    names, labels = cancer.feature_names.tolist(), cancer.target_names[cancer.target]
    rows, test = (Dataset.from_arrays(cancer.data[i::2], labels[i::2], feature_names=names) for i in (0, 1))
    model = train(rows, componentwise=True, anchors="all", n_jobs=1).model
    curves, calibration = measured(evaluate(model, test)).curves
    shapes = shape_section(model, tuple(names)).pictures[:3]
    digits = load_digits()
    machine = train(Dataset.from_arrays(digits.data[::4], digits.target[::4]), anchors="all", tol=0.05, n_jobs=1).model
    pictures = {f"shape-{number}": picture for number, picture in enumerate(shapes, 1)}
    pictures |= {"curves": curves, "calibration": calibration, "digits": anchor_images(machine, (8, 8))}
    for name, picture in pictures.items():
        print(write(picture, images / f"gallery-{name}"))


def write(picture: Picture, path: Path) -> Path:
    """The picture as a file of its own format."""
    head, _, content = picture.source.partition(";base64,")
    target = path.with_suffix(".svg" if "svg" in head else ".png")
    target.write_bytes(base64.b64decode(content))
    return target


if __name__ == "__main__":
    main()
