"""Every shipped predictor, built again by the command its card states, has the errors it had on record.

tests/assets/rebuild_errors.json holds for each what its shipped card states (`stated`) and what came out (`found`): errors,
coverage, noise ceiling; `same` and `why` as `hwbench rebuild` judges the two; the seconds it took, beside other work; and the
CPU it was built on (`cpu`). What came out unlike the card by more than ranks is held on that CPU only; where
nothing did (`found` is null), `why` says why.

Always: those built within LONGEST seconds from data shipped with hwbench. With HWBENCH_TABLES set, all (many minutes; unlike
other tests of public tables these do not look for ../shared/tables by themselves, because `make test` has no time for them).
Where a change is meant: HWBENCH_RECORD=1 HWBENCH_TABLES=DIR python -m pytest tests/frozen/test_rebuild_errors.py
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import hwbench
from tests.frozen.record import ASSETS, RECORDING, recorded

ROOT = Path(__file__).parents[2]
RECORD = "rebuild_errors.json"
KNOWN: dict[str, Any] = recorded(RECORD) if (ASSETS / RECORD).exists() else {}
TABLES = os.environ.get("HWBENCH_TABLES")
FOUND = ("errors", "coverage", "noise_ceiling")
LONGEST = 15
"""Seconds a predictor may take to be built again in every run of the tests."""
SHIPPED = sorted(path.parent.relative_to(ROOT / "predictors").as_posix() for path in ROOT.glob("predictors/*/*/card.json"))
RELATIVE, RANKS, RANKS_APART, RANKS_JUDGED = 1e-6, "kendall_tau", 1e-2, 1e-3
"""Sums in another order are not another predictor. Where two networks are predicted alike, the last bit decides who comes
first, and CPUs differ in it: by up to 0.003 seen. `hwbench rebuild` allows 0.001, and so calls some not the same."""


@functools.cache
def cpu() -> str:
    """Model of this CPU, as Linux names it."""
    lines = [line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line]
    facts = {key.strip(): value.strip() for key, value in reversed(lines)}
    return " ".join(facts.get(key, "?") for key in ("model name", "cpu family", "model", "stepping"))


def card_of(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "predictors" / name / "card.json").read_text())


def build_again(name: str, scratch: Path) -> dict[str, Any]:
    """Does what the card says, with results going to a scratch folder; returns what the new card says."""
    words = shlex.split(card_of(name)["rebuild"].replace("$HWBENCH_TABLES", TABLES or ""))
    assert words[0] == "hwbench"
    if "--out" in words:
        target = scratch / "predictor"
        words[words.index("--out") + 1] = str(target)
    else:
        target = None  # its folder is named after the spaces; the first predictors had none in their names
        for part in ("luts", "devices"):
            (scratch / part).symlink_to(ROOT / part)
        words += ["--workspace", str(scratch)]
    env = {**os.environ, "PYTHONPATH": str(Path(hwbench.__file__).parents[1])}
    command = [sys.executable, "-m", "hwbench.cli.main", *words[1:]]
    done = subprocess.run(command, env=env, cwd=scratch, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (card_file,) = [target / "card.json"] if target else scratch.glob("predictors/*/*/card.json")
    card = json.loads(card_file.read_text())
    return {what: card[what] for what in FOUND}


def stated(name: str) -> dict[str, Any]:
    return {what: card_of(name)[what] for what in FOUND}


def assert_same(now: Any, before: Any, where: str, ranks: float = RANKS_APART) -> None:
    """Equal in every part, numbers up to rounding."""
    if isinstance(before, dict):
        assert now.keys() == before.keys(), where
        for key in before:
            assert_same(now[key], before[key], f"{where}.{key}", ranks)
    elif isinstance(before, list):
        assert len(now) == len(before), where
        for i, (a, b) in enumerate(zip(now, before, strict=True)):
            assert_same(a, b, f"{where}[{i}]", ranks)
    elif isinstance(before, float):
        loose = where.endswith(RANKS)
        assert now == pytest.approx(before, rel=0 if loose else RELATIVE, abs=ranks if loose else RELATIVE**2), where
    else:
        assert now == before, where


def test_every_shipped_predictor_is_on_record():
    if RECORDING:
        pytest.skip("recording")
    assert sorted(KNOWN) == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_the_card_states_what_is_on_record(name):
    """Where building it again takes too long for every run, the shipped card at least is not touched."""
    if RECORDING:
        pytest.skip("recording")
    assert stated(name) == KNOWN[name]["stated"]


@pytest.mark.campaign(always=True)
@pytest.mark.slow  # every predictor is fitted anew, up to LONGEST seconds each
@pytest.mark.parametrize("name", SHIPPED)
def test_built_again_it_has_the_recorded_errors(name, tmp_path):
    public = "$HWBENCH_TABLES" in card_of(name)["rebuild"]
    if public and not TABLES:
        pytest.skip("rests on public tables: set HWBENCH_TABLES")
    if RECORDING:
        write_down(name, tmp_path)
    before = KNOWN[name]
    if not TABLES and before["seconds"] > LONGEST:
        pytest.skip(f"took {before['seconds']} s: set HWBENCH_TABLES to build all again")
    if before["found"] is None:
        pytest.skip(before["why"])
    if before["differs"] and before["cpu"] != cpu():
        pytest.skip(f"comes out otherwise on other CPUs: {before['why']}")
    assert_same(build_again(name, tmp_path), before["found"], name)


def write_down(name: str, scratch: Path) -> None:
    """Adds what comes out now to the record."""
    started = time.monotonic()
    try:
        found, failed = build_again(name, scratch), ""
    except AssertionError as error:
        found, failed = None, first_line(error)
    seconds = round(time.monotonic() - started)
    everything = recorded(RECORD) if (ASSETS / RECORD).exists() else {}
    everything[name] = {
        "same": None if found is None else not unlike(found, name, RANKS_JUDGED),
        "why": failed if found is None else unlike(found, name, RANKS_JUDGED),
        "differs": found is not None and bool(unlike(found, name, RANKS_APART)),
        "seconds": seconds,
        "cpu": cpu(),
        "stated": stated(name),
        "found": found,
    }
    (ASSETS / RECORD).write_text(json.dumps(dict(sorted(everything.items())), indent=1) + "\n")
    pytest.skip(f"recorded {name}")


def unlike(found: dict[str, Any], name: str, ranks: float) -> str:
    """Where a predictor built again first differs from its card; nothing if it does not."""
    try:
        assert_same(found, stated(name), "card", ranks)
    except AssertionError as error:
        return f"{first_line(error)} differs from the shipped one"
    return ""


def first_line(error: AssertionError) -> str:
    return str(error).strip().splitlines()[0]
