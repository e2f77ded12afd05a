"""The site of this repository's reports and a report page, used in a browser as by a reader: clicks, filters, addresses, CSV.

In `make campaign`: Chromium is unpacked for it. What can be checked without a browser is in tests/study/test_site.py.
"""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from urllib.parse import parse_qs

import pytest

import hwbench
from hwbench.core import schema
from hwbench.core.workspace import packaged
from hwbench.lut import schema as lut_schema
from hwbench.optimize import schema as optimize_schema
from hwbench.study.report import report
from hwbench.study.site_pages import LUT_COLUMNS
from studies import page_check
from tests.study.test_report import invent

pytestmark = pytest.mark.skipif(os.environ.get("HWBENCH_CAMPAIGN") != "1", reason="long: make campaign runs it")


@pytest.fixture(scope="module")
def browser():
    with page_check.started() as one:
        yield one


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    root = tmp_path_factory.mktemp("site")
    hwbench.site(packaged() / "reports", root / "out", root)
    return root / "out"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("report")
    found = invent(root)
    report(found, workspace=root)
    return found


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def same(told: str, stored: object) -> bool:
    if stored is None:
        return told == ""
    if isinstance(stored, bool):
        return told == str(stored).lower()
    return told == stored if isinstance(stored, str) else float(told) == stored


def quiet(browser: page_check.Browser, home: Path) -> None:
    assert browser.complaints == ()
    assert browser.foreign(home) == ()


def test_every_page_opens_fits_and_keeps_quiet_at_every_width(browser, site):
    for path in sorted(site.rglob("*.html")):
        for width, scheme in ((1400, "light"), (400, "dark")):
            browser.visit(path.as_uri(), width, scheme)
            quiet(browser, site)
            assert browser.value("document.documentElement.scrollWidth") <= width, f"{path.name} at {width}"


def test_the_csv_of_a_device_is_its_table(browser, site):
    path = packaged() / "luts" / "amd-epyc-25-1-1-2c" / "onnxruntime.parquet"
    browser.visit((site / "devices" / "amd-epyc-25-1-1-2c.html").as_uri())
    told = rows_of(browser.value("hwbench.tables['lut-onnxruntime'].csv()"))
    stored = schema.read(path, lut_schema.LUT)[0].to_pylist()
    assert len(told) == len(stored)
    for mine, row in zip(told, stored, strict=True):
        assert all(same(mine[column], row[column]) for column in LUT_COLUMNS if column in mine)


def test_the_csv_of_the_explorer_is_what_the_search_stored_and_what_is_shown(browser, folder):
    browser.visit((folder / "report.html").as_uri())
    stored = {row["trial"]: row for row in schema.read(folder / "trials.parquet", optimize_schema.TRIALS)[0].to_pylist()}
    told = rows_of(browser.value("hwbench.tables.trials.csv()"))
    assert len(told) == len(stored) == 50
    for mine in told:
        row = stored[int(mine["trial"])]
        assert all(same(mine[name], row[name]) for name in ("latency_ms", "upper_ms", "accuracy", "feasible", "architecture"))
    browser.value("(hwbench.explorer.pick[0].value = '1', hwbench.explorer.ask())")
    few = rows_of(browser.value("hwbench.tables.trials.csv()"))
    assert 0 < len(few) < 50
    assert {mine["architecture"][:2] for mine in few} == {"01"}
    browser.settle()
    assert browser.value("hwbench.views.front.data('trials').length") == len(few)
    quiet(browser, folder / "report.html")


def test_filters_leave_what_they_say(browser, folder):
    browser.visit((folder / "report.html").as_uri() + "#noise=1")
    stored = {row["trial"]: row for row in schema.read(folder / "trials.parquet", optimize_schema.TRIALS)[0].to_pylist()}
    noise, base = browser.value("hwbench.explorer.noise"), browser.value("hwbench.explorer.chosen.trial")
    shown = {int(row["trial"]) for row in rows_of(browser.value("hwbench.tables.trials.csv()"))}
    far = {
        i
        for i, row in stored.items()
        if abs(row["latency_ms"] - stored[base]["latency_ms"]) > noise * stored[base]["latency_ms"]
    }
    assert shown == far | {base}
    assert shown != stored.keys()


def test_an_address_shows_what_was_shown(browser, folder):
    home = (folder / "report.html").as_uri()
    browser.visit(home)
    browser.value(
        "(hwbench.explorer.choose(7), hwbench.tables['table-2'].ask({query: 'finalist', sort: '-2'}),"
        " hwbench.explorer.feasible.click())"
    )
    address = browser.value("location.href")
    state = parse_qs(address.partition("#")[2])
    assert state == {"trial": ["7"], "table-2.q": ["finalist"], "table-2.sort": ["-2"], "feasible": ["1"]}
    said = browser.value("document.getElementById('chosen').textContent")
    csvs = browser.value("[hwbench.tables['table-2'].csv(), hwbench.tables.trials.csv()]")
    browser.visit(address)
    assert browser.value("hwbench.explorer.chosen.trial") == 7
    assert browser.value("document.getElementById('chosen').textContent") == said
    assert browser.value("[hwbench.tables['table-2'].csv(), hwbench.tables.trials.csv()]") == csvs
    assert browser.value("location.href") == address
    browser.value("history.replaceState(null, '', '#'), dispatchEvent(new HashChangeEvent('hashchange'))")
    assert len(rows_of(browser.value("hwbench.tables.trials.csv()"))) == 50


def test_a_point_tells_its_genes_and_a_click_its_blocks_and_command(browser, folder):
    browser.visit((folder / "report.html").as_uri())
    place = browser.value(
        "(() => { const view = hwbench.views.front, row = view.data('trials').find((each) => each.trial === 20);"
        " const box = document.querySelector('[data-chart=front] canvas').getBoundingClientRect(), [x, y] = view.origin();"
        " document.querySelector('[data-chart=front]').scrollIntoView({block: 'center'});"
        " const now = document.querySelector('[data-chart=front] canvas').getBoundingClientRect();"
        " return [now.left + x + view.scale('x')(row.cost), now.top + y + view.scale('y')(row.accuracy)]; })()"
    )
    point = {"x": place[0], "y": place[1]}
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", **point)
    browser.until("!document.querySelector('.tip').hidden")
    tip = browser.value("document.querySelector('.tip').textContent")
    assert "depth" in tip
    assert "latency_ms" in tip
    for kind in ("mousePressed", "mouseReleased"):
        browser.ask("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **point)
    browser.until("location.hash.includes('trial=')")
    trial = int(browser.value("hwbench.explorer.chosen.trial"))
    said = browser.value("document.getElementById('chosen').textContent")
    assert f"Trial {trial}" in said
    assert "layer0.attention" in said
    assert f"hwbench measure trial-{trial}.onnx" in said
    blocks = browser.value("hwbench.explorer.blocks(hwbench.explorer.chosen)")
    assert all(milliseconds > 0 for _, _, milliseconds, _ in blocks)
    quiet(browser, folder / "report.html")


def test_the_command_of_a_trial_runs(browser, folder, tmp_path, monkeypatch):
    import shlex

    from typer.testing import CliRunner

    from hwbench.cli.main import build

    browser.visit((folder / "report.html").as_uri())
    stored = {row["trial"]: row for row in schema.read(folder / "trials.parquet", optimize_schema.TRIALS)[0].to_pylist()}
    monkeypatch.chdir(tmp_path)
    for trial in (0, 13, 49):
        command = browser.value(f"hwbench.explorer.command(hwbench.explorer.byTrial.get({trial}))")
        write, export, _ = command.replace(" \\\n", " ").split(" && ")
        words = shlex.split(write)
        assert words[:2] == ["printf", "%s"]
        Path(words[-1]).write_text(words[2])
        from hwbench.space.architectures import read

        assert read(words[-1]).population[:, 0].tobytes().hex() == stored[trial]["architecture"]
    done = CliRunner().invoke(build(), [word for word in shlex.split(export)[1:] if word != "\\"], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def test_arrow_keys_walk_and_headings_sort(browser, folder):
    browser.visit((folder / "report.html").as_uri())
    browser.value("(hwbench.explorer.choose(20), document.querySelector('[data-chart=front]').focus())")
    before = browser.value("hwbench.explorer.chosen._cost")
    browser.ask("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight", code="ArrowRight", windowsVirtualKeyCode=39)
    assert browser.value("hwbench.explorer.chosen._cost") > before
    browser.value("document.querySelector('#trials th:nth-child(2) button').click()")
    costs = [float(row["latency_ms"]) for row in rows_of(browser.value("hwbench.tables.trials.csv()"))]
    assert costs == sorted(costs)
    browser.value("document.querySelector('#trials th:nth-child(2) button').click()")
    assert browser.value("document.querySelector('#trials th:nth-child(2)').getAttribute('aria-sort')") == "descending"
    markdown = browser.value("hwbench.tables.trials.markdown()").splitlines()
    assert len(markdown) == 52
    assert markdown[1].startswith("| ---: | ---: |")


def test_the_search_of_the_site_finds_and_is_kept_in_the_address(browser, site):
    browser.visit((site / "index.html").as_uri() + "#q=naswot")
    links = browser.value("[...document.querySelectorAll('#site-found a')].map((each) => each.href)")
    assert any(link.endswith("proxies.html") for link in links)
    for link in links:
        browser.visit(link)
        quiet(browser, site)


def test_pages_of_devices_runtimes_and_strategies_have_their_charts(browser, site):
    for name in ("runtimes.html", "strategies.html"):
        browser.visit((site / name).as_uri())
        assert browser.value("Object.keys(hwbench.views).length") > 0
        assert browser.value("[...document.querySelectorAll('[data-chart] canvas')].every((each) => each.height > 50)")
