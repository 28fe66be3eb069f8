"""A machine in integers: fixed-point arithmetic with scales chosen from the data, identical in Python and C."""

from __future__ import annotations

from mllkm_scale.export.integer.fixed_point import integer_machine
from mllkm_scale.export.integer.machine import IntegerMachine

__all__ = ["IntegerMachine", "integer_machine"]
