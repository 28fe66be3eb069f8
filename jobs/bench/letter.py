"""Letter recognition, 26 classes, 16,000 training rows of 16 features: MLLKM, SVC and LDKL.

    python jobs/bench/letter.py [--kernels 400] [--param NAME=VALUE ...] [--peers svc tuned_svc ldkl3 ldkl6]

MLLKM has its defaults and a limit of the number of kernels; --param changes other parameters. The other methods have
standardised features: SVC with C = 10 and gamma = 1 / d, SVC with both by 3-fold cross-validation, and LDKL of depths 3
and 6. The first 16,000 rows are for training and the last 4,000 for testing. Writes results/letter.json.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from common import load, write
from machines import peer, table, tuned_svc
from tables import parameter

from mllkm_scale import MLLKMClassifier
from mllkm_scale.base.units import format_bytes

TRAINING_ROWS = 16_000
PEERS = ("svc", "tuned_svc", "ldkl3", "ldkl6")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=400, help="most kernels of MLLKM, 0 for no limit")
    parser.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="of MLLKM; may be repeated")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    arguments = parser.parse_args()
    try:
        machine = MLLKMClassifier(max_kernels=arguments.kernels or None)
        machine.set_params(**dict(parameter(text) for text in arguments.param))
    except ValueError as error:
        parser.error(f"--param: {error}")
    data = load("letter")
    X, y = data["X"].astype(np.float64), data["y"]
    samples = X[:TRAINING_ROWS], y[:TRAINING_ROWS], X[TRAINING_ROWS:], y[TRAINING_ROWS:]
    rows = {"mllkm": ours(machine, samples)}
    print(table(rows), flush=True)
    for name in arguments.peers:
        rows[name] = peer(peer_named(name, X.shape[1]), *samples)
        print(f"{name}: {rows[name]}", flush=True)
    print(table(rows))
    print(f"written: {write('letter', {'setting': vars(arguments), 'machines': rows})}")


def ours(machine: MLLKMClassifier, samples: tuple[np.ndarray, ...]) -> dict[str, Any]:
    """The record of MLLKM."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        record = peer(machine, *samples)
    kernels = machine.weights_.shape[-1]
    return record | {
        "kernels": kernels,
        "size": f"{kernels} kernels",
        "gap": machine.gap_,
        "n_open": machine.n_open_,
        "status": machine.status_,
        "peak": format_bytes(machine.peak_bytes_),
        "peak_bytes": machine.peak_bytes_,
    }


def peer_named(name: str, n_features: int) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    from mllkm_scale.baselines import LDKLClassifier

    if name == "tuned_svc":
        return tuned_svc(n_features)
    if name == "svc":
        return make_pipeline(StandardScaler(), SVC(C=10.0, gamma="scale"))
    lambdas = dict.fromkeys(("lambda_w", "lambda_v", "lambda_theta"), 1e-4)
    return make_pipeline(StandardScaler(), LDKLClassifier(int(name.removeprefix("ldkl")), **lambdas))


if __name__ == "__main__":
    main()
