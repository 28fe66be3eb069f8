"""The form of an exported machine: kernel by kernel, or by the tables of a component-wise machine.

The names of forms and precisions are here, without slow imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from mllkm_scale.errors import ParameterError

if TYPE_CHECKING:
    from mllkm_scale.model.model import Model
    from mllkm_scale.model.tables.additive import AdditiveModel

__all__ = ["FORMS", "PRECISIONS", "FormName", "PrecisionName", "find_tables", "require_exportable"]

FormName = Literal["auto", "tables", "direct"]
FORMS: tuple[FormName, ...] = get_args(FormName)
PrecisionName = Literal["mixed", "single", "double"]
PRECISIONS: tuple[PrecisionName, ...] = get_args(PrecisionName)


def require_exportable(model: Model) -> None:
    """Refuse a model with a reduction, which no export format supports."""
    if model.reduction is not None:
        raise ParameterError(
            f"the model makes {model.reduction.n_features} features of {model.reduction.n_columns:,} columns, which no"
            " export holds: export model.machine, whose rows are model.reduction.apply(X)"
        )


def find_tables(model: Model, form: FormName = "auto", deviation: float | None = None) -> AdditiveModel | None:
    """The tables to export, or None for kernel by kernel.

    ``"auto"`` means tables whenever they can be made, also for small machines that Python evaluates directly.
    `deviation` is their largest error, by default that of the tables in Python.

    Examples
    --------
    >>> from mllkm_scale import MLLKMClassifier
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [3.0, 3.0], [3.0, 4.0]], ["near", "near", "far", "far"]
    >>> model = MLLKMClassifier(componentwise=True).fit(X, y).model_
    >>> find_tables(model).n_features, find_tables(model, "direct")
    (2, None)
    """
    from mllkm_scale.model.tables.additive import DEVIATION, compile_additive
    from mllkm_scale.model.tables.cells import NotTabulated

    require_exportable(model)
    if form not in FORMS:
        raise ParameterError(f"form={form!r} is not known: choose one of {', '.join(FORMS)}")
    if deviation is not None and (form == "direct" or not model.family.componentwise):
        raise ParameterError(f"deviation={deviation} is about tables, of which this export has none: leave it out")
    if form == "direct" or (form == "auto" and not model.family.componentwise):
        return None
    try:
        return compile_additive(model, DEVIATION if deviation is None else deviation)
    except NotTabulated:
        if form == "tables":
            raise
        return None
