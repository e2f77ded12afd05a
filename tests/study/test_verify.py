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
from hwbench.core.files import without_nan, write_sealed
from hwbench.core.workspace import Workspace
from hwbench.device import files
from hwbench.device.target import Target
from hwbench.lut.networks import read_networks
from hwbench.lut.table import Lut
from hwbench.optimize.cost_kind import Recount
from hwbench.optimize.result import SearchResult
from hwbench.profiler.networks import measure_networks
from hwbench.profiler.policy import Policy
from hwbench.space.activity import sample
from hwbench.space.architectures import Architectures, of_values
from hwbench.space.lowering import lower
from hwbench.study import finalists as found_of
from hwbench.study import schema as study_schema
from hwbench.study import verification, verify

SPACE = "autoformer-tiny"


@pytest.fixture(scope="module")
def verified(fitted_workspace, fast_policy, tmp_path_factory):
    """A search with two finalists, verified with two random networks: four networks really measured."""
    root = shutil.copytree(fitted_workspace, tmp_path_factory.mktemp("verified") / "workspace")
    folder = root / "reports" / "study"
    search = hwbench.search(SPACE, 1e6, folder, workspace=root, evaluations=30)
    search["architectures"] = search["architectures"][:2]
    write_sealed(folder / "search.json", search)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Policy, "longer", lambda policy: policy)  # however noisy this machine is, nothing goes on for longer
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
    assert stored == {**without_nan(verified.summary), "sha256": stored["sha256"]}
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
    def kept(*measured: float) -> dict:
        return found_of.verdict(found_of.checked("latency_ms", 10.0, Recount("measured", measured)))

    assert kept(10.0, 9.0, 11.0) == {"winner": True, "finalists": 2, "of": 3}
    assert kept(10.1, 9.0, 11.0) == {"winner": False, "finalists": 1, "of": 3}
    assert kept() == {"winner": None, "finalists": None, "of": 0}  # nothing was measured, nothing is claimed


def limits_of(folder, root, search: dict, about: dict, *measured: float) -> list[dict]:
    """What verify says of the limits of a search, where it measured these latencies."""
    about = json.loads(json.dumps(about))
    for facts in (*about["finalists"], *about["front"]):  # a search states every cost it limits
        facts.update({name: facts.get(name, 1.0) for name in about.get("limits", {})})
    found = SearchResult.of({**search, "search": about})
    return verify.check_limits(folder, found, Recount("measured here (min)", measured, True), Workspace.at(root))


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
    write_sealed(there / "card.json", known)
    text = (root / "devices" / f"{files.local_name()}.toml").read_text()
    (root / "devices" / f"{ELSEWHERE}.toml").write_text(text.replace(files.local_name(), ELSEWHERE))
    folder = root / "reports" / "limited"
    asked = {"params_m": 8.0, "macs_m": 1e6, "flops_m": 1e6, "memory_mb": 1e3, f"latency_ms@{ELSEWHERE}": 1e6}
    found = hwbench.search(SPACE, 1e6, folder, workspace=root, evaluations=60, limits=asked)
    found["architectures"] = found["architectures"][:2]
    write_sealed(folder / "search.json", found)
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
    at = (limited.folder, limited.root, limited.search)
    about.update(budget_ms=10.0, limits={"params_m": 1.0, f"latency_ms@{ELSEWHERE}": 1e-3, "latency_ms@nowhere": 1.0})
    about["other_predictors"]["latency_ms@nowhere"] = "anyone"
    budget, size, other, gone = limits_of(*at, about, 5.0, 15.0)
    assert (budget["winner"], budget["kept"], budget["finalists"], budget["of"]) == (5.0, True, 1, 2)
    assert (size["kept"], size["finalists"], size["of"]) == (False, 0, 2)
    assert (other["kept"], other["finalists"]) == (False, 0)
    assert gone["how"].startswith("not checked: Unknown device 'nowhere'")
    assert (gone["winner"], gone["kept"], gone["finalists"], gone["of"]) == (None, None, None, 0)
    about["other_predictors"][f"latency_ms@{ELSEWHERE}"] = "of another day"
    replaced = limits_of(*at, about, 5.0, 15.0)[2]
    assert replaced["how"].startswith(f"not checked: The predictor {limited.folder} was searched with (of another day) is gone")
    assert replaced["kept"] is None  # another predictor's word would say nothing of this search
    about["other_predictors"].update(limited.search["search"]["other_predictors"])
    plain = limits_of(*at, {**about, "bound": "plain"}, 5.0, 15.0)[2]
    assert plain["how"].startswith("predicted, not measured")
    assert plain["winner"] < other["winner"]


def test_a_search_without_limits_has_its_budget_alone(verified):
    (budget,) = verified.summary["limits"]
    assert (budget["name"], budget["most"], budget["kept"]) == ("latency_ms", 1e6, True)
    assert budget["winner"] == role(verified, "winner")[0]["measured_ms"]
    before = {k: v for k, v in verified.search["search"].items() if k != "limits"}  # as older searches are stored
    assert len(limits_of(verified.folder, verified.root, verified.search, before, 5.0, 6.0)) == 1


def test_verifying_again_measures_nothing_anew(verified, fast_policy, monkeypatch):
    journal = verified.root / "luts" / files.local_name() / "onnxruntime.networks.samples.jsonl"
    before = journal.read_bytes()
    monkeypatch.setattr("hwbench.profiler.host.WorkerProcess", lambda *_: pytest.fail("a worker was started"))
    monkeypatch.setattr(Policy, "longer", lambda policy: policy)
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
    with pytest.raises(UsageError, match=r"is not a search result; make one, as in: hwbench search"):
        hwbench.verify(tmp_path, workspace=verified.root)


@pytest.fixture
def away(verified, tmp_path) -> SimpleNamespace:
    """The same search, never verified, for a device that is another machine."""
    root = shutil.copytree(verified.root, tmp_path / "workspace")
    (device_file,) = (root / "devices").glob("*.toml")
    (root / "devices" / "pi4.toml").write_text(device_file.read_text().replace(files.local_name(), "pi4"))
    folder = root / "reports" / "study"
    search = json.loads((folder / "search.json").read_text())
    search["search"]["device"] = "pi4"
    write_sealed(folder / "search.json", search)
    for name in ("verification.json", "verification.parquet"):
        (folder / name).unlink()
    return SimpleNamespace(root=root, folder=folder, search=search)


def test_a_device_that_cannot_be_reached_is_said_and_nothing_is_claimed(away):
    told = hwbench.verify(away.folder, random=2, workspace=away.root)
    assert told["measured"] is False
    assert told["why"] == f"Device pi4 cannot be measured from here: it is pi4, this machine is {files.local_name()}"
    best = away.search["search"]["finalists"][0]
    assert (told["winner"]["predicted_ms"], told["winner"]["upper_ms"]) == (best["latency_ms"], best["upper_ms"])
    assert "measured_ms" not in told["winner"]
    assert [told[name] for name in ("kept", "best_kept", "doubtful", "accuracy", "noise")] == [None] * 5
    (budget,) = told["limits"]
    assert (budget["how"], budget["winner"], budget["kept"], budget["of"]) == (f"not measured: {told['why']}", None, None, 0)
    assert verification.read(away.folder, "") == without_nan(told)
    assert not (away.folder / "verification.parquet").exists()
    assert hwbench.verify(away.folder, workspace=away.root)["measured"] is False  # asked again it says so again


def test_the_command_says_in_one_line_why_nothing_was_measured(away):
    build = pytest.importorskip("hwbench.cli.main").build
    done = CliRunner(env={"COLUMNS": "200"}).invoke(build(), ["verify", str(away.folder), "--workspace", str(away.root)])
    assert done.exit_code == 0, done.output
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("NOT MEASURED: ")]
    assert "Device pi4 cannot be measured from here" in line
    assert "budget 1e+06 ms.\nNOT MEASURED" in done.stdout


def test_what_was_measured_once_is_not_lost_when_the_device_is_gone(away, verified):
    for name in ("verification.json", "verification.parquet"):
        shutil.copy(verified.folder / name, away.folder / name)
    before = {name: (away.folder / name).read_bytes() for name in ("verification.json", "verification.parquet")}
    with pytest.raises(MeasurementError, match=r"Device pi4 cannot be measured from here: .* stays in ") as error:
        hwbench.verify(away.folder, workspace=away.root)
    assert "\n" not in str(error.value)
    assert {name: (away.folder / name).read_bytes() for name in before} == before


def test_finalists_in_doubt_are_measured_on_once(mixer):
    finalists = Architectures(mixer, sample(mixer, 4, np.random.default_rng(0)))
    first = dict(zip(finalists.keys, ("stable", "noisy", "shifted", "stable"), strict=True))
    asked = []

    def measure(some: Architectures) -> dict[str, dict]:
        asked.append(some.keys)
        return {key: {"verdict": verdict} for key, verdict in zip(some.keys, ("stable", "noisy"), strict=True)}

    rows = found_of.measure_on(finalists, {key: {"verdict": verdict} for key, verdict in first.items()}, measure)
    assert asked == [finalists.keys[1:3]]
    assert [rows[key]["verdict"] for key in finalists.keys] == ["stable", "stable", "noisy", "stable"]
    assert found_of.measure_on(finalists, {key: {"verdict": "stable"} for key in first}, pytest.fail).keys() == first.keys()


def test_a_longer_policy_goes_on_where_the_first_one_ended(verified, fast_policy):
    assert (fast_policy.longer().min_processes, fast_policy.longer().max_processes, fast_policy.longer().patience) == (6, 6, 0)
    root = shutil.copytree(verified.root, verified.root.parent / "longer")
    winner = of_values(SPACE, verified.search["architectures"][:1])
    before = role(verified, "winner")[0]
    (row,) = measure_networks([winner], Target.of(workspace=root), policy=fast_policy.longer()).values()
    assert (before["processes"], row["processes"]) == (3, 6)
    assert row["latency_min_ms"] <= before["latency_min_ms"]
    assert len(measure_networks([winner], Target.of(workspace=root), policy=fast_policy.longer())) == 1  # and has an end


def doubtful_rows(*measured: float, verdict: str = "noisy") -> list[dict]:
    roles = ["winner", *["finalist"] * (len(measured) - 1)]
    told = {"verdict": verdict, "reason": "minima of 3 processes within 7.0%, asked 1.0%", "min_spread": 0.07, "processes": 10}
    return [
        {"role": r, "measured_ms": ms, "predicted_ms": ms - 1, "upper_ms": ms, "median_spread": 0.2, **told}
        for r, ms in zip(roles, measured, strict=True)
    ]


def test_what_is_in_doubt_is_told_with_verdict_and_spread():
    first, second = found_of.doubts(doubtful_rows(11.0, 9.0), "min")
    assert (first["finalist"], first["verdict"], first["spread"], second["finalist"]) == (0, "noisy", 0.07, 1)
    assert found_of.doubts(doubtful_rows(11.0), "p50")[0]["spread"] == 0.2
    assert found_of.doubts(doubtful_rows(11.0, verdict="stable"), "min") == []


def test_the_best_finalist_that_kept_every_limit_is_offered(mixer):
    finalists = Architectures(mixer, sample(mixer, 3, np.random.default_rng(0)))
    found = SimpleNamespace(networks=finalists, finalists=[{"accuracy": a} for a in (3.0, 2.0, 1.0)])
    rows = doubtful_rows(11.0, 9.0, 8.0)

    def best(*limits: tuple[float, list[float]]) -> int | None:
        checked = [{"name": f"cost{i}", "most": most, "values": values} for i, (most, values) in enumerate(limits)]
        told = found_of.best_kept(found, rows, checked)
        if told is not None:
            assert told["architecture"] == finalists.values[told["finalist"]]
            assert told["measured_ms"] == rows[told["finalist"]]["measured_ms"]
        return told and told["finalist"]

    measured = [11.0, 9.0, 8.0]
    assert best((12.0, measured)) == 0
    assert best((10.0, measured)) == 1
    assert best((10.0, measured), (5.0, [1.0, 6.0, 2.0])) == 2
    assert best((10.0, measured), (5.0, [])) == 1  # a limit nobody could check excludes nobody
    assert best((7.0, measured)) is None


@pytest.mark.parametrize(("budget_ms", "said"), [(10.0, "number 2, predicted 8.00 ms"), (1.0, "No finalist kept every limit")])
def test_the_command_says_beside_a_broken_budget_what_is_in_doubt_and_what_to_take(verified, monkeypatch, budget_ms, said):
    build = pytest.importorskip("hwbench.cli.main").build
    rows = [{**role(verified, name)[0], **told}
            for name, told in zip(("winner", "finalist"), doubtful_rows(11.0, 9.0), strict=True)]  # fmt: skip
    search = {**verified.search, "search": {**verified.search["search"], "budget_ms": budget_ms}}
    folder = shutil.copytree(verified.folder, verified.folder.parent / f"doubtful-{budget_ms:g}")
    write_sealed(folder / "search.json", search)
    monkeypatch.setattr(verify, "compare", lambda *_: rows)
    asked = ["verify", str(folder), "--random", "0", "--workspace", str(verified.root)]
    done = CliRunner(env={"COLUMNS": "200"}).invoke(build(), asked, catch_exceptions=False)
    assert done.exit_code == 0
    broken = "BROKEN (noisy, spread 7.0% over 10 processes: minima of 3 processes within 7.0%, asked 1.0%)"
    assert any(line.startswith("winner: ") and broken in line for line in done.stdout.splitlines())
    assert said in done.stdout
    stored = json.loads((folder / "verification.json").read_text())
    assert [each["finalist"] for each in stored["doubtful"]] == [0, 1]
    assert (stored["best_kept"] and stored["best_kept"]["finalist"]) == (1 if budget_ms == 10.0 else None)


def test_instructions_are_summed_where_no_emulator_is_set_up(verified, monkeypatch, tmp_path):
    monkeypatch.setenv("HWBENCH_CACHE", str(tmp_path))
    about = {**verified.search["search"], "limits": {"instructions_m@emulated-cortex-a72": 1e6, "instructions_m@pi5": 1.0}}
    summed, gone = limits_of(verified.folder, verified.root, verified.search, about)[1:]
    assert (summed["how"], summed["kept"], summed["of"]) == ("sum of counted rows", True, 2)
    assert summed["winner"] > 100
    assert gone["how"].startswith("not checked: Unknown device 'pi5'")


def test_a_predictor_of_another_machine_verifies_nothing(verified, tmp_path):
    folder = shutil.copytree(verified.folder, tmp_path / "search")
    (card,) = folder.glob("predictors/*/card.json")
    known = json.loads(card.read_text())
    known["environment"]["runtime_version"] = "0.1"
    write_sealed(card, known)
    with pytest.raises(DataError, match="is not the predictor this search used"):
        hwbench.verify(folder, workspace=verified.root)
    search = json.loads((folder / "search.json").read_text())
    del search["search"]["predictors"]  # as version 0.1 wrote it: no hash of the whole card
    write_sealed(folder / "search.json", search)
    with pytest.raises(EnvironmentMismatch, match=r"runtime_version is '0\.1' there"):
        hwbench.verify(folder, workspace=verified.root)
