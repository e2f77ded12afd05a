"""What is written is read again as it was meant: tables keep their cells, any text stays text."""

from __future__ import annotations

import html
import re

from hypothesis import given
from hypothesis import strategies as st

from hwbench.core import markdown

cells = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
tables = st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(cells, min_size=n, max_size=n), min_size=1, max_size=4))


def read(table: str) -> list[list[str]]:
    """The cells of every line: bars without a backslash before them part cells."""
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.split("\n")]


def unescaped(text: str) -> str:
    return html.unescape(re.sub(r"\\(.)", r"\1", text))


def test_a_table_has_words_to_the_left_and_numbers_to_the_right():
    found = markdown.table(["name", "at", "ms"], [["a", "b", 1], ["c", "d", 2.5]], texts=2)
    assert found == "| name | at | ms |\n| --- | --- | ---: |\n| a | b | 1 |\n| c | d | 2.5 |"


def test_bars_and_line_breaks_stay_inside_their_cell():
    found = markdown.table(["a|b", "n"], [["x\ny | z", 1], [r"done \| already", 2]])
    assert found == "| a\\|b | n |\n| --- | ---: |\n| x y \\| z | 1 |\n| done \\| already | 2 |"
    assert [len(line) for line in read(found)] == [2, 2, 2, 2]


@given(tables)
def test_any_text_comes_back_from_a_table_when_it_was_escaped(rows):
    head, *rest = [[markdown.escaped(cell) for cell in row] for row in rows]
    found = read(markdown.table(head, rest))
    assert len(found) == len(rows) + 1
    told = [[unescaped(cell) for cell in line] for line in (found[0], *found[2:])]
    assert told == [[" ".join(cell.split()) for cell in row] for row in rows]


def test_a_document_is_its_parts_with_blank_lines_between_them():
    parts = [
        markdown.heading("Title"),
        markdown.heading("Part\none", 2),
        markdown.bullets(["a", "b\nc"]),
        markdown.picture("what it shows", "figures/one.svg"),
        markdown.code("hwbench list\nhwbench report"),
    ]
    assert markdown.document(*parts) == (
        "# Title\n\n## Part one\n\n- a\n- b c\n\n![what it shows](figures/one.svg)\n\n    hwbench list\n    hwbench report\n"
    )


def test_escaped_text_marks_nothing():
    assert markdown.escaped("a*b_c`d[e]<f>&|\\") == r"a\*b\_c\`d\[e\]&lt;f>&amp;\|" + "\\\\"
