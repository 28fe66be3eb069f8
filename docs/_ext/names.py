"""The fence `{names} PACKAGE`: everything in `__all__` of a package or module, from its docstrings.

    ```{names} mllkm_scale.data
    :but: work_dtype
    ```

The names are those of the package, in its order, so that one that is added to it is in the reference too.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module

from sphinx.application import Sphinx

FENCE = re.compile(r"^```\{names\} ([\w.]+)\n(?::but: (.*)\n)?```$", re.MULTILINE)

ARRAY = re.compile(
    r"[~\w.]*ndarray\[tuple\[[~\w.]*Any, \.\.\.\], [~\w.]*dtype\[[~\w.]+\]\]"
    r"|TypeAliasForwardRef\('(\w+)'\)"
)


def directives(module: str, but: str) -> str:
    """A fence of autodoc directives for the names of a module."""
    left_out = but.split()
    package = import_module(module)
    lines = []
    for name in package.__all__:
        if name in left_out:
            continue
        found = getattr(package, name)
        if inspect.isclass(found):
            lines += [f".. autoclass:: {module}.{name}", "   :members:", f"   :inherited-members: {_foreign(found)}"]
            # Of what an error is too, such as ValueError, matters to who catches it.
            lines += ["   :show-inheritance:", ""] if issubclass(found, Exception) else [""]
        elif inspect.isroutine(found):
            lines += [f".. autofunction:: {module}.{name}", ""]
        else:
            lines += [f".. py:data:: {module}.{name}", ""]
    return "\n".join(["```{eval-rst}", *lines, "```"])


def _foreign(found: type) -> str:
    """Classes of other packages that it derives from: their members are described there."""
    return ", ".join(base.__name__ for base in found.__mro__ if not base.__module__.startswith("mllkm_scale"))


def expand(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = FENCE.sub(lambda found: directives(found[1], found[2] or ""), source[0])


def shorten(app: Sphinx, what: str, name: str, found: object, options: object, signature: str, returns: str) -> object:
    """Types of arrays as people say them."""
    return tuple(text and ARRAY.sub(lambda match: match[1] or "Array", text) for text in (signature, returns))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", expand)
    app.connect("autodoc-process-signature", shorten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
