"""The site of a folder of reports: every page opens, every link leads somewhere, every number is the stored one."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from urllib.parse import unquote

import pytest

import hwbench
from hwbench.core import schema
from hwbench.core.errors import UsageError
from hwbench.core.workspace import packaged
from hwbench.lut import schema as lut_schema
from hwbench.study import prose
from hwbench.study.site_pages import LUT_COLUMNS
from tests.study.test_page import HOSTILE, data_of
from tests.study.test_report import Page, invent

OURS = packaged() / "reports"
TAKEN = ("search-2026-11-17", "proxies-2026-11-18", "targets-2026-11-17", "trust-2026-11-16")
FILES = ("*.md", "*.svg", "*.png", "compare.json", "summary.json", "agreement.json", "study.json")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A site of four studies of ours, a search, and one with hostile text."""
    root = tmp_path_factory.mktemp("site")
    reports = root / "reports"
    for name in TAKEN:
        for path in (each for pattern in FILES for each in (OURS / name).rglob(pattern)):
            target = reports / name / path.relative_to(OURS / name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    shutil.copytree(invent(root), reports / "search-of-a-test-2000-01-03")
    bad = reports / "hostile-2000-01-02"
    bad.mkdir()
    links = "[a](javascript:alert(1)) [b](../trust-2026-11-16/trust.md) [c](../../secret.md) [d](https://example.org)"
    links += " ![e](https://example.org/x.png)"
    table = f"| name {HOSTILE} | n |\n|---|---:|\n| {HOSTILE} | 1 |\n| b | 2 |"
    (bad / "README.md").write_text(f"# {HOSTILE}\n\n{HOSTILE}\n\n{links}\n\n{table}\n\n    hwbench list ops\n")
    done = hwbench.site(reports, root / "out", root)
    return root / "out", done, reports


def pages(out: Path) -> list[Path]:
    return sorted(out.rglob("*.html"))


def test_every_link_and_picture_leads_to_what_is_there(built):
    out, done, _ = built
    assert done["studies"] == len(TAKEN) + 2
    assert done["pages"] == len(pages(out))
    ids = {path: {attrs["id"] for _, attrs in Page(path.read_text()).tags if "id" in attrs} for path in pages(out)}
    for path in pages(out):
        for tag, attrs in Page(path.read_text()).tags:
            target = attrs.get("href") or attrs.get("src")
            if not target or target.startswith("data:"):
                continue
            if target.startswith("http"):
                assert (tag, target) == ("a", "https://example.org"), "only a link that a person clicks leads away"
                continue
            name, _, anchor = target.partition("#")
            found = (path.parent / unquote(name)).resolve() if name else path
            assert found.is_file(), f"{path.name}: {target}"
            assert out in found.parents
            if anchor and found.suffix == ".html":
                assert anchor in ids[found], f"{path.name}: {target}"


def test_every_study_is_in_the_gallery_with_a_picture_and_a_page(built):
    out, _, reports = built
    tags = Page((out / "index.html").read_text()).tags
    links = [attrs["href"] for tag, attrs in tags if attrs.get("class") == "study"]
    assert links == [
        "studies/proxies-2026-11-18.html", "studies/search-2026-11-17.html", "studies/targets-2026-11-17.html",
        "studies/trust-2026-11-16.html", "studies/search-of-a-test-2000-01-03.html", "studies/hostile-2000-01-02.html",
    ]  # fmt: skip
    pictures = [attrs["src"] for tag, attrs in tags if tag == "img"]
    assert len(pictures) == len(links)
    for path in reports.rglob("*.md"):
        first = path.read_text().splitlines()[0].lstrip("# ")
        page = (out / "studies" / f"{path.relative_to(reports).parts[0]}.html").read_text()
        assert first[:40] in Page(page).text


def test_hostile_reports_stay_text(built):
    out, _, _ = built
    tags = Page((out / "studies" / "hostile-2000-01-02.html").read_text()).tags
    assert [attrs for _, attrs in tags if "onerror" in attrs] == []
    assert [attrs.get("src") or attrs.get("type") for tag, attrs in tags if tag == "script"] == [
        "application/json",
        "../assets/page.js",
    ]
    hrefs = [attrs.get("href") for tag, attrs in tags if tag == "a"]
    assert "trust-2026-11-16.html" in hrefs
    assert "https://example.org" in hrefs
    assert [href for href in hrefs if href and ("javascript" in href or "secret" in href)] == []
    assert [attrs["data-command"] for _, attrs in tags if "data-command" in attrs] == ["hwbench list ops"]


def test_tables_of_devices_are_the_stored_rows(built):
    out, _, _ = built
    for path in sorted((packaged() / "luts").glob("*/*.parquet")):
        if path.stem.endswith(".networks"):
            continue
        told = data_of((out / "devices" / f"{path.parent.name}.html").read_text())["tables"][f"lut-{path.stem}"]
        stored = schema.read(path, lut_schema.LUT)[0]
        for column in LUT_COLUMNS:
            values = stored.column(column).to_pylist()
            assert told.get(column, [None] * len(values)) == values


def test_what_is_searched_leads_to_pages(built):
    out, _, _ = built
    text = (out / "assets" / "index.js").read_text()
    index = json.loads(text.removeprefix("globalThis.hwbenchIndex=").rstrip(";\n"))
    kinds = {each["kind"] for each in index}
    assert {"device", "strategy", "training-free score", "word", "lookup table", "comparison"} <= kinds
    for each in index:
        name, _, anchor = each["page"].partition("#")
        assert (out / name).is_file()
        assert not anchor or f'id="{anchor}"' in (out / name).read_text()
    assert any("naswot" in each["title"] for each in index)


def test_leaderboards_say_what_is_beyond_noise_and_how_to_run_it_again(built):
    out, _, _ = built
    told = json.loads((OURS / "search-2026-11-17" / "whole" / "summary.json").read_text())
    html = (out / "strategies.html").read_text()
    tags = Page(html).tags
    assert told["command"] in {attrs.get("data-command") for _, attrs in tags}
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", html)
    value = told["strategies"]["hurdles"]["paid"]["hypervolume"]
    assert f"{100 * value['value'][0]:.2f} [{100 * value['low'][0]:.2f}, {100 * value['high'][0]:.2f}]" in cells
    assert any(cell.endswith("beyond noise") for cell in cells)
    assert any(cell.endswith("within noise") for cell in cells)
    proxies = re.findall(r"<td[^>]*>([^<]*)</td>", (out / "proxies.html").read_text())
    tau = json.loads((OURS / "proxies-2026-11-18/stages/agreement.json").read_text())["result"]["bert"]["scores"]["hwbench"][
        "tau"
    ]
    assert f"{tau[0]:.3f} [{tau[1]:.3f}, {tau[2]:.3f}]" in proxies
    compared = json.loads((OURS / "targets-2026-11-17/compare.json").read_text())
    runtimes = re.findall(r"<td[^>]*>([^<]*)</td>", (out / "runtimes.html").read_text())
    assert sum(cell == "within noise" for cell in runtimes) == sum(row["how"] == "within noise" for row in compared["rows"])


def test_a_search_can_be_explored_from_its_own_files(built):
    out, _, reports = built
    told = data_of((out / "studies" / "search-of-a-test-2000-01-03.html").read_text())
    stored = json.loads((reports / "search-of-a-test-2000-01-03" / "search.json").read_text())
    assert told["explorer"]["space"] == stored["space"]
    assert len(told["datasets"]["trials"]["trial"]) == 50


def test_the_same_reports_give_the_same_bytes_and_what_was_there_goes(built, tmp_path):
    out, done, reports = built

    def files(folder: Path) -> dict[str, bytes]:
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    shutil.copytree(out, tmp_path / "out")
    (tmp_path / "out" / "studies" / "gone.html").write_text("old")
    again = hwbench.site(reports, tmp_path / "out", out.parent)
    assert files(tmp_path / "out") == files(out)
    assert {**again, "index": ""} == {**done, "index": ""}


def test_wrong_folders_are_one_line(tmp_path):
    with pytest.raises(UsageError, match="holds no reports"):
        hwbench.site(tmp_path / "none", tmp_path / "out")
    (tmp_path / "reports" / "a").mkdir(parents=True)
    (tmp_path / "reports" / "a" / "a.md").write_text("# A\n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds something that is no site"):
        hwbench.site(tmp_path / "reports", tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "mine"


def test_prose_finds_what_makes_a_report_again():
    def nowhere(_: str) -> None:
        return None

    text = "# T `x`\n\nMade by `python -m studies.trust --out a` today.\n\n"
    text += "    hwbench fit \\\n        --space bert\n\n| a | b |\n|---|---:|\n| `k` | 1.5 |\n"
    found = prose.read(text, "t", nowhere, nowhere)
    assert (found.title, found.command) == ("T x", "python -m studies.trust --out a")
    assert found.first_table == (["a", "b"], [["k", "1.5"]])
    assert '<table class="data" id="t-1" data-command="python -m studies.trust --out a">' in found.html
    assert '<td class="number">1.5</td>' in found.html
    assert (
        prose.read("    $ hwbench fit \\\n        --space bert\n", "t", nowhere, nowhere).command == "hwbench fit --space bert"
    )
