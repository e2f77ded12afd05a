"""How Sphinx makes the documentation site: `make docs`, then open .docs/index.html.

The folder of the repository is the source, so that links between Markdown files mean the same in an editor and on the site.
Nothing is asked of a network: theme, fonts and scripts come with the packages.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))

import hwbench  # noqa: E402  # of this repository: it is installed editable

project = "hwbench"
author = "the hwbench authors"
release = version = hwbench.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",  # docstrings are Google's
    "gallery",
    "folders",
]
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**", "devices/README.md", "luts/README.md",
                    "predictors/README.md", "reports/README.md", "reports/*/**.md"]  # fmt: skip
exclude_patterns = ["docs/sphinx/theme", "docs/sphinx/__pycache__"]
root_doc = "docs/sphinx/index"

myst_heading_anchors = 4
"""Links name headings as they do where Markdown is shown."""
myst_enable_extensions = ["attrs_inline", "html_image"]
suppress_warnings = ["myst.header"]  # reports of studies begin their sections at the third level

autodoc_default_options = {"members": True, "exclude-members": "__init__"}  # of a Protocol it says nothing
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "separated"
autodoc_preserve_defaults = True

html_theme = "furo"
html_title = f"hwbench {release}"
html_additional_pages = {"index": "to_first_page.html"}
templates_path = ["theme"]
html_copy_source = False
html_show_sphinx = False
highlight_language = "text"


def setup(app: Any) -> None:
    """Of our own: tables of commas, which no highlighter knows."""
    app.add_lexer("csv", TextLexer)
