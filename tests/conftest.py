"""What tests of several folders share: real data, small problems, and the independent reference for MKL."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from threadpoolctl import threadpool_limits

# Small products on several threads cost more time in waiting than they take: one here for BLAS and for the conic solver
# of the reference, and one in every process that a test starts. Where the number is the matter, a test sets it.
os.environ |= {"OPENBLAS_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
# Pictures take longer than the small trainings of most tests: those about reports ask for one.
os.environ["DASK_MLLKM__REPORT"] = "false"
# As in an environment that is active: command lines that are printed name the program as it is found.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
threadpool_limits(limits=1, user_api="blas")

# A SIGINT that is ignored (`&` in a script) would be ignored in every process that a test starts. A handler is
# not inherited: this one does nothing here, as before, and children begin with what is usual.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, lambda number, frame: None)

ROOT = Path(__file__).parent.parent
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
# Hypothesis also draws numbers that stand in modules that were imported: examples would depend on the tests before.
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = lambda: providers._local_constants
CLUSTERS = {"cluster", "faults"}  # folders whose tests start clusters and wait for them within bounds
EMBEDDED = {"breast_cancer": load_breast_cancer, "digits": load_digits, "iris": load_iris, "wine": load_wine}


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--slow` runs the tests that take long, too."""
    parser.addoption("--slow", action="store_true", help="run the tests that are marked slow, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without `--slow`, leave out what is marked slow, and say so."""
    if config.getoption("--slow"):
        return
    left_out = pytest.mark.skip(reason="slow: run it with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of several test processes, one takes a whole file, for its fixtures; and one, from the start, all clusters."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "clusters" if CLUSTERS & set(Path(file).parts) else file

        def _assign_work_unit(self, node: Any) -> None:
            if "clusters" in self.workqueue:  # they take longest
                self.workqueue.move_to_end("clusters", last=False)
            super()._assign_work_unit(node)

    return Together(config, log)


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], tuple[np.ndarray, np.ndarray]]:
    """X and y of a data set by name: one of scikit-learn's own, or NAME.npz in the folder MLLKM_DATA."""

    def load(name: str) -> tuple[np.ndarray, np.ndarray]:
        if name in EMBEDDED:
            X, y = EMBEDDED[name](return_X_y=True)
            return X, y
        folder = Path(os.environ.get("MLLKM_DATA", ROOT.parent / "shared" / "data"))
        path = folder / f"{name}.npz"
        if not path.exists():
            pytest.skip(f"{name}.npz is not in the folder MLLKM_DATA")
        with np.load(path, allow_pickle=False) as arrays:
            return arrays["X"], arrays["y"]

    return load


@pytest.fixture(scope="session")
def small_problem(
    real_data: Callable[[str], tuple[np.ndarray, np.ndarray]],
) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """`n` standardised random rows of a data set, and the signs (n, K); K = 1 for two labels."""

    def make(name: str, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        X, y = real_data(name)
        rows = np.random.default_rng(seed).permutation(len(X))[:n]
        X, y = X[rows].astype(np.float64), y[rows]
        X = X[:, X.std(axis=0) > 0]
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        labels = np.unique(y)
        positive = labels[1:] if len(labels) == 2 else labels
        return X, np.where(y[:, None] == positive, 1.0, -1.0)

    return make


@pytest.fixture(scope="session")
def mkl_reference() -> ModuleType:
    """The module tests/reference/mkl_by_cvxpy.py."""
    name = "mkl_by_cvxpy"
    spec = importlib.util.spec_from_file_location(name, ROOT / "tests" / "reference" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
