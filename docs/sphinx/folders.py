"""Links to folders: a host of repositories shows the folder, the site leads to what tells of it.

A study's folder is its place in the gallery; any other is the nearest README.md above.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

ROOT = Path(__file__).parents[2]
GALLERY = "docs/sphinx/gallery"


def lead(app: Any, doctree: nodes.document) -> None:
    """Turns what a page's links to folders mean."""
    here = (ROOT / app.env.docname).parent
    for link in doctree.findall(addnodes.pending_xref):
        folder = (here / str(link.get("reftarget"))).resolve()
        if link.get("reftype") != "myst" or not folder.is_dir() or not folder.is_relative_to(ROOT):
            continue
        if folder.parent == ROOT / "reports":
            link["refdomain"], link["reftarget"], link["reftargetid"] = "doc", GALLERY, folder.name
        else:
            tells = next(each for each in (folder, *folder.parents) if (each / "README.md").is_file())
            readme = (tells / "README").relative_to(ROOT).as_posix()
            link["refdomain"], link["reftarget"], link["reftargetid"] = "doc", readme, None


def setup(app: Any) -> dict[str, Any]:
    """For Sphinx."""
    app.connect("doctree-read", lead)
    return {"version": "1", "parallel_read_safe": True}
