"""Verifying: finalists and networks nobody fitted on are measured, and what is stored follows from predictions and samples."""

from __future__ import annotations

import json
import shutil
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import hwbench
from hwbench.core import schema
from hwbench.core.errors import DataError, EnvironmentMismatch, MeasurementError, UsageError
from hwbench.core.files import without_nan
from hwbench.device import files
from hwbench.lut.networks import read_networks
from hwbench.lut.table import Lut
from hwbench.space.activity import sample
from hwbench.space.architectures import Architectures, of_values
from hwbench.space.lowering import lower
from hwbench.study import schema as study_schema
from hwbench.study import verify

SPACE = "autoformer-tiny"


@pytest.fixture(scope="module")
def verified(fitted_workspace, fast_policy, tmp_path_factory):
    """A search with two finalists, verified with two random networks: four networks really measured."""
    root = shutil.copytree(fitted_workspace, tmp_path_factory.mktemp("verified") / "workspace")
    folder = root / "reports" / "study"
    search = hwbench.search(SPACE, 1e6, folder, workspace=root, evaluations=30)
    search["architectures"] = search["architectures"][:2]
    (folder / "search.json").write_text(json.dumps(search))
    summary = hwbench.verify(folder, random=2, seed=1, workspace=root, policy=fast_policy)
    rows, footer = schema.read(folder / "verification.parquet", study_schema.VERIFICATION)
    return SimpleNamespace(root=root, folder=folder, search=search, summary=summary, rows=rows.to_pylist(), footer=footer)


def role(verified, name: str) -> list[dict]:
    return [row for row in verified.rows if row["role"] == name]


def test_every_role_is_measured_and_stored(verified):
    assert [len(role(verified, name)) for name in ("winner", "finalist", "random")] == [1, 1, 2]
    assert json.loads(role(verified, "winner")[0]["architecture"]) == verified.search["architectures"][0]
    assert json.loads(role(verified, "finalist")[0]["architecture"]) == verified.search["architectures"][1]
    assert {row["status"] for row in verified.rows} == {"ok"}
    assert {row["verdict"] for row in verified.rows} <= {"stable", "noisy", "shifted", "throttled"}
    assert verified.footer["statistic"] == "min"
    stored = json.loads((verified.folder / "verification.json").read_text())
    assert stored == without_nan(verified.summary)
    assert stored["winner"]["role"] == "winner"
    assert (stored["accuracy_on"], stored["accuracy"]["predicted_ms"]["n"]) == ("random networks", 2)


def test_random_networks_took_no_part_before(verified):
    (card,) = (verified.root / "predictors").glob("*/*/card.json")
    known = json.loads(card.read_text())
    drawn = of_values(SPACE, [json.loads(row["architecture"]) for row in role(verified, "random")])
    others = {*known["fit_networks"], *known["holdout_networks"], *of_values(SPACE, verified.search["architectures"]).keys}
    assert len(set(drawn.keys)) == 2
    assert not set(drawn.keys) & others


def test_measured_is_what_the_networks_table_holds(verified):
    table = verified.root / "luts" / files.local_name() / "onnxruntime.networks.parquet"
    measured = {row["architecture"]: row for row in read_networks(table)[0]}
    for row in verified.rows:
        assert row["measured_ms"] == row["latency_min_ms"] == measured[row["architecture"]]["latency_min_ms"]
        # A level may lie above a process's median (within its 2 % range), but neither lies below the fastest reading.
        assert row["processes"] == 3
        assert row["latency_fastest_ms"] <= min(row["latency_min_ms"], row["latency_median_ms"])


def test_predicted_is_what_predict_says(verified):
    architectures = [json.loads(row["architecture"]) for row in verified.rows]
    answers = hwbench.predict(SPACE, architectures, workspace=verified.root)
    assert [row["predicted_ms"] for row in verified.rows] == pytest.approx([a["latency_ms"] for a in answers])
    assert [row["upper_ms"] for row in verified.rows] == pytest.approx([a["upper_ms"] for a in answers])


def test_baselines_stand_beside(verified):
    lut = Lut.read(verified.root / "luts" / files.local_name() / "onnxruntime.parquet")
    for row in verified.rows:
        found = of_values(SPACE, [json.loads(row["architecture"])])
        specs = lower(found.space, found.population[:, 0]).network.specs
        plain = sum(lut.rows[spec.key, "fp32-b1-t1-back-to-back"]["latency_min_ms"] for spec in specs)
        assert row["plain_sum_ms"] == pytest.approx(plain, rel=1e-12)
        assert row["flops_ms"] is not None
        assert row["primitive_sum_ms"] is None  # this table has no primitive rows: missing, not guessed
        assert row["primitive_calibrated_ms"] is None
    assert set(verified.summary["accuracy"]) == {"predicted_ms", "flops_ms", "plain_sum_ms"}


def test_the_summary_by_hand(verified):
    chosen = role(verified, "random")
    errors = [abs(row["predicted_ms"] - row["measured_ms"]) / row["measured_ms"] for row in chosen]
    assert verified.summary["accuracy"]["predicted_ms"]["mean_abs_error"] == pytest.approx(np.mean(errors))
    assert verified.summary["kept"] == {"winner": True, "finalists": 2, "of": 2}  # a budget nothing breaks
    spread = [row["min_spread"] for row in verified.rows]
    assert verified.summary["noise"]["min_spread_median"] == pytest.approx(np.median(spread))
    assert verified.summary["noise"]["min_spread_max"] == pytest.approx(max(spread))


def test_a_budget_that_was_broken_is_counted_as_broken():
    def rows(*measured: float) -> list[dict]:
        roles = ["winner", "finalist", "finalist", "random"]
        return [{"role": r, "measured_ms": ms} for r, ms in zip(roles, measured, strict=True)]

    assert verify._kept(rows(10.0, 9.0, 11.0, 5.0), 10.0) == {"winner": True, "finalists": 2, "of": 3}
    assert verify._kept(rows(10.1, 9.0, 11.0, 5.0), 10.0) == {"winner": False, "finalists": 1, "of": 3}


ELSEWHERE = "elsewhere"


@pytest.fixture(scope="module")
def limited(verified, fast_policy, tmp_path_factory):
    """A search with every kind of limit in a copy of that workspace, verified with no random network."""
    root = shutil.copytree(verified.root, tmp_path_factory.mktemp("limited") / "workspace")
    (card,) = (root / "predictors").glob("*/*/card.json")
    there = shutil.copytree(card.parent, root / "predictors" / ELSEWHERE / card.parent.name)
    known = json.loads(card.read_text())
    for part in known["statistics"].values():  # a band that is wide whatever was measured
        for band in (part["band"], *part.get("band_by_space", {}).values()):
            band.update(below=-0.25, above=0.25)
    (there / "card.json").write_text(json.dumps(known))
    text = (root / "devices" / f"{files.local_name()}.toml").read_text()
    (root / "devices" / f"{ELSEWHERE}.toml").write_text(text.replace(files.local_name(), ELSEWHERE))
    folder = root / "reports" / "limited"
    asked = {"params_m": 8.0, "macs_m": 1e6, "flops_m": 1e6, "memory_mb": 1e3, f"latency_ms@{ELSEWHERE}": 1e6}
    found = hwbench.search(SPACE, 1e6, folder, workspace=root, evaluations=60, limits=asked)
    found["architectures"] = found["architectures"][:2]
    (folder / "search.json").write_text(json.dumps(found))
    limits = {each["name"]: each for each in hwbench.verify(folder, random=0, workspace=root, policy=fast_policy)["limits"]}
    return SimpleNamespace(root=root, folder=folder, search=found, asked=asked, limits=limits)


def test_every_limit_is_checked_again_on_the_networks_themselves(limited):
    assert list(limited.limits) == ["latency_ms", *limited.asked]
    best = limited.search["search"]["finalists"][0]
    for name in ("params_m", "macs_m", "flops_m", "memory_mb"):
        found = limited.limits[name]
        assert (found["how"], found["kept"], found["finalists"], found["of"]) == ("counted", True, 2, 2)
        assert found["winner"] == pytest.approx(best[name], rel=1e-12)
    assert limited.limits["latency_ms"]["how"] == "measured here (min)"
    other = limited.limits[f"latency_ms@{ELSEWHERE}"]
    assert other["how"] == "upper bound predicted, not measured"
    assert other["winner"] == pytest.approx(best[f"upper_ms@{ELSEWHERE}"])
    stored = json.loads((limited.folder / "verification.json").read_text())["limits"]
    assert stored == list(limited.limits.values())


def test_the_command_says_of_every_limit_what_was_kept(limited, fast_policy, monkeypatch):
    build = pytest.importorskip("hwbench.cli.main").build
    monkeypatch.setattr(hwbench, "verify", partial(verify.verify, policy=fast_policy), raising=False)
    asked = ["verify", str(limited.folder), "--random", "0", "--workspace", str(limited.root)]
    done = CliRunner(env={"COLUMNS": "200"}).invoke(build(), asked, catch_exceptions=False)
    assert done.exit_code == 0
    shown = {line.split("│")[1].strip(): line for line in done.stdout.splitlines() if line.startswith("│")}
    for name in ("latency_ms", *limited.asked):
        assert "yes" in shown[name]
        assert "2 of 2" in shown[name]
        assert limited.limits[name]["how"] in shown[name]


def test_a_limit_that_is_broken_or_cannot_be_checked_says_so(limited):
    about = json.loads(json.dumps(limited.search["search"]))
    finalists = of_values(SPACE, limited.search["architectures"])
    rows = [{"measured_ms": 5.0}, {"measured_ms": 15.0}]
    about.update(budget_ms=10.0, limits={"params_m": 1.0, f"latency_ms@{ELSEWHERE}": 1e-3, "latency_ms@nowhere": 1.0})
    about["other_predictors"]["latency_ms@nowhere"] = "anyone"
    budget, size, other, gone = verify.check_limits(limited.folder, about, finalists, rows, limited.root)
    assert (budget["winner"], budget["kept"], budget["finalists"], budget["of"]) == (5.0, True, 1, 2)
    assert (size["kept"], size["finalists"], size["of"]) == (False, 0, 2)
    assert (other["kept"], other["finalists"]) == (False, 0)
    assert gone["how"].startswith("not checked: Unknown device 'nowhere'")
    assert (gone["winner"], gone["kept"], gone["finalists"], gone["of"]) == (None, None, None, 0)
    about["other_predictors"][f"latency_ms@{ELSEWHERE}"] = "of another day"
    replaced = verify.check_limits(limited.folder, about, finalists, rows, limited.root)[2]
    assert replaced["how"].startswith(f"not checked: The predictor {limited.folder} was searched with (of another day) is gone")
    assert replaced["kept"] is None  # another predictor's word would say nothing of this search
    about["other_predictors"].update(limited.search["search"]["other_predictors"])
    plain = verify.check_limits(limited.folder, {**about, "bound": "plain"}, finalists, rows, limited.root)[2]
    assert plain["how"].startswith("predicted, not measured")
    assert plain["winner"] < other["winner"]


def test_a_search_without_limits_has_its_budget_alone(verified):
    (budget,) = verified.summary["limits"]
    assert (budget["name"], budget["most"], budget["kept"]) == ("latency_ms", 1e6, True)
    assert budget["winner"] == role(verified, "winner")[0]["measured_ms"]
    before = {k: v for k, v in verified.search["search"].items() if k != "limits"}  # as older searches are stored
    rows = [row for row in verified.rows if row["role"] != "random"]
    finalists = of_values(SPACE, verified.search["architectures"])
    assert len(verify.check_limits(verified.folder, before, finalists, rows, verified.root)) == 1


def test_verifying_again_measures_nothing_anew(verified, fast_policy, monkeypatch):
    journal = verified.root / "luts" / files.local_name() / "onnxruntime.networks.samples.jsonl"
    before = journal.read_bytes()
    monkeypatch.setattr("hwbench.profiler.host.WorkerProcess", lambda *_: pytest.fail("a worker was started"))
    again = hwbench.verify(verified.folder, random=2, seed=1, workspace=verified.root, policy=fast_policy)
    assert without_nan({**again, "verified_at": None}) == without_nan({**verified.summary, "verified_at": None})
    assert journal.read_bytes() == before


def test_random_networks_are_drawn_once_each(mixer):
    drawn = Architectures(mixer, sample(mixer, 200, np.random.default_rng(0)))
    known = set(drawn.keys[:3])
    found = verify._unlike(drawn, known, 20)
    assert len(found) == len(set(found.keys)) == 20
    assert not set(found.keys) & known
    assert found.keys == [key for key in dict.fromkeys(drawn.keys) if key not in known][:20]


def test_what_is_no_search_is_refused(verified, tmp_path):
    with pytest.raises(UsageError, match="There is no search result at"):
        hwbench.verify(tmp_path, workspace=verified.root)
    hwbench.sample(SPACE, 1, out=tmp_path / "search.json")
    with pytest.raises(UsageError, match=r"is not a search result\. Run: hwbench search"):
        hwbench.verify(tmp_path, workspace=verified.root)


def test_a_search_for_another_device_is_not_measured_here(verified, tmp_path):
    search = json.loads(json.dumps(verified.search))
    search["search"]["device"] = "pi4"
    (tmp_path / "search.json").write_text(json.dumps(search))
    (device_file,) = (verified.root / "devices").glob("*.toml")
    root = shutil.copytree(verified.root, tmp_path / "workspace")
    (root / "devices" / "pi4.toml").write_text(device_file.read_text().replace(files.local_name(), "pi4"))
    with pytest.raises(MeasurementError, match=f"Device pi4 is not this machine \\({files.local_name()}\\)") as error:
        hwbench.verify(tmp_path, workspace=root)
    assert "\n" not in str(error.value)


def test_a_predictor_of_another_machine_verifies_nothing(verified, tmp_path):
    folder = shutil.copytree(verified.folder, tmp_path / "search")
    (card,) = folder.glob("predictors/*/card.json")
    known = json.loads(card.read_text())
    known["environment"]["runtime_version"] = "0.1"
    card.write_text(json.dumps(known))
    with pytest.raises(DataError, match="is not the predictor this search used"):
        hwbench.verify(folder, workspace=verified.root)
    search = json.loads((folder / "search.json").read_text())
    del search["search"]["predictors"]  # as version 0.1 wrote it: no hash of the whole card
    (folder / "search.json").write_text(json.dumps(search))
    with pytest.raises(EnvironmentMismatch, match=r"runtime_version is '0\.1' there"):
        hwbench.verify(folder, workspace=verified.root)
