"""In which form a component-wise model evaluates rows: by tables, or directly where these do not pay or cannot be made.

The form is found out when a model is first asked for it, and depends on nothing but the model: a row has the same value
whatever it is asked for with. Tables live as long as their model, beside it: neither its file nor its pickle has them.
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

MIN_KERNELS = 32  # with fewer, making tables takes as long as many thousand rows do directly


@dataclass(frozen=True)
class Form:
    """By tables, or directly if there are none: then `reason` says why."""

    tables: AdditiveModel | None
    reason: str = ""


@dataclass
class _Slot:
    lock: threading.Lock = field(default_factory=threading.Lock)
    form: Form | None = None


_slots: WeakKeyDictionary[Model, _Slot] = WeakKeyDictionary()
_slots_lock = threading.Lock()


def additive_form(model: Model) -> Form:
    """The form of a model. One thread makes its tables, and others that ask meanwhile wait for them."""
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
    # numba is loaded only for models that need it.
    from mllkm_scale.model.tables.additive import compile_additive

    try:
        return Form(compile_additive(model))
    except NotTabulated as why:
        return Form(None, str(why))
