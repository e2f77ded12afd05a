"""Tables of reports, as Markdown: texts to the left, numbers to the right."""

from __future__ import annotations

from collections.abc import Sequence


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], texts: int = 1) -> str:
    """A table whose first `texts` columns are words."""
    marks = ["---" if i < texts else "---:" for i in range(len(columns))]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in (columns, marks, *rows))
