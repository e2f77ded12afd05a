"""`hwbench measure`: files, raw readings, and what it ends with; every answer is known beforehand."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import hwbench
from hwbench.cli.main import build
from hwbench.core.errors import UsageError
from hwbench.profiler.measure import NothingBefore

NAN = float("nan")


def document(model: str = "m.onnx", **more: Any) -> dict[str, Any]:
    return {
        "model": model, "device": "desk", "runtime": "onnxruntime", "dtype": "int8", "batch": 1, "threads": 1,
        "scenario": "back-to-back", "shapes": {"x": [1, 4]}, "fills": {}, "sha256": "ab" * 32,
        "measured_at": "2026-11-18T10:00:00+00:00", "latency_min_ms": 2.0, "min_spread": NAN, "latency_median_ms": 2.5,
        "median_low_ms": NAN, "median_high_ms": NAN, "median_spread": 0.1, "latency_p90_ms": 3.0, "latency_p99_ms": 4.0,
        "latency_fastest_ms": 1.9, "throughput_per_s": 400.0, "runs_per_reading": 1, "session_ms": 20.0, "first_run_ms": 5.0,
        "peak_memory_bytes": 90_000_000, "memory_without_model_bytes": 40_000_000, "call_overhead_ms": 0.01, "canary_ns": 1e5,
        "verdict": "noisy", "reason": "only 2 of 3 processes", "notes": ["4 of 5 products in int8, the others in fp32: Gemm"],
        "processes": 2, "samples": 10, "readings": 100, "levels_ms": [2.0, 2.2],
        "environment": {"cpu_model": "any", "runtime_version": "1.31"}, "raw": [{"readings_ns": [1.0]}], "start_ups": [],
        **more,
    }  # fmt: skip


FIRST = {"first": "m.onnx", "answer": "slower", "ratio": 1.2, "low": 1.1, "high": 1.3, "processes": 6, "rounds": 6,
         "reason": "B takes 20 % longer"}  # fmt: skip
LAST = {"answer": "slower", "ratio": 1.2, "low": 1.17, "high": 1.23, "before_ms": 1.6, "measured_at": "2026-11-17T10:00:00",
        "reason": "20.0% longer than on 2026-11-17", "changed": ("the file has another content",)}  # fmt: skip


@pytest.fixture
def measured(monkeypatch) -> dict[str, Any]:
    """What was asked for, and under `answer` what is answered."""
    asked: dict[str, Any] = {"answer": [document()]}

    def answer(models: object, **how: Any) -> Any:
        asked.update(models=models, **how)
        if isinstance(asked["answer"], Exception):
            raise asked["answer"]
        return asked["answer"]

    monkeypatch.setattr(hwbench, "measure", answer, raising=False)
    return asked


def measure(*words: object, code: int = 0) -> Result:
    done = CliRunner(env={"COLUMNS": "120"}).invoke(build(), ["measure", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def test_json_has_raw_readings_only_where_asked(measured):
    plain = json.loads(measure("m.onnx", "--json").stdout.splitlines()[-1])
    assert "raw" not in plain
    assert (plain["latency_min_ms"], plain["min_spread"]) == (2.0, None)
    assert json.loads(measure("m.onnx", "--json", "--raw").stdout.splitlines()[-1]) == {**plain, "raw": document()["raw"]}
    for words in ((), ("--out", "a.csv"), ("--out", "a.html")):
        with pytest.raises(UsageError, match=r"measure reads --raw only with --json or --out FILE\.json"):
            measure("m.onnx", "--raw", *words)


def test_files_by_their_ending_and_a_folder_for_all(measured, tmp_path):
    measure("m.onnx", "--out", tmp_path / "m.json")
    assert "raw" not in json.loads((tmp_path / "m.json").read_text())
    measure("m.onnx", "--raw", "--out", tmp_path / "m.json")
    assert json.loads((tmp_path / "m.json").read_text())["raw"]
    measured["answer"] = [document(), document("n.onnx", compared_with_first=FIRST)]
    said = measure("m.onnx", "n.onnx", "--out", tmp_path / "all").stdout
    assert said.splitlines()[-3:] == [f"written: {tmp_path / 'all' / 'measure'}{each}" for each in (".html", ".csv", ".json")]
    rows = list(csv.DictReader((tmp_path / "all" / "measure.csv").read_text().splitlines()))
    assert [(row["model"], row["latency_min_ms"], row["min_spread"]) for row in rows] == [
        ("m.onnx", "2.0", ""),
        ("n.onnx", "2.0", ""),
    ]
    assert json.loads(rows[0]["shapes"]) == {"x": [1, 4]}
    assert [each["model"] for each in json.loads((tmp_path / "all" / "measure.json").read_text())] == ["m.onnx", "n.onnx"]
    page = (tmp_path / "all" / "measure.html").read_text()
    for words in ("2 models, measured", "desk / onnxruntime", "n.onnx (B) against m.onnx (A): slower. B takes", "4 of 5"):
        assert words in page


def test_a_page_is_well_formed_whatever_a_name_holds(measured, tmp_path):
    name = "a/<script>$x_$&\u202e.onnx"
    measured["answer"] = [document(name, compared_with_last=LAST, shapes={"<b>": []})]
    measure("m.onnx", "--out", tmp_path / "m.html")
    page = (tmp_path / "m.html").read_text()
    assert "<script" not in page
    assert "\u202e" not in page
    assert "against its last measurement: slower. It takes 20.0% longer" in page
    assert "90 MB" in page


@pytest.mark.parametrize(
    ("out", "said"), [("m.txt", "what was measured can be written as .html or .csv or .json, or into a folder")]
)
def test_other_endings_are_refused_before_anything_is_measured(measured, out, said):
    with pytest.raises(UsageError, match=said):
        measure("m.onnx", "--out", out)
    assert "models" not in measured


def test_a_model_that_became_slower_has_an_exit_code_of_its_own(measured):
    slower = document(compared_with_last=LAST, too_slow=["compared_with_last"])
    measured["answer"] = [slower]
    done = measure("m.onnx", "--threads", 2, "--against", "LAST", "--fail-if-slower", "5%", "--json", code=6)
    assert (measured["against"], measured["fail_if_slower"]) == ("LAST", 0.05)
    assert json.loads(done.stdout.splitlines()[-1])["too_slow"] == ["compared_with_last"], "the answer comes first"
    assert done.stderr.splitlines()[-1] == (
        "hwbench: slower by more than 5%: m.onnx (at least 17.0%). "
        "To accept it, run: hwbench measure m.onnx --threads 2 --against LAST --json"
    )
    measured["answer"] = [
        document(too_slow=[]),
        document("n.onnx", compared_with_first=FIRST, too_slow=["compared_with_first"]),
    ]
    done = measure("m.onnx", "n.onnx", "--fail-if-slower", "5 %", code=6)
    assert done.stderr.splitlines()[-1] == "hwbench: slower by more than 5 %: n.onnx (at least 10.0%)."


def test_what_noise_may_have_done_is_no_failure(measured):
    measured["answer"] = [document(compared_with_last={**LAST, "answer": "too close to call", "low": 1.04}, too_slow=[])]
    said = measure("m.onnx", "--against", "LAST", "--fail-if-slower", "5%").stdout
    assert "m.onnx against its last measurement: too close to call. It takes 20.0% longer than on 2026-11-17" in said
    assert "not as it was then: the file has another content" in said


@pytest.mark.parametrize("text", ["5", "0.05", "-5%", "%", "nan%", "inf%", "five%"])
def test_a_share_is_a_percentage(measured, text):
    with pytest.raises(UsageError, match=r"--fail-if-slower '.*' is not understood; write 5%\."):
        measure("m.onnx", "--against", "LAST", f"--fail-if-slower={text}")


def test_where_nothing_was_kept_the_command_that_keeps_it_can_be_pasted(measured, tmp_path):
    measured["answer"] = NothingBefore("No measurement of m.onnx is kept in here, so there is none to compare with")
    words = ("m.onnx", "--workspace", tmp_path, "--against", "LAST", "--fail-if-slower", "5%", "--dtype", "int8", "--strict")
    with pytest.raises(UsageError) as refused:
        measure(*words)
    assert str(refused.value).endswith(f"Run: hwbench measure m.onnx --dtype int8 --strict --workspace {tmp_path}")
    assert measured["strict"] is True


def test_the_page_is_the_same_twice(measured, tmp_path):
    measured["answer"] = [document()]
    for name in ("a.html", "b.html"):
        measure("m.onnx", "--out", tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert "hwbench measure" in (tmp_path / "a.html").read_text()
