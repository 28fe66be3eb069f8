"""SAG against LIBLINEAR, L-BFGS and a twin in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from mllkm_scale.baselines.sag import SAGClassifier, sag_epoch
from mllkm_scale.errors import ParameterError


def loss_and_slope(margins, loss, width):
    """The two losses as textbooks write them, and their derivatives."""
    if loss == "squared_hinge":
        return np.maximum(0, 1 - margins) ** 2, -2 * np.maximum(0, 1 - margins)
    quadratic, linear = (1 - margins) ** 2 / (2 * width), 1 - margins - width / 2
    values = np.where(margins >= 1, 0.0, np.where(margins > 1 - width, quadratic, linear))
    return values, -np.clip((1 - margins) / width, 0, 1)


def objective(w, X, y, C, loss, width):
    values, slopes = loss_and_slope(y * (X @ w), loss, width)
    return 0.5 * w @ w + C * values.sum(), w + C * (slopes * y) @ X


def with_one(X):
    return np.column_stack([X, np.ones(len(X))])


def weights(machine, k=0):
    return np.append(machine.coef_[k], machine.intercept_[k])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # labels of noise, features of scale 100
def test_all_of_scikit_learns_checks_pass():
    results = check_estimator(SAGClassifier(), on_fail=None, on_skip=None)
    assert {result["check_name"] for result in results if result["status"] != "passed"} <= {"check_array_api_input"}


@pytest.mark.parametrize(("curvature", "width"), [(2.0, np.inf), (4.0, 0.25)])
def test_an_epoch_is_that_of_the_listing(small_problem, curvature, width):
    X, signs = small_problem("breast_cancer", 40)
    y, C, (n, d) = signs[:, 0], 0.3, X.shape
    norms = (X**2).sum(axis=1)

    def loss(output, i):
        t = max(0.0, 1 - y[i] * output)
        return curvature * (0.5 * t**2 if t <= width else width * t - 0.5 * width**2)

    draws = np.random.default_rng(0).integers(n, size=2 * n)
    w, table, seen, lipschitz = np.zeros(d), np.zeros(n), set(), 1.0
    for i in draws:
        output = X[i] @ w
        table[i] = -curvature * y[i] * min(max(0.0, 1 - y[i] * output), width)
        seen.add(i)
        squared = table[i] ** 2 * norms[i]
        while (
            squared > 1e-8
            and loss(output - table[i] * norms[i] / lipschitz, i) > loss(output, i) - squared / 2 / lipschitz
        ):
            lipschitz *= 2
        w = w - (w / (n * C) + table @ X / len(seen)) / (lipschitz + 1 / (n * C))
        lipschitz *= 2 ** (-1 / n)

    found, derivatives, total, progress = np.zeros(d), np.full(n, np.nan), np.zeros(d), np.array([1.0, 0.0])
    for half in np.split(draws, 2):
        sag_epoch(X, norms, y, C, curvature, width, half, derivatives, total, found, progress)
    np.testing.assert_allclose(found, w, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.nan_to_num(derivatives), table, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(progress, [lipschitz, len(seen)])


@pytest.mark.parametrize(("name", "n"), [("breast_cancer", 569), ("usps", 600)])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_squared_hinge_has_the_optimum_of_liblinear(small_problem, name, n, fit_intercept):
    X, signs = small_problem(name, n)
    X, y, C = X / np.sqrt(X.shape[1]), signs[:, 0], 1.0
    machine = SAGClassifier(C, tol=1e-10, max_iter=20_000, fit_intercept=fit_intercept).fit(X, y)
    reference = LinearSVC(C=C, dual=False, tol=1e-10, max_iter=10_000, fit_intercept=fit_intercept).fit(X, y)
    expected = np.append(reference.coef_[0], reference.intercept_)
    np.testing.assert_allclose(weights(machine), expected, rtol=1e-4, atol=1e-4 * abs(expected).max())
    found, best = (objective(w, with_one(X), y, C, "squared_hinge", None)[0] for w in (weights(machine), expected))
    assert found == pytest.approx(best, rel=1e-8)


@pytest.mark.parametrize("width", [0.1, 1.0])
def test_the_smoothed_hinge_has_the_optimum_of_l_bfgs(small_problem, width):
    X, signs = small_problem("breast_cancer", 300)
    X, y, C = X / np.sqrt(X.shape[1]), signs[:, 0], 2.0
    machine = SAGClassifier(C, loss="smoothed_hinge", width=width, tol=1e-10, max_iter=20_000).fit(X, y)
    problem = (with_one(X), y, C, "smoothed_hinge", width)
    options = {"maxiter": 10_000, "ftol": 1e-15, "gtol": 1e-9}
    best = minimize(objective, np.zeros(31), problem, jac=True, method="L-BFGS-B", options=options)
    assert objective(weights(machine), *problem)[0] == pytest.approx(best.fun, rel=1e-8)
    np.testing.assert_allclose(weights(machine), best.x, rtol=1e-4, atol=1e-4 * abs(best.x).max())


@pytest.mark.parametrize("loss", ["squared_hinge", "smoothed_hinge"])
def test_the_gap_is_the_duality_gap(small_problem, loss):
    X, signs = small_problem("wine", 178)
    y, C, width = np.where(signs[:, 0] > 0, "a", np.where(signs[:, 1] > 0, "b", "c")), 0.5, 0.5
    machine = SAGClassifier(C, loss=loss, width=width, tol=1e-3).fit(X, y)
    for k in range(3):
        w, Z = weights(machine, k), with_one(X)
        duals = -C * loss_and_slope(signs[:, k] * (Z @ w), loss, width)[1]
        conjugate = duals - (duals**2 / (4 * C) if loss == "squared_hinge" else width * duals**2 / (2 * C))
        dual = conjugate.sum() - 0.5 * (((duals * signs[:, k]) @ Z) ** 2).sum()
        primal = objective(w, Z, signs[:, k], C, loss, width)[0]
        assert machine.gap_[k] == pytest.approx((primal - dual) / primal, rel=1e-6)
        assert machine.gap_[k] <= 1e-3


def test_usps_has_the_test_error_of_liblinear(split_data):
    X, y, X_test, y_test = split_data("usps")
    machine = SAGClassifier(C=0.01).fit(X, y)
    assert machine.coef_.shape == (10, 256)
    assert machine.n_iter_.max() <= 50
    # LinearSVC(C=0.01, dual=False, tol=1e-6): 8.62 %
    assert 1 - machine.score(X_test, y_test) == pytest.approx(0.0862, abs=0.002)


def test_training_that_ends_too_early_warns(small_problem):
    X, signs = small_problem("breast_cancer", 100)
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        machine = SAGClassifier(C=100.0, max_iter=7).fit(X, signs[:, 0])
    assert machine.n_iter_.tolist() == [7]


def test_a_seed_gives_the_same_bits_and_none_another_order(small_problem):
    X, signs = small_problem("breast_cancer", 100)
    first, second, other = (SAGClassifier(random_state=seed).fit(X, signs[:, 0]).coef_ for seed in (3, 3, None))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    "wrong",
    [{"C": 0}, {"loss": "hinge"}, {"width": -1.0}, {"tol": np.nan}, {"max_iter": 1.5}, {"random_state": -1}],
    ids=str,
)
def test_a_wrong_parameter_is_named(wrong):
    with pytest.raises(ParameterError, match=f"{next(iter(wrong))}="):
        SAGClassifier(**wrong).fit([[0.0], [1.0]], [0, 1])
