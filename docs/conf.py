"""The site: `make docs` builds it from these pages and from the docstrings of the package, with warnings as errors."""

from __future__ import annotations

import sys
from pathlib import Path

from pygments.lexers.shell import BashLexer
from sphinx.application import Sphinx

from mllkm_scale import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "mllkm-scale"
author = "The mllkm-scale developers"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "commands",
    "contents",
    "names",
]
exclude_patterns = ["_ext", "_static"]
nitpicky = True
# Types of signatures are links where the reference has them. Others are of other packages, which a site that is built
# without a network cannot link to, or are parts inside of this one.
nitpick_ignore_regex = [("py:.*", ".*")]

myst_heading_anchors = 3

# Docstrings mark names by single backticks.
default_role = "code"
smartquotes_action = "D"  # dashes; quotes stay as they are typed
autodoc_member_order = "bysource"
# Methods that scikit-learn adds to every estimator for its metadata routing.
autodoc_default_options = {"exclude-members": "set_fit_request, set_partial_fit_request, set_score_request"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_type_aliases = {"Array": "Array", "ArrayLike": "ArrayLike"}
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 90
python_use_unqualified_type_names = True
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]

html_theme = "furo"
html_title = f"mllkm-scale {version}"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
pygments_style, pygments_dark_style = "friendly", "github-dark"
# Prompts and the output below a command are not copied with it.
copybutton_prompt_text = ">>> |\\.\\.\\. "
copybutton_prompt_is_regexp = True


def setup(app: Sphinx) -> None:
    """Command lines of the pages have no prompt, without which Pygments takes them for output."""
    app.add_lexer("console", BashLexer)
