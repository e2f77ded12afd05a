"""Searches with an accuracy of the user's own: killed, resumed and shared out they end alike; what fails is recorded.

The one with a real SIGKILL takes 0.5 s per architecture in `make campaign` (HWBENCH_CAMPAIGN=1), hardly any here.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hwbench
from hwbench.core import registry
from hwbench.core.errors import MeasurementError, UsageError
from hwbench.device.target import Target
from hwbench.optimize.cost_kind import Question
from hwbench.optimize.limit import limits_of
from hwbench.optimize.settings import Settings
from hwbench.space.activity import sample
from hwbench.space.values import to_values
from tests import campaign
from tests.optimize.searches import FILES, SPACE, one_line, trials, without_seconds

SECONDS = 0.5 if campaign.RUNNING else 0.02
EVALUATIONS = 70
LIMITS = {"params_m": 6.5}
MINE = '''
"""Worth of an architecture, slowly; some fail. Every call leaves a line in $CALLS; once there are $HOLD, no call ends."""
import json
import os
import time


def evaluate(architecture):
    with open(os.environ["CALLS"], "a") as calls:
        calls.write(json.dumps(architecture) + "\\n")
    time.sleep(float(os.environ["SECONDS"]))
    if "HOLD" in os.environ and sum(1 for _ in open(os.environ["CALLS"])) >= int(os.environ["HOLD"]):
        open(f"{os.environ['CALLS']}.held.{os.getpid()}", "w").close()
        time.sleep(1000)
    heads = architecture["heads"]
    if heads[0] == 3 and heads[1] == 3:
        raise ValueError(f"{heads[0]} heads twice do not converge")
    if architecture["mlp_ratio"][0] == 4 and heads[2] == 4:
        return float("nan")
    return 60 + architecture["depth"] / 10 + sum(heads) / 10 - sum(architecture["mlp_ratio"]) / 50
'''


def worth(architecture):
    """Of the space `mixer`; a sixth of it fails."""
    if architecture["width"] == 8 and architecture["depth"] == 3 and architecture["ratio"][0] == 2:
        raise RuntimeError("too large")
    return 50 + architecture["width"] * architecture["depth"] + sum(architecture["ratio"]) ** 1.5 - 3 * architecture["ratio"][0]


def worths(architectures):
    return [worth(each) for each in architectures]


worths.vectorised = True


@pytest.fixture
def mine(tmp_path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


@pytest.fixture
def small(mixer, tmp_path):
    """Searches the space `mixer`."""
    yield lambda out="small", accuracy=worth, **how: hwbench.search(
        mixer, out=tmp_path / out, workspace=tmp_path, accuracy=accuracy,
        **{"limits": {"params_m": 3e-3}, "evaluations": 60, **how},
    )  # fmt: skip
    registry._given.clear()
    registry._given_shared.clear()


def command(tmp_path, *words: object, seconds: float = SECONDS, calls: str = "calls", **env: str) -> subprocess.Popen[str]:
    package = str(Path(hwbench.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": package, "SECONDS": str(seconds), "CALLS": str(tmp_path / calls), **env}
    line = [sys.executable, "-m", "hwbench.cli.main", *map(str, words)]
    return subprocess.Popen(line, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def asked(out: str, **options: object) -> list[str]:
    words = {
        "space": SPACE,
        "limit": "params_m=6.5",
        "accuracy": "mine.py:evaluate",
        "evaluations": EVALUATIONS,
        "out": out,
        **options,
    }
    return ["search", *(str(word) for name, value in words.items() for word in (f"--{name}", value))]


def finished(process: subprocess.Popen[str], code: int = 0) -> str:
    out, err = process.communicate(timeout=300)
    assert "Traceback" not in err
    assert process.returncode == code, err
    return err if code else out


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


# Killed, resumed, shared out


@pytest.mark.campaign(always=True)
def test_killed_twice_and_resumed_with_two_workers_equals_one_worker_never_killed(mine, tmp_path):
    """Slow, failing for some, killed for real within a batch: nothing that was measured is measured again."""
    pytest.importorskip("hwbench.cli")
    shown = finished(command(tmp_path, *asked("whole"), calls="whole.calls"))
    journal = tmp_path / "killed" / "accuracies.jsonl"

    def held(kill: int) -> bool:
        """Both workers are at a call that does not end, and all other answers have arrived."""
        waiting = len(list(tmp_path.glob("calls.held.*")))
        return waiting == 2 * kill and len(lines(journal)) - 1 == len(set(lines(tmp_path / "calls"))) - 2

    for kill, hold in enumerate((28, 55), 1):  # within the second and the third batch of 20
        process = command(tmp_path, *asked("killed", workers=2), HOLD=str(hold))
        end = time.monotonic() + 240
        while not held(kill) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        process.kill()
        process.communicate()
        before, called = lines(journal), lines(tmp_path / "calls")
        assert len(called) - len(set(called)) == 2 * (kill - 1)  # what two workers were at when they were killed before
        assert len(before) - 1 == len(set(called)) - 2  # every answer but theirs was kept
        assert len(lines(tmp_path / "killed" / "trials.jsonl")) == kill  # batches that are whole
        assert not (tmp_path / "killed" / "search.json").exists()
    assert finished(command(tmp_path, *asked("killed", workers=2))) == shown.replace("whole", "killed")
    for file in FILES:
        assert (tmp_path / "killed" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    one, other = (json.loads((tmp_path / name / "search.json").read_text()) for name in ("whole", "killed"))
    assert without_seconds(one) == without_seconds(other)
    assert sorted(lines(journal)) == sorted(lines(tmp_path / "whole" / "accuracies.jsonl"))
    whole, called = lines(tmp_path / "whole.calls"), lines(tmp_path / "calls")
    assert len(whole) == len(set(whole)) == EVALUATIONS
    assert set(called) == set(whole)
    assert len(called) == EVALUATIONS + 2 * 2
    failed = [row["failed"] for row in trials(tmp_path / "whole") if row["failed"]]
    assert set(failed) == {"mine.py:17: ValueError: 3 heads twice do not converge", "it returned nan"}
    assert f"without accuracy: {len(failed)} of {EVALUATIONS} (" in shown


@pytest.mark.parametrize("how", [{"workers": 2}, {"accuracy": worths}, {"accuracy": worths, "workers": 2}])
def test_workers_and_lists_end_like_one_at_a_time(small, tmp_path, how):
    one = small("one")
    other = small("other", **how)
    name = {"name": f"{__name__}:{how.get('accuracy', worth).__name__}"}
    assert other["search"]["accuracy"]["name"] == name["name"]
    for part in ("accuracy", "seconds"):
        one["search"].pop(part), other["search"].pop(part)
    assert one == other
    for file in FILES[1:2]:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()
    assert trials(tmp_path / "one") == trials(tmp_path / "other")


def test_progress_is_told_with_every_architecture(small):
    seen: list[tuple[int, int]] = []
    small(evaluations=45, tick=lambda done, planned: seen.append((done, planned)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert {done for done, _ in seen} >= set(range(1, 46))
    assert {planned for _, planned in seen} == {45}


def test_a_finished_search_asks_for_nothing_again(small, mixer):
    first = without_seconds(small())
    assert without_seconds(small()) == first


# What fails


def test_failures_are_trials_with_a_reason_and_never_win(small, tmp_path):
    found = small(evaluations=156)
    about = found["search"]
    assert about["failed"] == {
        f"test_search_accuracy.py:{worth.__code__.co_firstlineno + 3}: RuntimeError: too large": about["invalid"]
    }
    assert about["invalid"] > 5
    for row in trials(tmp_path / "small"):
        assert (row["accuracy"] is None) == (row["failed"] is not None)
        assert row["feasible"] is False or row["failed"] is None


def test_too_many_failures_in_a_row_stop_with_one_line_and_go_on_when_mended(small, tmp_path, monkeypatch):
    monkeypatch.setenv("DATA", "")

    def needs_data(architecture):
        if not os.environ["DATA"]:
            raise FileNotFoundError("no data at $DATA")
        return worth(architecture)

    with pytest.raises(MeasurementError) as error:
        small(accuracy=needs_data)
    text = one_line(error)
    assert "20 architectures in a row have no accuracy; the last: test_search_accuracy.py:" in text
    assert "FileNotFoundError: no data at $DATA. What was measured is kept." in text
    assert f"reuse={str(tmp_path / 'small')!r}" in text
    assert lines(tmp_path / "small" / "trials.jsonl") == []
    monkeypatch.setenv("DATA", "there")
    mended = small(accuracy=needs_data)
    direct = small("direct", accuracy=needs_data)
    assert without_seconds(mended) == without_seconds(direct)


def test_an_answer_that_is_no_number_stops_at_once(small, tmp_path):
    with pytest.raises(UsageError, match=r"returned None for .* must return a number"):
        small(accuracy=lambda architecture: None)
    assert lines(tmp_path / "small" / "trials.jsonl") == []


def test_a_lambda_in_workers_is_refused_before_anything_is_asked(small, tmp_path):
    with pytest.raises(UsageError, match="known to this process only"):
        small(accuracy=lambda architecture: pytest.fail("asked"), workers=2)
    assert not (tmp_path / "small").exists()


# Another function


def test_a_changed_file_is_refused_and_the_command_in_the_refusal_goes_on(mine, tmp_path):
    pytest.importorskip("hwbench.cli")
    options = {"evaluations": 16, "workspace": "."}
    finished(command(tmp_path, *asked("best", **options), seconds=0))
    before = lines(tmp_path / "calls")
    mine.write_text(MINE.replace('raise ValueError(f"{heads[0]} heads twice do not converge")', "return 59.5"))
    said = finished(command(tmp_path, *asked("best", **options), seconds=0), UsageError.exit_code)
    assert len([line for line in said.splitlines() if not line.startswith("[")]) == 1  # what takes 2 s tells of it
    assert "best was searched with another mine.py:evaluate: its content changed since." in said
    assert lines(tmp_path / "calls") == before
    run = shlex.split(said.partition("run: ")[2])
    assert run[0] == "hwbench"
    assert run[-4:] == ["--out", "best-2", "--reuse", "best"]
    shown = finished(command(tmp_path, *run[1:], seconds=0))
    assert "accuracies were taken over from a search whose mine.py:evaluate had another content" in shown
    again = lines(tmp_path / "calls")[len(before) :]
    measured = {
        entry["genes"] for entry in map(json.loads, lines(tmp_path / "best" / "accuracies.jsonl")[1:]) if "accuracy" in entry
    }
    assert 0 < len(again) <= 16
    asked_again = {
        line["genes"] for line in map(json.loads, lines(tmp_path / "best-2" / "accuracies.jsonl")[1:]) if "from" not in line
    }
    assert not asked_again & measured
    assert len(asked_again) == len(again)


def test_a_folder_tells_another_accuracy_from_a_proxy(small):
    small()
    with pytest.raises(UsageError, match="holds another search: proxy was None, now 'params'"):
        small(accuracy=None)
    with pytest.raises(UsageError, match="holds another search: accuracy was"):
        small(accuracy=worths)


def test_stored_settings_name_a_function_and_nothing_is_loaded_by_them(mine, tmp_path):
    """Verify and report work where the file is gone."""
    pytest.importorskip("hwbench.cli")
    finished(command(tmp_path, *asked("best", evaluations=12), seconds=0))
    stored = json.loads((tmp_path / "best" / "settings.json").read_text())
    assert (stored["proxy"], stored["accuracy"]["name"]) == (None, "mine.py:evaluate")
    assert str(tmp_path) not in (tmp_path / "best" / "settings.json").read_text()
    mine.unlink()
    finished(command(tmp_path, "verify", "best"))
    finished(command(tmp_path, "report", "best"))
    text = (tmp_path / "best" / "report.md").read_text().replace("\\", "")
    assert "accuracy by mine.py:evaluate" in text
    assert "The accuracy is what mine.py:evaluate says; hwbench did not check it." in text
    assert "--accuracy mine.py:evaluate" in text
    assert "stands in for accuracy" not in text


# A score that says no more than a limit


@pytest.mark.parametrize(
    ("limits", "noted"), [({"params_m": 6.5}, ["params_m"]), ({"memory_mb": 26.0}, ["memory_mb"]), ({"macs_m": 1300.0}, [])]
)
def test_a_limit_that_is_the_proxy_itself_is_said(tmp_path, limits, noted):
    found = hwbench.search(SPACE, out=tmp_path / "out", workspace=tmp_path, limits=limits, evaluations=100)
    notes = found["search"]["notes"]
    assert [note.partition(" says no more than ")[::2] for note in notes] == [
        ("params", note.partition(" says no more than ")[2]) for note in notes
    ]
    assert [note.partition(" says no more than ")[2].partition(",")[0] for note in notes] == noted
    assert all("\n" not in note and "--accuracy" in note for note in notes)


def test_an_own_accuracy_that_counts_what_is_limited_is_said_too(tmp_path):
    (limit,) = limits_of(registry.get("space", SPACE), LIMITS, Question(Target.of()))

    def counts(architecture):
        from hwbench.space.values import from_values

        column = from_values(registry.get("space", SPACE), architecture)
        return float(limit.compared(column[:, None])[0]) ** 2

    asked_for = {"limits": LIMITS, "evaluations": 30, "strategy": "random", "workspace": tmp_path}
    note, beyond = hwbench.search(SPACE, out=tmp_path / "out", accuracy=counts, **asked_for)["search"]["notes"]
    assert "says no more than params_m" in note
    assert hwbench.search(SPACE, out=tmp_path / "other", accuracy=len, **asked_for)["search"]["notes"] == [beyond]


# Tables


@pytest.fixture
def table(mixer, tmp_path) -> Path:
    """Fifty of the space's 156 architectures."""
    population = np.unique(sample(mixer, 80, np.random.default_rng(1)), axis=1)[:, :50]
    rows = [{**to_values(mixer, column), "top1": float(50 + (7 * i) % 50)} for i, column in enumerate(population.T)]
    rows[3]["top1"] = None
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def test_every_row_of_a_table_is_looked_at_and_the_best_is_exact(small, mixer, table, tmp_path):
    found = small(accuracy=table, evaluations=None)
    about = found["search"]
    assert about["chosen"] == "every-row, all 50 of them: chosen as every accuracy is known"
    assert (about["evaluated"], about["invalid"], about["strategy"]) == (50, 1, "every-row")
    assert about["failed"] == {"t.parquet:top1 has no accuracy for it": 1}
    rows = pq.read_table(table).to_pylist()
    (limit,) = limits_of(mixer, {"params_m": 3e-4}, Question(Target.of()))
    from hwbench.space.values import from_values

    def kept(row) -> bool:
        return (
            limit.compared(from_values(mixer, {k: v for k, v in row.items() if k != "top1" and v is not None})[:, None])[0]
            <= 3e-4
        )

    best = max((row for row in rows if row["top1"] is not None and kept(row)), key=lambda row: row["top1"])
    assert {**found["architectures"][0], "top1": about["finalists"][0]["accuracy"]} == best
    assert without_seconds(small(accuracy=str(table), evaluations=None)) == without_seconds(found)


def test_what_a_strategy_asks_for_beyond_the_table_is_a_trial_without_accuracy(small, table, tmp_path):
    about = small(accuracy=table, strategy="random", evaluations=156)["search"]
    assert about["evaluated"] == 156
    assert about["failed"] == {"not in t.parquet:top1": 106, "t.parquet:top1 has no accuracy for it": 1}
    few = small("few", accuracy=table, evaluations=20)["search"]  # fewer than rows: they are chosen by a strategy
    assert (few["evaluated"], few["strategy"]) == (20, "evolution")


def test_a_table_that_changed_is_another_one(small, table):
    small(accuracy=table, evaluations=None)
    rows = pq.read_table(table).to_pylist()
    pq.write_table(pa.Table.from_pylist([{**rows[0], "top1": 99.0}, *rows[1:]]), table)
    with pytest.raises(
        UsageError,
        match=r"searched with another t\.parquet:top1: its content changed since\. To go on in another folder, run: hwbench",
    ):
        small(accuracy=table, evaluations=None)


def test_a_table_none_of_which_was_asked_for_says_so(tmp_path):
    space = registry.get("space", SPACE)
    rows = [{**to_values(space, column), "accuracy": 1.0} for column in sample(space, 3, np.random.default_rng(0)).T]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    with pytest.raises(UsageError, match=r"None of 40 architectures could be scored: not in t\.parquet:accuracy\."):
        hwbench.search(
            SPACE, out=tmp_path / "o", limits=LIMITS, accuracy=tmp_path / "t.parquet", strategy="random", evaluations=40,
            workspace=tmp_path, seed=5,
        )  # fmt: skip


# What makes no sense together


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"accuracy": worth, "proxy": "params"}, "leave out --proxy or --accuracy"),
        ({"accuracy": "mine"}, "Accuracy 'mine' is not understood"),
        ({"accuracy": None, "reuse": "x"}, "--reuse takes over what an accuracy function measured"),
        ({"accuracy": "nowhere.py:evaluate"}, "There is no file"),
        ({"accuracy": "nowhere.csv"}, "There is no table at nowhere.csv"),
        ({"accuracy": worth, "reuse": "x"}, "no measured accuracies at x"),
        ({"accuracy": worth, "evaluations": 0}, "must be at least 1"),
        ({"accuracy": 3}, "cannot be called"),
        ({"accuracy": worth, "tables": "."}, "--tables is where a benchmark table"),
        ({"accuracy": None, "tables": "."}, "--tables is where a benchmark table"),
    ],
)
def test_what_cannot_be_answered_is_one_line_and_leaves_no_folder(small, tmp_path, monkeypatch, how, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as error:
        small(**how)
    assert said in one_line(error)
    assert not (tmp_path / "small").exists()


def test_the_command_of_a_search_by_a_table_asks_for_the_same(small, table, tmp_path):
    small(accuracy=table, evaluations=None)
    settings = Settings.of(json.loads((tmp_path / "small" / "settings.json").read_text()))
    assert "--strategy every-row" in settings.command("x")
    assert "--accuracy t.parquet:top1" in settings.command("x")
    again = small("again", accuracy=f"{table}:top1", strategy="every-row", evaluations=50)
    assert again["search"]["evaluated"] == 50
    shutil.rmtree(tmp_path / "again")
    with pytest.raises(UsageError, match="Unknown strategy 'every-row'"):
        small("again", strategy="every-row")
