"""Searches whose budget is no latency of their device: verified by recounting, and reported with the verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hwbench
from hwbench.core.errors import UsageError
from hwbench.core.files import write_sealed
from hwbench.study import verification

SPACE = "autoformer-tiny"
COUNTS = "instructions_m@emulated-cortex-a72"
"""Counted in the shipped table."""


@pytest.fixture(autouse=True)
def no_emulator(monkeypatch, tmp_path):
    """However this machine is set up: nothing is counted here."""
    monkeypatch.setenv("HWBENCH_CACHE", str(tmp_path / "cache"))


def searched(root: Path, **asked) -> Path:
    hwbench.search(SPACE, out=root / "found", workspace=root, evaluations=200, **asked)
    return root / "found"


def change(folder: Path, **changes) -> None:
    """What was asked, as if it had been something else."""
    document = json.loads((folder / "search.json").read_text())
    document["search"].update(changes)
    write_sealed(folder / "search.json", document)


def text_of(folder: Path) -> str:
    return (folder / "report.md").read_text().replace("\\", "")


def test_an_exact_budget_is_recounted_and_kept(tmp_path):
    folder = searched(tmp_path, budget={"params_m": 6.5}, limits={"macs_m": 1500.0})
    told = hwbench.verify(folder, workspace=tmp_path)
    assert (told["measured"], told["why"], told["kept"]) == (True, None, {"winner": True, "finalists": 5, "of": 5})
    assert (told["budget_ms"], told["bounds"]) == (None, {"params_m": 6.5, "macs_m": 1500.0})
    assert [(each["name"], each["how"], each["kept"]) for each in told["limits"]] == [
        ("params_m", "counted", True),
        ("macs_m", "counted", True),
    ]
    assert told["best_kept"]["finalist"] == 0
    assert verification.read(folder, "") == told
    assert not (folder / "verification.parquet").exists()  # no latency was measured
    done = hwbench.report(folder, workspace=tmp_path)
    assert [row["kept"] for row in done["table"]] == [True] * 5
    assert done["table"][0]["params_m"] == told["limits"][0]["winner"] <= 6.5
    assert "the budget of 6.5 was kept" in text_of(folder)
    assert text_of(folder).startswith("# autoformer-tiny within params_m ≤ 6.5, macs_m ≤ 1500\n")
    spare = 6.5 - told["limits"][0]["winner"]
    assert f"{spare:#.3g} ({100 * spare / 6.5:#.3g} %) to spare; 5 of 5 finalists within" in text_of(folder)
    assert "| macs_m kept |" in text_of(folder)
    assert "hwbench search --space autoformer-tiny --budget params_m=6.5" in text_of(folder)
    assert "<html" in (folder / "report.html").read_text()
    assert (folder / "figures" / "front.svg").exists()


def test_a_broken_budget_is_said_and_the_best_that_kept_it_is_offered(tmp_path):
    folder = searched(tmp_path, budget={"params_m": 6.5})
    values = [f["params_m"] for f in json.loads((folder / "search.json").read_text())["search"]["finalists"]]
    between = sorted(values)[1]  # two finalists stay below, the winner does not
    change(folder, budget={"params_m": between})
    told = hwbench.verify(folder, workspace=tmp_path)
    assert told["kept"] == {"winner": False, "finalists": 2, "of": 5}
    assert told["best_kept"]["costs"]["params_m"] <= between
    hwbench.report(folder, workspace=tmp_path)
    assert f"the budget of {between:.6g} was broken" in text_of(folder)
    assert f"Finalist {told['best_kept']['finalist'] + 1} is the best that kept every limit" in text_of(folder)
    change(folder, budget={"params_m": 1.0})
    assert hwbench.verify(folder, workspace=tmp_path)["best_kept"] is None


def test_instructions_that_nobody_can_count_give_no_verdict(tmp_path):
    folder = searched(tmp_path, budget={COUNTS: 600.0})
    told = hwbench.verify(folder, workspace=tmp_path)
    assert (told["measured"], told["kept"]) == (False, None)
    assert "hwbench device setup emulated-cortex-a72" in told["why"]
    assert (told["limits"][0]["how"], told["limits"][0]["measured"]) == ("sum of counted rows", False)
    done = hwbench.report(folder, workspace=tmp_path)
    assert [row["kept"] for row in done["table"]] == [None] * 5
    assert "the budget of 600 was not verified" in text_of(folder)
    assert "Not verified: " in text_of(folder)


def test_a_latency_of_another_device_is_predicted_once_more(tmp_path):
    name = "latency_ms@amd-epyc-25-1-1-2c"
    folder = searched(tmp_path, budget={name: 40.0})
    told = hwbench.verify(folder, workspace=tmp_path)
    assert (told["measured"], told["certified"], told["predictor"]) == (False, True, None)
    assert told["limits"][0]["how"] == "upper bound predicted, not measured"
    assert "hwbench profile" not in told["why"]
    hwbench.report(folder, workspace=tmp_path)
    assert "What predicted latencies rest on." in text_of(folder)


def test_a_device_that_cannot_be_measured_is_said_to_be_so(tmp_path):
    hwbench.search(
        "nasbench201", out=tmp_path / "s", workspace=tmp_path, evaluations=100, budget={"latency_ms@jetson-tx2": 8.0}
    )
    told = hwbench.verify(tmp_path / "s", workspace=tmp_path)
    assert told["why"].startswith("Device jetson-tx2 cannot be measured from here: ")
    assert "uncertified" in told["limits"][0]["how"]


def test_a_search_that_was_not_verified_has_no_report(tmp_path):
    folder = searched(tmp_path, limits={"params_m": 6.5})
    with pytest.raises(UsageError, match=r"was not verified yet .* Run: hwbench verify"):
        hwbench.report(folder, workspace=tmp_path)


def test_the_command_line_gives_the_verdict(tmp_path):
    build = pytest.importorskip("hwbench.cli.main").build

    def ask(*words: object) -> str:
        done = CliRunner(env={"COLUMNS": "200"}).invoke(build(), [*map(str, words)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    folder = searched(tmp_path, budget={"params_m": 6.5})
    shown = ask("verify", folder, "--workspace", tmp_path)
    assert "winner: params_m 6." in shown
    assert "(counted), budget 6.5 kept; finalists within the budget: 5 of 5" in shown
    assert "Counted" in ask("report", folder, "--workspace", tmp_path)
    change(folder, budget={"params_m": 1.0})
    assert "No finalist kept every limit" in ask("verify", folder, "--workspace", tmp_path)
    counted = searched(tmp_path / "counts", budget={COUNTS: 600.0})
    assert "NOT MEASURED: " in ask("verify", counted, "--workspace", tmp_path)
    assert "Not verified" in ask("report", counted, "--workspace", tmp_path)
