"""What was measured of one's own models: kept, found again, and compared by noise that is known beforehand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hwbench.core.errors import DataError, UsageError
from hwbench.core.workspace import Workspace
from hwbench.lut.model_history import compare, from_file, identity, keep, last, too_slow

ENVIRONMENT = {"machine": "x86_64", "cpu_model": "any", "runtime": "onnxruntime", "runtime_version": "1.30"}


def document(model: Path | str = "m.onnx", latency_ms: float = 10.0, **more: Any) -> dict[str, Any]:
    return {
        "model": str(model), "device": "desk", "runtime": "onnxruntime", "dtype": "as in the file", "threads": 1,
        "scenario": "back-to-back", "shapes": {"x": (1, 4)}, "fills": {}, "latency_min_ms": latency_ms, "min_spread": 0.001,
        "latency_fastest_ms": latency_ms, "verdict": "stable", "processes": 6, "canary_ns": 100.0,
        "measured_at": "2026-11-18T10:00:00+00:00", "sha256": "aa", "environment": ENVIRONMENT, "raw": [1, 2, 3], **more,
    }  # fmt: skip


@pytest.fixture
def place(tmp_path) -> Workspace:
    return Workspace.at(tmp_path)


def test_the_last_one_is_found_again_without_raw_readings(place):
    first, second = document(place.root / "m.onnx"), document(place.root / "m.onnx", 11.0, min_spread=float("nan"))
    for each in (first, second):
        path = keep(each, place, failed=False)
    assert path == place.root / "measurements" / "desk" / "onnxruntime.jsonl"
    assert [json.loads(line)["latency_min_ms"] for line in path.read_text().splitlines()] == [10.0, 11.0]
    assert "raw" not in path.read_text()
    found = last(identity(first, place), place)
    assert (found["latency_min_ms"], found["min_spread"]) == (11.0, None)


@pytest.mark.parametrize(
    "other",
    [
        {"model": "other.onnx"},
        {"threads": 2},
        {"dtype": "int8"},
        {"scenario": "cold"},
        {"shapes": {"x": (2, 4)}},
        {"fills": {"x": 1.0}},
        {"runtime": "openvino"},
        {"device": "elsewhere"},
    ],
)
def test_another_question_is_not_answered(place, other):
    keep(document(), place, failed=False)
    assert last(identity(document(**other), place), place) is None


def test_a_model_in_the_workspace_is_the_same_wherever_that_lies(tmp_path):
    here, there = Workspace.at(tmp_path / "a"), Workspace.at(tmp_path / "b")
    assert identity(document(here.root / "m.onnx"), here) == identity(document(there.root / "m.onnx"), there)
    assert identity(document(here.root / "m.onnx"), there)["model"] == (here.root / "m.onnx").as_posix()


def test_what_failed_is_kept_and_nothing_is_held_against_it(place):
    keep(document(), place, failed=False)
    keep(document(latency_ms=20.0), place, failed=True)
    assert last(identity(document(), place), place)["latency_min_ms"] == 10.0


def test_a_damaged_line_is_named(place):
    path = keep(document(), place, failed=False)
    path.write_text(path.read_text() + '{"latency_min_ms": 1}\n')
    with pytest.raises(DataError, match=r"line 2 is not a measurement"):
        last(identity(document(), place), place)


@pytest.mark.parametrize(
    ("now_ms", "more", "answer", "noise"),
    [
        (10.0, {}, "same", 0.02),
        (10.19, {}, "same", 0.02),  # two percent are never claimed
        (10.3, {}, "slower", 0.02),
        (9.7, {}, "faster", 0.02),
        (10.3, {"min_spread": 0.04}, "same", 0.04),
        (10.3, {"verdict": "shifted"}, "too close to call", 0.05),
        (10.6, {"min_spread": None, "processes": 2}, "slower", 0.05),
        (11.0, {"canary_ns": 110.0}, "too close to call", 0.12),  # the machine itself was slower
        (9.0, {"canary_ns": 110.0}, "too close to call", 0.12),
        (11.5, {"canary_ns": 102.0}, "slower", 0.02),
    ],
)
def test_noise_decides(now_ms, more, answer, noise):
    found = compare(document(), document(latency_ms=now_ms, **more))
    assert found.answer == answer
    assert found.ratio == pytest.approx(now_ms / 10)
    assert (found.ratio - found.low, found.high - found.ratio) == pytest.approx((noise, noise), abs=2e-4)
    assert f"noise may be {100 * noise:.1f}%" in found.reason
    assert "10 ms then" in found.reason
    assert "\n" not in found.reason


def test_what_else_changed_is_said():
    assert compare(document(), document()).changed == ()
    now = document(sha256="bb", environment={**ENVIRONMENT, "runtime_version": "1.31"})
    assert compare(document(), now).changed == ("the file has another content", "runtime_version was '1.30', is '1.31'")


@pytest.mark.parametrize(("now_ms", "expected"), [(10.4, False), (10.6, False), (10.69, False), (10.72, True), (9.0, False)])
def test_only_what_is_certainly_slower_fails(now_ms, expected):
    """5 % are allowed, and 2 % may be noise."""
    found = compare(document(), document(latency_ms=now_ms))
    assert too_slow(vars(found), 0.05) is expected


def test_a_file_can_be_held_against_too(place):
    path = place.root / "before.json"
    path.write_text(json.dumps([document("a/m.onnx"), document("a/n.onnx", 5.0)]))
    assert from_file(path, identity(document("b/n.onnx"), place), place)["latency_min_ms"] == 5.0
    path.write_text(json.dumps(document("old-name.onnx", 7.0)))
    assert from_file(path, identity(document("m.onnx"), place), place)["latency_min_ms"] == 7.0


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        ("{}", DataError, "holds no measurement; write one, as in: hwbench measure MODEL.onnx --out FILE.json"),
        ("[1]", DataError, "holds no measurement"),
        ("not json", DataError, "is not readable JSON"),
        (json.dumps([document("a.onnx"), document("b.onnx")]), UsageError, "holds no measurement of m.onnx; it has: a.onnx"),
        (json.dumps(document(threads=2)), UsageError, "cannot be compared: its threads is 2, asked is 1"),
        (json.dumps(document(device="pi")), UsageError, "cannot be compared: its device is 'pi', asked is 'desk'"),
    ],
)
def test_a_file_that_answers_nothing_is_refused_in_one_line(place, content, error, said):
    path = place.root / "before.json"
    path.write_text(content)
    with pytest.raises(error) as refused:
        from_file(path, identity(document("m.onnx"), place), place)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_said(place):
    with pytest.raises(UsageError, match="There is no measurement at"):
        from_file(place.root / "none.json", identity(document(), place), place)
