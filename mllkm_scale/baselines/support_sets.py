"""Support sets of LaSVM machines that are trained side by side: what each class holds, and the union of all.

A sample that any class holds has a slot in the union, which the kernel's rows are indexed by. A class lists its members
in consecutive places, so that a pass over them reads consecutive numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = [
    "Machine",
    "SupportUnion",
    "add_member",
    "drop_member",
    "empty_machines",
    "empty_union",
    "machine_of",
    "widened",
]


class SupportUnion(NamedTuple):
    """Slots of the samples that are held by one class or more."""

    slots: Array  # (n,) slot of a sample, or -1
    samples: Array  # (width,) sample of a slot
    holders: Array  # (width,) number of classes that hold the slot
    free: Array  # (width,) slots to be used again, the first counts[1] of them
    counts: Array  # (2,) slots used so far, slots to be used again


class Machine(NamedTuple):
    """The SVM of one class in its own places, or those of all classes with one more axis in front."""

    members: Array  # (width,) slot of a place
    places: Array  # (width,) place of a slot, or -1
    signs: Array  # (width,) label -1 or +1 of a place
    duals: Array  # (width,) signed alpha of a place, from min(0, C y) to max(0, C y)
    gradients: Array  # (width,) y - f(x) without bias, of a place
    size: Array  # (1,) number of places in use


def empty_union(n: int, width: int) -> SupportUnion:
    return SupportUnion(
        slots=np.full(n, -1),
        samples=np.zeros(width, dtype=np.int64),
        holders=np.zeros(width, dtype=np.int64),
        free=np.zeros(width, dtype=np.int64),
        counts=np.zeros(2, dtype=np.int64),
    )


def empty_machines(classes: int, width: int) -> Machine:
    shape = (classes, width)
    return Machine(
        members=np.zeros(shape, dtype=np.int64),
        places=np.full(shape, -1),
        signs=np.zeros(shape),
        duals=np.zeros(shape),
        gradients=np.zeros(shape),
        size=np.zeros((classes, 1), dtype=np.int64),
    )


def widened(union: SupportUnion, machines: Machine, width: int) -> tuple[SupportUnion, Machine]:
    """The same with room for more slots."""
    wider = empty_union(len(union.slots), width), empty_machines(len(machines.size), width)
    for old, new in zip((*union, *machines), (*wider[0], *wider[1]), strict=True):
        new[..., : old.shape[-1]] = old
    return wider


@numba.njit(cache=True, nogil=True)
def machine_of(machines: Machine, k: int) -> Machine:
    """Class k's own machine: views."""
    return Machine(
        machines.members[k],
        machines.places[k],
        machines.signs[k],
        machines.duals[k],
        machines.gradients[k],
        machines.size[k],
    )


@numba.njit(cache=True, nogil=True)
def add_member(machine: Machine, union: SupportUnion, slot: int, sign: float, gradient: float) -> int:
    """The place of a new member with alpha = 0."""
    place = machine.size[0]
    machine.size[0] += 1
    union.holders[slot] += 1
    machine.members[place], machine.places[slot] = slot, place
    machine.signs[place], machine.duals[place], machine.gradients[place] = sign, 0.0, gradient
    return place


@numba.njit(cache=True, nogil=True)
def drop_member(machine: Machine, union: SupportUnion, place: int) -> bool:
    """The last member moves to the place of the one dropped. True if no class holds the sample any more."""
    slot, last = machine.members[place], machine.size[0] - 1
    machine.size[0] = last
    machine.places[slot] = -1
    if place != last:
        machine.members[place], machine.signs[place] = machine.members[last], machine.signs[last]
        machine.duals[place], machine.gradients[place] = machine.duals[last], machine.gradients[last]
        machine.places[machine.members[place]] = place
    union.holders[slot] -= 1
    if union.holders[slot] > 0:
        return False
    union.slots[union.samples[slot]] = -1
    union.free[union.counts[1]] = slot
    union.counts[1] += 1
    return True
