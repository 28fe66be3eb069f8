"""Maps the labels of a stream to classes.

Every label is first a text: "cat", "3". A label that is a number is written in its shortest form (3.0 is "3").

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

# There are endless ways to write "3": beyond this number of texts, they are parsed each time.
REMEMBERED = 4096
SHOWN = 40
LISTED = 12


class BadLabel(ValueError):
    """A label without a class: its index among the labels, and the problem, as the end of a sentence."""

    def __init__(self, place: int, problem: str) -> None:
        super().__init__(problem)
        self.place = place
        self.problem = problem


class ClassLabels:
    """The classes of a stream, if they are known, and the class of each text.

    Parameters
    ----------
    classes : array-like, optional
        Different numbers or texts.

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
        # The classes of earlier texts.
        self._known: dict[str, Label] = {}

    def __contains__(self, text: str) -> bool:
        """Whether a text denotes one of the given classes."""
        return self._value_of(text) is not None

    def read(self, texts: Sequence[str]) -> Array:
        """The class of each text, as an array of the type of the classes.

        Raises
        ------
        BadLabel
            For the first label that is empty, too long, not a class, or, if no classes are given, NaN or infinite.
        """
        known = self._known
        labels = [known[text] if text in known else self._meet(text, place) for place, text in enumerate(texts)]
        return np.array(labels, dtype=np.str_ if self.classes is None else self.classes.dtype)

    def _meet(self, text: str, place: int) -> Label:
        if not text:
            raise BadLabel(place, "is empty: label it or leave it out")
        if len(text) > LONGEST_TEXT:  # each entry of an array of texts takes the memory of the longest one
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
    """The text of a label that is a number, a boolean or a text.

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
    """A value for a message; only its beginning if it is long.

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
    """The value of a text as a number, or the text itself, which equals no number."""
    try:
        if "_" not in text:
            # Only int distinguishes whole numbers beyond 2^53.
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
