"""A machine in integers: fixed point chosen from the data, the same arithmetic in Python and in C."""

from __future__ import annotations

from mllkm_scale.export.integer.chosen import DeviceLimit, limit_of
from mllkm_scale.export.integer.fixed_point import integer_machine
from mllkm_scale.export.integer.machine import IntegerMachine

__all__ = ["DeviceLimit", "IntegerMachine", "integer_machine", "limit_of"]
