"""Labels as they come in a stream, to the classes that they stand for.

Every label is first a text: "cat", "3"; a number that came as a number is written as short as it can be (3.0 is "3").

    classes that are text       a label stands for the class with the same text
    classes that are numbers    a label stands for the class with the same value: "3", "3.0" and "3e0" for 3;
                                "true" and "false", however written, for 1 and 0
    no classes given            a label is its text
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.readers.layout import is_number
from mllkm_scale.data.sources import LONGEST_TEXT, plain_text
from mllkm_scale.errors import ParameterError

__all__ = ["BadLabel", "ClassLabels", "label_text", "shown"]

Label = str | int | float

# A hostile writer has endless ways to write "3": those beyond this number are read anew each time.
REMEMBERED = 4096
SHOWN = 40
LISTED = 12


class BadLabel(ValueError):
    """A label that stands for no class: its place among those given, and what is wrong, as the end of a sentence."""

    def __init__(self, place: int, problem: str) -> None:
        super().__init__(problem)
        self.place = place
        self.problem = problem


class ClassLabels:
    """The classes of a stream, if they are known, and which of them a text stands for.

    Parameters
    ----------
    classes : array-like, optional
        Numbers or texts, each once.

    Examples
    --------
    >>> ClassLabels([3, 5]).read(["5", "3.0"]).tolist(), ClassLabels().read(["5", "3.0"]).tolist()
    ([5, 3], ['5', '3.0'])
    >>> try:
    ...     ClassLabels(["cat", "dog"]).read(["dog", "cow"])
    ... except BadLabel as bad:
    ...     print(bad.place, bad.problem)
    1 is 'cow', none of the classes 'cat', 'dog': check it, or give all classes
    """

    def __init__(self, classes: ArrayLike | None = None) -> None:
        self.classes: Array | None = None if classes is None else _require_classes(classes)
        self._values: dict[Label, Label] = {}
        if self.classes is not None:
            self._values = {value: value for value in self.classes.tolist()}
        # Texts that were met before, and what they stand for.
        self._known: dict[str, Label] = {}

    def __contains__(self, text: str) -> bool:
        """Whether a text stands for one of the classes given."""
        return self._value_of(text) is not None

    def read(self, texts: Sequence[str]) -> Array:
        """What each text stands for, as an array of the classes' type.

        Raises
        ------
        BadLabel
            For the first that is empty, too long, no class, or, where no classes are given, not a number (nan) or
            infinite.
        """
        known = self._known
        labels = [known[text] if text in known else self._meet(text, place) for place, text in enumerate(texts)]
        return np.array(labels, dtype=np.str_ if self.classes is None else self.classes.dtype)

    def _meet(self, text: str, place: int) -> Label:
        if not text:
            raise BadLabel(place, "is empty: label it or leave it out")
        if len(text) > LONGEST_TEXT:  # an array of texts takes the memory of the longest one for each
            problem = (
                f"has {len(text):,} characters, more than {LONGEST_TEXT}: give the classes short names, or numbers"
            )
            raise BadLabel(place, problem)
        value: Label | None = text
        if self.classes is not None:
            value = self._value_of(text)
        elif is_number(text) and not math.isfinite(float(text)):
            raise BadLabel(place, f"is {shown(text)}: label it or leave it out")
        if "\x00" in text or not _is_unicode(text):
            raise BadLabel(place, f"is {shown(text)}, which no file can hold: leave out NUL and lone surrogates")
        if value is None:
            raise BadLabel(
                place, f"is {shown(text)}, none of the classes {self._listed()}: check it, or give all classes"
            )
        if len(self._known) < REMEMBERED:
            self._known[text] = value
        return value

    def _value_of(self, text: str) -> Label | None:
        if self.classes is None:
            return None
        return self._values.get(text if self.classes.dtype.kind == "U" else _number(text))

    def _listed(self) -> str:
        names = [shown(value) for value in self._values]
        return ", ".join(names[:LISTED] + ["..."] * (len(names) > LISTED))


def label_text(label: Label) -> str:
    """The text of a label that came as a number, a boolean or a text.

    >>> label_text(3.0), label_text(0.5), label_text(True), label_text(" cat ")
    ('3', '0.5', 'true', 'cat')
    """
    if isinstance(label, str):
        return label.strip()
    if isinstance(label, bool):
        return str(label).lower()
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return repr(label)


def shown(value: object) -> str:
    """A value as a message shows it: its beginning, if it is long.

    >>> shown("a" * 100)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'..."
    """
    if isinstance(value, str) and len(value) > SHOWN:
        return f"{value[:SHOWN]!r}..."
    return repr(value)


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _number(text: str) -> Label:
    """The value of a text, or the text itself, which no number equals."""
    try:
        if "_" not in text:
            # Whole numbers beyond 2^53 are distinguished by int alone.
            return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        pass
    return {"true": 1, "false": 0}.get(text.lower(), text)


def _require_classes(classes: ArrayLike) -> Array:
    values = plain_text(np.asarray(classes), "classes")
    if values.ndim != 1 or values.dtype.kind not in "biufU" or not len(values):
        raise ParameterError(f"classes={classes!r}: give numbers or texts, one per class")
    if len(np.unique(values)) < len(values) or (values.dtype.kind == "f" and not np.isfinite(values).all()):
        raise ParameterError(f"classes={classes!r}: give each class once, and no NaN or infinity")
    return values
