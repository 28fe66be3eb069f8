"""C as text: numbers that read back as the same bits, tables, and strings of any label."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["c_comment", "c_float", "c_string", "c_table"]

_WIDTH = 116


def c_float(value: Any) -> str:
    """A float constant that reads back as the same bits.

    >>> c_float(np.float32(0.1)), c_float(2.0), c_float(-1e-30)
    ('0.100000001f', '2.0f', '-1.00000000e-30f')
    """
    text = f"{float(np.float32(value)):.9g}"
    if "e" in text:
        text = f"{float(np.float32(value)):.8e}"
    return f"{text}f" if "e" in text or "." in text else f"{text}.0f"


def c_table(name: str, values: NDArray[Any]) -> str:
    """A constant table, all axes one after another; C knows no table without entries, so that there is always one."""
    kind = {"f": "float", "u": "unsigned short", "i": "long"}[values.dtype.kind]
    flat = values.ravel().tolist() or [0]
    words = [c_float(value) if kind == "float" else str(value) for value in flat]
    lines, line = [], "   "
    for word in words:
        if len(line) + len(word) + 2 > _WIDTH:
            lines.append(line)
            line = "   "
        line += f" {word},"
    lines.append(line.rstrip(","))
    body = "\n".join(lines)
    return f"static const {kind} {name}[{len(flat)}] = {{\n{body}\n}};\n"


def c_string(text: str) -> str:
    """A string constant of any text, as UTF-8; nothing in it can be taken for an escape or a trigraph.

    >>> print(c_string('say "é"'))
    "say \\"\\303\\251\\""
    """
    plain = set(range(0x20, 0x7F)) - set(b'"\\?')
    quoted = {ord('"'): '\\"', ord("\\"): "\\\\"}
    return '"' + "".join(quoted.get(b, chr(b) if b in plain else f"\\{b:03o}") for b in text.encode()) + '"'


def c_comment(lines: list[str]) -> str:
    """A comment of these lines; what would end it early is taken apart."""
    body = "\n".join(f" * {line}".rstrip() for line in lines)
    return "/*\n" + body.replace("*/", "* /") + "\n */\n"
