"""README.md and docs/*.md tell the truth: console_blocks.py says how."""

from __future__ import annotations

import os
import re

import pytest

from hwbench.cli.main import build
from tests import campaign
from tests.docs.console_blocks import (
    FENCE,
    PAGES,
    ROOT,
    Page,
    Shell,
    agree,
    commands,
    record_page,
    recorded,
    run_page,
    understood,
)
from tests.docs.stages import staged
from tests.frozen.record import RECORDING

NOT_RUN = {
    "README.md": 1,
    "docs/boards.md": 12,
    "docs/compress.md": 2,
    "docs/many-machines.md": 6,
    "docs/measuring.md": 6,
    "docs/model.md": 7,
    "docs/research.md": 7,
    "docs/tutorial-contribution.md": 3,
}
"""Page -> how many of its commands are not run; a page that is not here has none."""
ALL = [Page(path) for path in PAGES]
TEXTS = sorted(
    {*PAGES, *(ROOT / name for name in ("CONTRIBUTING.md", "docs/api.md", "predictors/README.md", "reports/README.md"))}
)
LINKING = sorted({ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "reports" / "README.md", *(ROOT / "docs").glob("*.md")})
APP = build()
CAMPAIGN_PAGES = tuple(
    f"docs/{name}.md"
    for name in ("model", "search", "tutorial-budget", "tutorial-contribution", "tutorial-device", "tutorial-research")
)
"""Minutes that `make test` has not: left to `make campaign`. The others ask for more there, too."""
RUN = [pytest.param(page, marks=pytest.mark.campaign(always=page.name not in CAMPAIGN_PAGES)) for page in ALL]
BRIEF = os.environ.get("HWBENCH_BRIEF") == "1"


def slug(head: str) -> str:
    """What a heading is called in links."""
    return re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-")


def shown_but_not_run(page: Page) -> list[str]:
    """Commands outside of console blocks, where nobody would run them."""
    text = page.path.read_text(encoding="utf-8")
    others = [block["text"] for block in FENCE.finditer(text) if not block["info"].startswith("console")]
    indented = re.findall(r"^    ((?:\$ )?hwbench .*)$", FENCE.sub("", text), re.MULTILINE)
    return [*indented, *(line for text in others for line in re.findall(r"^(?:\$ )?(hwbench [a-z].*)$", text, re.MULTILINE))]


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_every_command_prints_what_the_page_shows(page, tmp_path):
    folder = tmp_path / "work"
    with staged(page.name, folder, tmp_path) as path:
        if RECORDING:
            record_page(page, Shell(folder, tmp_path / "bin", brief=BRIEF, campaign=campaign.RUNNING, path=path))
            pytest.skip(f"recorded {page.name}")
        wrong = run_page(page, Shell(folder, tmp_path / "bin", campaign=campaign.RUNNING, path=path))
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.name)
def test_what_is_not_run_says_why_is_counted_and_understood(page):
    left_out = page.not_run()
    assert len(left_out) == NOT_RUN.get(page.name, 0)
    for _, command in left_out:
        for part in re.split(r"&&|;|\|", command.line.partition("  #")[0]):
            if part.strip().startswith("hwbench "):
                assert understood(part.strip(), APP) is None, command.line


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.name)
def test_every_command_stands_in_a_console_block(page):
    assert shown_but_not_run(page) == []


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_command_within_a_text_is_understood(path):
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    for line in re.findall(r"`(hwbench [a-z][^`]*)`", text):
        for part in filter(None, map(str.strip, line.split("&&"))):
            assert not part.startswith("hwbench ") or understood(part, APP) is None, part


def test_blocks_are_of_known_kinds():
    for page in ALL:
        infos = [block["info"].strip() for block in FENCE.finditer(page.path.read_text(encoding="utf-8"))]
        bad = [
            info for info in infos if info.startswith("console") and not re.fullmatch(r"console( no-run: .+| campaign)?", info)
        ]
        assert bad == [], page.name


def test_every_page_named_here_is_there():
    assert {ROOT / name for name in NOT_RUN} <= set(PAGES)


def test_the_readme_takes_two_minutes_to_read():
    assert len((ROOT / "README.md").read_bytes()) <= 10_000


@pytest.mark.parametrize("path", LINKING, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(path):
    for target in re.findall(r"(?:\]\(|<img src=\")([^)\s\"]+)", FENCE.sub("", path.read_text(encoding="utf-8"))):
        if not target.startswith(("http://", "https://")):
            file, _, anchor = target.partition("#")
            there = (path.parent / file).resolve() if file else path
            assert there.exists(), target
            if anchor:
                heads = re.findall(r"^#+ (.*)$", FENCE.sub("", there.read_text(encoding="utf-8")), re.MULTILINE)
                assert anchor in {slug(head) for head in heads}, target


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for path in (ROOT / "docs").glob("*.md"):
        assert path.name == "README.md" or f"({path.name})" in index, path.name


def test_commands_of_a_block():
    one, two = commands("$ hwbench a \\\n    --b\nsays\nthis\n$ false  # exit code 1\n")
    assert (one.line, one.shown, one.code) == ("hwbench a \\\n    --b", "says\nthis\n", 0)
    assert (two.line, two.shown, two.code) == ("false  # exit code 1", "", 1)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("12.5 ms on amd-epyc-26-2-1-2c, 2026-11-18", "9 ms on intel-xeon-6-207-2-2c, 2027-01-02", True),
        ("m.onnx: noisy: others used the CPU", "m.onnx: stable: spread 0.3 %", True),
        ("(AMD EPYC, 2 cores)", "(Intel(R) Xeon, 64 cores)", True),
        ("winner: {'depth': 12}", "winner: {'depth': 13, 'heads': [3]}", True),
        ("fp32 on 2 threads", "int8 on 2 threads", False),
        ("fp32", "fp33", False),
        ("report: reports/q-7031cafd/report.html", "report: reports/q-12345678/report.html", True),
        ("a\n...\nz\n", "a\nb\nc\nz\n", True),
        ("a\nb\n", "a\n[0:22] profiling, 4 of 9 (44 %), about 0:31 left\nb\n", True),
        ("a.onnx against b.onnx: same. Within 2 %", "a.onnx against b.onnx: too close to call. After 9 rounds", True),
        ("9 ms kept (noisy: slow (canary); minima); finalists: 5", "8 ms BROKEN; finalists: 0", True),
        ("a\n...\n", "a\n", True),
        ("...\nb 2\n...\n", "a\nb 3\nc\n", True),
        ("a\n...\nz\n", "a\nb\n", False),
        ("a\n...\nc\nz\n", "a z\n", False),
    ],
)
def test_outputs_are_compared_without_what_was_measured(shown, printed, same):
    assert agree(shown, printed) is same


def test_dots_stay_where_an_output_is_recorded_anew():
    assert recorded("a 1\n...\nz 2\n", "a 3\nb\nz 4\n") == "a 3\n...\nz 4\n"
    assert recorded("old\n", "new\n") == "new\n"


def test_lines_between_dots_that_changed_are_followed_by_what_is_like_them():
    shown, printed = "...\nwinner: 3 ms\n...\nnext: a\n", "title\nother\nthe winner: 4 ms\nnote\nnext: b\n"
    assert recorded(shown, printed) == "...\nthe winner: 4 ms\n...\nnext: b\n"
    assert recorded("a\n...\n", "b\nc\n") == "b\n...\n"
