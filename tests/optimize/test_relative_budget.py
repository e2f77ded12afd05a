"""A budget as a share of the largest architecture's latency: the same words on every device, and milliseconds from then on."""

from __future__ import annotations

import json
import re
import shlex

import numpy as np
import pytest
from typer.testing import CliRunner

import hwbench
from hwbench.core.errors import UsageError
from hwbench.optimize.errors import InfeasibleBudget
from hwbench.optimize.relative_budget import factor_of, text_of
from hwbench.optimize.settings import Settings
from hwbench.space.largest import largest
from tests.optimize.searches import FILES, one_line, without_seconds

DEVICE, SPACE = "amd-epyc-25-1-1-2c", "autoformer-small"
"""Shipped: nothing is measured."""


@pytest.mark.parametrize(("text", "factor"), [("0.6x", 0.6), ("1x", 1.0), (".5x", 0.5), ("2.x", 2.0), (" 0.75x ", 0.75)])
def test_a_share_is_a_number_and_an_x(text, factor):
    assert factor_of(text) == factor
    assert factor_of(text_of(factor)) == factor


@pytest.mark.parametrize("factor", [1 / 3, 0.1 + 0.2, 1e-3, 12345678.0])
def test_what_is_written_down_is_read_again(factor):
    assert factor_of(text_of(factor)) == pytest.approx(factor, rel=1e-5)


@pytest.mark.parametrize("text", ["0.6", "-1x", "x", "nanx", "infx", "0x", "1e3x", "", "0.6 x", "0,6x", f"{'9' * 400}x"])
def test_everything_else_is_answered_with_how_to_write_it(text, tmp_path):
    with pytest.raises(UsageError, match=r"is not understood; write 0\.6x") as error:
        hwbench.search(SPACE, budget=text, device=DEVICE, out=tmp_path / "never")
    one_line(error)
    assert not (tmp_path / "never").exists()


def command(words):
    build = pytest.importorskip("hwbench.cli.main").build
    return CliRunner(env={"COLUMNS": "200"}).invoke(build(), words)


def search(folder, **asked):
    asked = {"device": DEVICE, "workspace": folder.parent, "evaluations": 300, **asked}
    return hwbench.search(SPACE, out=folder, **asked)


def test_it_is_that_many_times_what_is_predicted_of_the_largest(tmp_path):
    found = search(tmp_path / "share", budget="0.6x")
    about = found["search"]
    model = hwbench.latency(SPACE, device=DEVICE)
    whole = model(largest(model.space)).value_ms
    assert about["budget_factor"] == 0.6
    assert about["budget_ms"] == pytest.approx(0.6 * whole, rel=5e-4)
    assert float(f"{about['budget_ms']:.4g}") == about["budget_ms"]
    assert about["finalists"][0]["upper_ms"] <= about["budget_ms"]
    assert Settings.of(about).asked == f"{about['budget_ms']:g} ms (min, 0.6x of the largest)"
    plain = search(tmp_path / "ms", budget_ms=about["budget_ms"])
    assert plain["architectures"] == found["architectures"]
    assert plain["search"]["budget_factor"] is None


def test_the_statistic_decides_of_which_latency(tmp_path):
    least, usual = (search(tmp_path / name, budget="0.7x", statistic=name)["search"]["budget_ms"] for name in ("min", "p50"))
    assert least < usual


def test_a_search_goes_on_and_its_command_asks_for_the_same(tmp_path):
    first = search(tmp_path / "one", budget="0.6x")
    before = [(tmp_path / "one" / name).read_bytes() for name in FILES]
    assert without_seconds(search(tmp_path / "one", budget="0.6x")) == without_seconds(first)
    assert [(tmp_path / "one" / name).read_bytes() for name in FILES] == before
    with pytest.raises(UsageError, match="holds another search"):
        search(tmp_path / "one", budget="0.7x")
    line = shlex.split(Settings.of(first["search"]).command(str(tmp_path / "two")))
    assert line[line.index("--budget") + 1] == "0.6x"
    assert "--budget-ms" not in line
    done = command([*line[1:], "--workspace", str(tmp_path), "--json"])
    assert json.loads(done.stdout.splitlines()[-1])["architectures"] == first["architectures"]


def test_one_budget_is_enough(tmp_path):
    with pytest.raises(UsageError, match=r"give --budget-ms or --budget 0\.6x, not both"):
        search(tmp_path / "never", budget="0.6x", budget_ms=12.0)


def test_a_share_out_of_reach_is_answered_with_one_that_is_not(tmp_path):
    with pytest.raises(InfeasibleBudget) as error:
        search(tmp_path / "small", budget="0.1x")
    (reachable,) = re.findall(r"Raise --budget 0\.1x to (\S+)x or", one_line(error))
    found = search(tmp_path / "reached", budget=f"{reachable}x")
    assert found["search"]["feasible"] > 0
    with pytest.raises(InfeasibleBudget):
        search(tmp_path / "less", budget=f"{float(reachable) - 0.01:g}x")


def test_searches_of_before_had_no_share(tmp_path):
    found = search(tmp_path / "old", budget_ms=150.0)
    path = tmp_path / "old" / "settings.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in stored.items() if name != "budget_factor"}))
    assert np.array_equal(search(tmp_path / "old", budget_ms=150.0)["architectures"], found["architectures"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--budget", "0.6x", "--budget", "params_m=3"], "A search has one budget, got 0.6x, params_m=3"),
        (["--budget", "0.6x", "--budget-ms", "3"], "give --budget-ms or --budget 0.6x, not both"),
        (["--budget", "0.6"], "write 0.6x"),
    ],
)
def test_the_command_line_refuses_in_one_line(tmp_path, words, says):
    done = command(["search", "--space", SPACE, "--device", DEVICE, "--out", str(tmp_path / "no"), *words])
    assert isinstance(done.exception, UsageError)
    assert says in str(done.exception)


def test_people_are_told_both(tmp_path):
    words = ["search", "--space", SPACE, "--device", DEVICE, "--budget", "0.6x", "--evaluations", "200"]
    done = command([*words, "--out", str(tmp_path / "s"), "--workspace", str(tmp_path)])
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert re.search(r"budget: 0\.6x of [\d.]+ ms, which is predicted of the largest architecture: [\d.]+ ms", said)
    assert re.search(r"within [\d.]+ ms \(min, 0\.6x of the largest\)", said)
