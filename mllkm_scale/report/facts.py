"""The facts of the report: the cards at the top, and the tables of data, model, run and parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mllkm_scale.base.units import format_bytes
from mllkm_scale.base.wording import percent, rate, seconds
from mllkm_scale.model.describe import Description
from mllkm_scale.model.describe_text import calibration_in_words
from mllkm_scale.params import defaults
from mllkm_scale.report.run_files import Run

__all__ = ["Facts", "cards", "cost_of_row", "data_facts", "model_facts", "parameters", "result_facts", "shown"]

Facts = dict[str, str]
LISTED_CLASSES = 20


def cards(run: Run, facts: Description | None) -> list[tuple[str, str, str]]:
    """The most important numbers: name, value, and a value for comparison."""
    found = [("status", run.status, _status_note(run))]
    if run.is_stream:
        last = run.result or (vars(run.reports[-1]) if run.reports else {})
        if "error" in last:
            found.append(("prequential error", percent(_number(last["error"])), _recently(last)))
    else:
        gap, tol = gap_of(run), run.parameters.get("tol")
        if gap is not None:
            found.append(("duality gap", percent(gap), "" if tol is None else f"asked for {percent(float(tol))}"))
    if run.evaluation is not None:
        found.append(("test error", percent(run.evaluation.error), f"of {run.evaluation.n:,} rows"))
    kernels = facts.n_kernels if facts is not None else run.rounds[-1].n_active if run.rounds else None
    if kernels is not None:
        candidates = run.n_candidates
        found.append(("kernels", f"{kernels:,}", f"of {candidates:,} candidates" if candidates else ""))
    if run.elapsed_s is not None:
        found.append(("time", seconds(run.elapsed_s), _rounds(run)))
    if run.peak_bytes is not None and run.budget_bytes is not None:
        found.append(("peak memory", format_bytes(run.peak_bytes), f"budget {format_bytes(run.budget_bytes)}"))
    if facts is not None and run.model_bytes is not None:
        found.append(("model file", format_bytes(run.model_bytes), f"{cost_of_row(facts)} a row"))
    return found


def gap_of(run: Run) -> float | None:
    """The certified gap of the result, or of the last round; None for a stream, which has no certificate."""
    if run.is_stream:
        return None
    found = run.result.get("gap", run.rounds[-1].gap if run.rounds else None)
    if found is None and run.model is not None:
        found = run.model.certificate.gap
    return None if found is None or not math.isfinite(float(found)) else float(found)


def cost_of_row(facts: Description) -> str:
    """The cost of predicting a row, in multiply-adds."""
    return f"{rate(facts.multiply_adds if facts.tables is None else facts.tables.multiply_adds)} multiply-adds"


def _rest_of_cost(facts: Description) -> str:
    tables = facts.tables
    if tables is None:
        return f"{facts.bumps:,} bumps"
    return f"{tables.lookups:,} lookups in tables, with an error of at most {tables.deviation:.1e}"


def data_facts(run: Run) -> Facts:
    """Facts about the data."""
    found: Facts = {}
    if run.data.get("name"):
        found["data"] = str(run.data["name"])
    n_rows = run.data.get("rows", run.result.get("n_samples"))
    if n_rows is None and run.model is not None:
        n_rows = run.model.certificate.n_train
    if n_rows is not None:
        found["rows"] = f"{int(n_rows):,}"
    n_features = run.data.get("features", None if run.model is None else run.model.n_features_in)
    if n_features is not None:
        found["features"] = f"{int(n_features):,}"
    if run.model is not None:
        labels = [str(label) for label in run.model.classes[:LISTED_CLASSES].tolist()]
        more = ", ..." if len(run.model.classes) > LISTED_CLASSES else ""
        found["classes"] = f"{len(run.model.classes)}: {', '.join(labels)}{more}"
    if run.evaluation is not None:
        found["test data"] = f"{run.test_name}, {run.evaluation.n:,} rows"
        if run.evaluation.log_loss is not None:
            found["probabilities there"] = (
                f"log loss {run.evaluation.log_loss:.4f}, Brier score {run.evaluation.brier:.4f},"
                f" calibration error {run.evaluation.calibration_error:.4f}"
            )
    return found


def model_facts(facts: Description) -> Facts:
    """Facts about the model."""
    found = {
        "kernels": f"{facts.family}",
        "kernel weights": "shared by the classes" if facts.shared_weights else "one set per class",
        "preparation": facts.preprocessing,
        "probabilities": calibration_in_words(facts),
        "input of the kernels": f"{facts.n_features_out:,} features",
        "C": shown(facts.certificate.params.get("C")),
        "cost of a row": f"{cost_of_row(facts)}, {_rest_of_cost(facts)}",
        "memory": f"{format_bytes(facts.memory_bytes)}, and {format_bytes(facts.block_bytes)} per thread to predict",
        "checksum": facts.checksum,
    }
    if not math.isnan(facts.certificate.gap):
        record = facts.certificate
        found["certificate"] = (
            f"{record.dual:.6g} ≤ optimum ≤ {record.primal:.6g}, over {record.n_open:,} candidate kernels"
        )
    return found


def result_facts(run: Run) -> Facts:
    """Facts about the run."""
    found: Facts = {"ended": f"{run.status}{_status_note(run) and ': ' + _status_note(run)}"}
    if run.elapsed_s is not None:
        found["time"] = f"{seconds(run.elapsed_s)}" + (f" in {_rounds(run)}" if run.rounds else "")
    if run.is_stream and run.result.get("samples_per_s"):
        found["samples per second"] = rate(float(run.result["samples_per_s"]))
    if run.peak_bytes is not None:
        found["peak memory"] = f"{format_bytes(run.peak_bytes)} of {format_bytes(run.budget_bytes or 0)}"
    if run.plan.get("reason"):
        found["inner problem"] = f"{run.plan.get('inner')} expected: {run.plan['reason']}"
    cluster = run.record.get("cluster")
    if isinstance(cluster, Mapping):
        waited, idle = _number(cluster.get("master_waited_share")), _number(cluster.get("workers_idle_share"))
        found["workers"] = (
            f"{cluster.get('workers')}, {cluster.get('lost_workers', 0)} lost; this process waited {percent(waited)} of"
            f" the time, and the workers were idle {percent(idle)} of the time"
        )
        if cluster.get("worker_peak_bytes"):
            planned = format_bytes(int(cluster.get("worker_bytes") or 0))
            found["peak of a worker"] = f"{format_bytes(int(cluster['worker_peak_bytes']))}, planned {planned}"
    if run.record.get("version"):
        found["version"] = f"mllkm-scale {run.record['version']}"
    return found


def parameters(run: Run) -> list[tuple[str, str, bool]]:
    """Name and value of each parameter, and whether it differs from the default."""
    standard = {name: shown(value) for name, value in defaults().items()}
    return [
        (name, shown(value), name in standard and shown(value) != standard[name])
        for name, value in run.parameters.items()
    ]


def shown(value: Any) -> str:
    """A value as text.

    >>> shown(0.1), shown([0.5, 2.0]), shown(None), shown(True)
    ('0.1', '0.5, 2', 'none', 'yes')
    """
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case list() | tuple():
            return ", ".join(shown(item) for item in value)
    return str(value)


def _status_note(run: Run) -> str:
    notes = {
        "learned": "gradient descent alone made the machine",
        "converged": "the requested gap is certified",
        "max_rounds": "the limit of rounds was reached first",
        "max_kernels": "the limit of kernels was reached first",
        "time_limit": "the time limit was reached first",
        "precision": "rounding does not allow a smaller gap",
        "ended": "all samples were learned",
        "interrupted": "not finished: it can be resumed",
        "not finished": "interrupted, or still running",
    }
    return notes.get(run.status, "")


def _rounds(run: Run) -> str:
    return "" if not run.rounds else "1 round" if len(run.rounds) == 1 else f"{len(run.rounds):,} rounds"


def _recently(last: Mapping[str, Any]) -> str:
    return f"of the latest {percent(_number(last.get('recent_error')))}"


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
