"""The documentation site (`make docs`): every page has its place, the reference is complete, and it is made without a warning.

That links lead somewhere is checked with all other pages, by test_pages.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import hwbench
from hwbench.core import registry
from tests.docs.console_blocks import ROOT

SPHINX = ROOT / "docs" / "sphinx"
TOCTREE = re.compile(r"```\{toctree\}\n(?P<lines>.*?)```", re.DOTALL)


def listed(page: Path) -> list[Path]:
    """The pages that a page's tables of contents name."""
    blocks = TOCTREE.findall(page.read_text(encoding="utf-8"))
    lines = [line for block in blocks for line in block.splitlines() if line and not line.startswith(":")]
    return [(page.parent / line).resolve() for line in lines]


def test_every_page_stands_once_in_the_contents():
    named = listed(SPHINX / "index.md")
    assert len(named) == len(set(named))
    pages = {*(ROOT / "docs").glob("*.md"), *SPHINX.glob("*.md")} - {SPHINX / "index.md"}
    outside = {ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")}
    outside |= {ROOT / name / "README.md" for name in ("devices", "luts", "predictors", "reports")}
    assert set(named) == pages | outside


def test_every_public_function_is_in_the_reference():
    named = re.findall(r"autofunction:: hwbench\.(\w+)$", (SPHINX / "functions.md").read_text(), re.MULTILINE)
    assert ["__version__", *sorted(named)] == hwbench.__all__


def test_every_contract_is_in_the_reference():
    text = (SPHINX / "protocols.md").read_text()
    named = re.findall(r"## (\w+)\n\n```\{eval-rst\}\n\.\. autoclass:: ([\w.]+)\n```", text)
    contracts = {kind.capitalize(): registry.contract(kind) for kind in sorted(registry.kinds())}
    assert named == [(head, f"{each.__module__}.{each.__name__}") for head, each in contracts.items()]


def test_every_study_is_in_the_gallery(monkeypatch):
    monkeypatch.syspath_prepend(str(SPHINX))
    import gallery

    lines = list(gallery.markdown())
    studies = {path.relative_to(ROOT / "reports").parts[0] for path in (ROOT / "reports").rglob("*/*.md")}
    assert {line.removeprefix("## ") for line in lines if line.startswith("## ")} == studies
    for target in re.findall(r"\]\(([^)]+)\)", "\n".join(lines)):
        assert (SPHINX / target).is_file(), target


class Page(HTMLParser):
    """What a page of the site links, loads and can be linked at."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.names: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs) -> None:
        given = dict(attrs)
        self.names |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag in ("script", "img", "iframe", "source") and given.get("src"):
            self.loads.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "preload", "icon", "preconnect"):
            self.loads.append(given["href"])


@pytest.mark.campaign
def test_the_site_is_made_without_a_warning_and_needs_no_network(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", str(SPHINX), "-d", str(tmp_path / "trees")]
    # Whatever would ask a network ends there.
    nowhere = {f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https")}
    env = {**os.environ, **nowhere, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, str(ROOT), str(tmp_path / "site")], env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    pages = {path.resolve(): Page(path) for path in (tmp_path / "site").rglob("*.html")}
    assert len(pages) > 60
    for path, page in pages.items():
        for target in (*page.links, *page.loads):
            if target.startswith(("http://", "https://", "data:", "mailto:")):
                assert target in page.links, f"{path.name} loads {target}"
                continue
            file, _, place = unquote(target).partition("#")
            there = (path.parent / file.partition("?")[0]).resolve() if file else path
            assert there.exists(), f"{path.name} links {target}"
            if place and there in pages:
                assert place in pages[there].names, f"{path.name} links {target}"
