"""C source as text: exact numbers, tables, and strings of any label."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["c_comment", "c_float", "c_string", "c_table"]

_A_LINE = 6  # numbers
_UNSAFE = re.compile(r"[^A-Za-z0-9 .,;:+\-=%()\[\]<>_*/#&'\"]")


def c_float(value: float) -> str:
    """A float constant with exactly the bits of a number in single precision.

    >>> c_float(float(np.float32(0.1))), c_float(2.0), c_float(2.0**-100)
    ('0.100000001f', '2.0f', '7.88860905e-31f')
    """
    text = f"{value:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def c_table(name: str, values: NDArray[Any], kind: str | None = None, attribute: str = "") -> str:
    """A constant table, flattened; it has at least one entry, because C has no empty tables."""
    kind = kind or {"f": "float", "u": "unsigned short", "i": "long"}[values.dtype.kind]
    word = c_float if kind == "float" else str
    flat = values.ravel() if values.size else np.zeros(1, values.dtype)
    lines = [", ".join(map(word, flat[start : start + _A_LINE].tolist())) for start in range(0, len(flat), _A_LINE)]
    body = ",\n    ".join(lines)
    return f"static const {kind} {name}[{len(flat)}]{attribute} = {{\n    {body}\n}};\n"


def c_string(text: str) -> str:
    """A string constant of any text, in UTF-8, without accidental escapes or trigraphs.

    >>> print(c_string('say "é"'))
    "say \\"\\303\\251\\""
    """
    plain = set(range(0x20, 0x7F)) - set(b'"\\?')
    quoted = {ord('"'): '\\"', ord("\\"): "\\\\"}
    return '"' + "".join(quoted.get(b, chr(b) if b in plain else f"\\{b:03o}") for b in text.encode()) + '"'


def c_comment(lines: list[str]) -> str:
    """A comment of these lines, with only letters, digits and harmless characters.

    No backslash or trigraph can join two lines, and the text cannot begin a comment or end this one.

    >>> print(c_comment(["status *\\\\", "/ int injected; ??/"]), end="")
    /*
     * status *_
     * / int injected; __/
     */
    """
    safe = [_UNSAFE.sub("_", line).replace("*/", "* /").replace("/*", "/ *").rstrip() for line in lines]
    return "/*\n" + "".join(f" * {line}".rstrip() + "\n" for line in safe) + " */\n"
