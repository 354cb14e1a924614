"""Settings of the documentation: ``make docs`` builds it, and a warning stops it."""

import re
from typing import Any

import polarbear
from polarbear.cli import COMMANDS

project = "polarbear"
author = copyright = "The polarbear developers"  # noqa: A001
version = release = polarbear.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "substitution"]
myst_substitutions = {
    "commands": "\n".join(
        ["| command | what it does |", "|---|---|"]
        + [f"| `polarbear {name}` | {summary} |" for name, summary in COMMANDS.items()]
    )
}
myst_heading_anchors = 3
# The notebook is executed in the tests; the pages show what it printed when it was saved.
nb_execution_mode = "off"
# Tables that the report writes are parts of pages.
exclude_patterns = ["_build", "figures/*.md"]

# Adapters are documented without the libraries they are for.
autodoc_mock_imports = ["avalanche", "continuum", "grain", "torchmetrics", "transformers"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"polarbear {release}"
html_theme_options = {"navigation_with_keys": True}


def _escape_bars(
    app: Any, what: str, name: str, obj: object, options: Any, lines: list[str]
) -> None:
    """Keep |Y ∩ P|, the size of a set, from being read as the name of a substitution."""
    lines[:] = [re.sub(r"\|(?=[YP])|(?<=[YP])\|", r"\\|", line) for line in lines]


def setup(app: Any) -> None:
    """Tell Sphinx what to do with docstrings."""
    app.connect("autodoc-process-docstring", _escape_bars)
