"""Tables fit the screen: wrapped by words, columns left out before a word is cut, all of them with --wide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwbench.cli import _console as console
from hwbench.cli import _layout as layout

KEY = "ffn_block(activation=gelu,dim=240,hidden=960,norm=pre,tokens=197)"
ROW = {
    "key": KEY,
    "ms": 1.25,
    "verdict": "noisy",
    "reason": "three processes lie 3.4 % apart, 1 % was asked",
    "setting": "fp32",
}


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def test_text_breaks_behind_words_and_within_keys():
    assert layout.wrapped("three processes lie apart", 10).splitlines() == ["three", "processes", "lie apart"]
    assert layout.wrapped(KEY, 30).splitlines() == ["ffn_block(activation=gelu,", "dim=240,hidden=960,norm=pre,", "tokens=197)"]
    assert layout.wrapped("a-device-2c -3.5 2026-11-18", 10).splitlines() == ["a-device-", "2c -3.5", "2026-11-18"]
    assert layout.wrapped("one\ntwo", 10) == "one\ntwo"
    assert layout.prose("see /a/path/that/is/long for it", 12).splitlines() == ["see", "/a/path/that/is/long", "for it"]


@given(st.text(alphabet="ab -,/(\n", max_size=60), st.integers(4, 30))
def test_wrapping_loses_nothing_and_keeps_the_width(text, width):
    done = layout.wrapped(text, width)
    assert "".join(done.split()) == "".join(text.split())
    assert all(len(line) <= width for line in done.splitlines())


@given(st.lists(st.lists(st.text(alphabet="ab ,", min_size=1, max_size=40), min_size=2, max_size=2), min_size=1, max_size=9))
def test_columns_fit_the_screen(cells):
    columns = [(f"head {i}", each) for i, each in enumerate(cells)]
    widths = layout.fitted(columns, 80)
    assert 1 <= len(widths) <= len(columns)
    assert layout.table_width(widths) <= 80


def shown(capsys, *asked, **how) -> list[str]:
    console.table(*asked, **how)
    return capsys.readouterr().out.splitlines()


def test_a_table_without_a_terminal_has_80_columns(capsys):
    lines = shown(capsys, "Rows", [ROW, {**ROW, "ms": 20.5}])
    assert lines[0] == "Rows, fp32"  # what all rows share is said once
    assert max(map(len, lines)) <= 80
    assert "│ hidden=960,norm=pre,tokens=197) " in "\n".join(lines)
    assert "   ms ┃" in lines[2]  # numbers stand on the right


def test_what_does_not_fit_is_named_and_wide_shows_it(capsys):
    row = {**ROW, "first": "x" * 30, "last": "y" * 30}
    lines = shown(capsys, "Rows", [row])
    assert max(map(len, lines)) <= 80
    assert "y" * 30 not in "".join(lines)
    assert lines[-1] == "More columns: first, last (--wide)"
    wide = shown(capsys, "Rows", [row], wide=True)
    assert f"│ {KEY} │ 1.25 │ noisy" in "\n".join(wide)
    assert "y" * 30 in "".join(wide)


def test_columns_shown_only_when_asked_for(capsys):
    columns = {"key": "key", "ms": "min ms", "reason": "reason"}
    lines = shown(capsys, "Rows", [ROW], columns, more="reason")
    assert "apart" not in "".join(lines)
    assert lines[-1] == "More columns: reason (--wide)"
    assert "apart" in "".join(shown(capsys, "Rows", [ROW], columns, True, "reason"))
    assert "apart" in "".join(shown(capsys, "Rows", [{**ROW, "key": "relu()"}], columns, more="reason"))  # there is room


def test_a_wide_terminal_is_used(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert any(KEY in line for line in shown(capsys, "Rows", [ROW]))


def test_one_long_word_is_folded_and_text_is_no_markup(capsys):
    lines = shown(capsys, "Files", [{"name": "z" * 200}, {"name": "[bold]x[/bold]"}])
    assert max(map(len, lines)) <= 80
    assert "".join(lines).count("z") == 200
    assert "[bold]x[/bold]" in "".join(lines)


@pytest.mark.parametrize("terminal", [True, False])
def test_sentences_are_wrapped_on_a_terminal_and_commands_never(capsys, monkeypatch, terminal):
    sentence, command = (
        "note: " + "three processes lie apart " * 6,
        "Run: hwbench fit --space bert --workspace '" + "a b/" * 30 + "'",
    )
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    console.say(sentence + command)
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines) == sentence + command
    assert (len(lines) > 2, lines[-1] == command) == (terminal, terminal)
    assert not terminal or max(map(len, lines[:-1])) <= 80


def test_shares_are_in_percent():
    told = console.error_row({"n": 4, "mean_abs_error": 0.034, "bias": -0.01, "kendall_tau": 0.98})
    assert told == {"n": 4, "mean_abs_error": "3.40%", "bias": "-1.00%", "kendall_tau": 0.98}
    assert list(console.error_columns({"name": "estimate"}, [told])) == ["name", *told]
