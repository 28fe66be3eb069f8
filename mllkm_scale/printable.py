"""Text of files, names and labels with escaped control characters, safe for terminals, logs and pages."""

from __future__ import annotations

import unicodedata

__all__ = ["printable"]

_CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, formats such as a change of direction, surrogates, line ends
_JOINERS = "\u200c\u200d"  # of words in Persian and of pictures: they only change how letters look


def printable(text: object, *, keep: str = "", longest: int | None = None) -> str:
    """A value as text in which every control character is escaped as Python writes it.

    Parameters
    ----------
    text : object
    keep : str
        Control characters that stay, such as the line ends of a text of several lines.
    longest : int, optional
        Characters of the text that are shown, at most.

    Examples
    --------
    >>> print(printable("cat\\x1b[2J"), printable("état"), printable("a\\nb"))
    cat\\x1b[2J état a\\nb
    >>> printable("a" * 50, longest=4)
    'aaaa...'
    """
    given = str(text)
    if longest is not None and len(given) > longest:
        given = f"{given[:longest]}..."
    if given.isprintable():
        return given
    return "".join(c if c in keep or not _is_control(c) else _escaped(c) for c in given)


def _is_control(c: str) -> bool:
    return unicodedata.category(c) in _CONTROLS and c not in _JOINERS


def _escaped(c: str) -> str:
    return c.encode("unicode_escape").decode("ascii")
