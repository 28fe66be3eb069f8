"""The form in which a component-wise model evaluates rows: by tables, or directly if these are not faster or cannot be
made.

The form is determined at the first use, and depends only on the model, so the value of a row does not depend on other
rows. Tables exist as long as their model, but are not part of its file or its pickle.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from mllkm_scale.model.tables.cells import NotTabulated

if TYPE_CHECKING:
    from mllkm_scale.model.model import Model
    from mllkm_scale.model.tables.additive import AdditiveModel

__all__ = ["MIN_KERNELS", "Form", "additive_form"]

MIN_KERNELS = 32  # with fewer kernels, making tables takes as long as evaluating many thousand rows directly


@dataclass(frozen=True)
class Form:
    """The tables, or None for the direct form; `reason` then says why."""

    tables: AdditiveModel | None
    reason: str = ""


@dataclass
class _Slot:
    lock: threading.Lock = field(default_factory=threading.Lock)
    form: Form | None = None


_slots: WeakKeyDictionary[Model, _Slot] = WeakKeyDictionary()
_slots_lock = threading.Lock()


def additive_form(model: Model) -> Form:
    """The form of a model. One thread makes the tables, and other threads wait for them."""
    with _slots_lock:
        slot = _slots.setdefault(model, _Slot())
    with slot.lock:
        if slot.form is None:
            slot.form = _find_form(model)
        return slot.form


def _find_form(model: Model) -> Form:
    if not model.family.componentwise:
        return Form(None, "global kernels have no tables")
    if model.n_kernels < MIN_KERNELS:
        return Form(None, f"tables pay from {MIN_KERNELS} kernels on")
    # numba is imported only for models that need it.
    from mllkm_scale.model.tables.additive import compile_additive

    try:
        return Form(compile_additive(model))
    except NotTabulated as why:
        return Form(None, str(why))
