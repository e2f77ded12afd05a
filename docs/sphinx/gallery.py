"""The directive `{studies}`: every study under reports/ with its pages and a picture, newest first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

REPORTS = Path(__file__).parents[2] / "reports"
FROM_HERE = "../../reports"
"""The same, as the page of the gallery links it."""
TITLE = re.compile(r"^#+ (.+)$", re.MULTILINE)


def markdown(reports: Path = REPORTS) -> Iterator[str]:
    """The gallery's lines."""
    for study in sorted((each for each in reports.iterdir() if each.is_dir()), key=lambda each: each.name[-10:], reverse=True):
        documents = sorted(study.rglob("*.md"), key=lambda each: (len(each.parts), each.name != "README.md", each))
        if not documents:
            continue
        yield from (f"## {study.name}", "")
        pictures = [
            each for each in sorted(study.rglob("*.svg")) if each.stem.startswith(("front", "compare", "known", "paid"))
        ]
        for picture in pictures[:1]:
            yield from (f"![{study.name}]({FROM_HERE}/{picture.relative_to(reports).as_posix()}){{width=400px}}", "")
        for document in documents:
            path = document.relative_to(reports).as_posix()
            yield f"- [{title(document)}]({FROM_HERE}/{path}): `{path}`"
        yield ""


def title(document: Path) -> str:
    """Its first heading, else its name."""
    found = TITLE.search(document.read_text(encoding="utf-8"))
    return found.group(1) if found else document.stem


class Studies(SphinxDirective):
    """The gallery."""

    def run(self) -> list[nodes.Node]:
        """As if its lines stood in the page."""
        self.env.note_reread()
        made = nodes.section()
        made.document = self.state.document
        self.state.nested_parse(StringList(list(markdown()), source=str(REPORTS)), self.content_offset, made, match_titles=True)
        return made.children


def setup(app: Any) -> dict[str, Any]:
    """For Sphinx."""
    app.add_directive("studies", Studies)
    return {"version": "1", "parallel_read_safe": True}
