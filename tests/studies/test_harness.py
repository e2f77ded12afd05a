"""A study goes on where it was killed, refuses to mix machines, and is rendered from what is stored alone."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from hwbench.core import markdown
from hwbench.core.errors import HwbenchError, MeasurementError
from studies import provenance
from studies.harness import TRIAL, Option, Study

CALLS: list[str] = []


def first(run) -> dict[str, int]:
    """Counts."""
    CALLS.append("first")
    return {"seen": run.options.seeds}


def second(run) -> dict[str, int]:
    """Doubles what first counted."""
    CALLS.append("second")
    return {"seen": 2 * run.result("first")["seen"]}


def report(results, options) -> str:
    rows = [[name, result["seen"]] for name, result in results.items()]
    return markdown.table(["stage", "seen"], rows) + f"\n\nSeeds: {options['seeds']}."


STUDY = Study(
    "counting",
    "How a study counts.\n\nTwo stages.",
    "a moment",
    {"first": first, "second": second},
    report,
    (Option("seeds", 3, "how many"), Option("workers", 1, "at a time", fixed=False)),
)


@pytest.fixture(autouse=True)
def nothing_called():
    CALLS.clear()


def test_stages_run_once_and_their_results_are_read_back(tmp_path, capsys):
    assert STUDY.main(["--out", str(tmp_path)]) == 0
    assert CALLS == ["first", "second"]
    about = json.loads((tmp_path / "study.json").read_text())
    assert (about["study"], about["options"], about["machine"]) == (
        "counting",
        {"seeds": 3, "tiny": False},
        provenance.machine(),
    )
    assert about["command"] == f"python -m studies.counting --out {tmp_path}"
    stored = json.loads((tmp_path / "stages" / "second.json").read_text())
    assert (stored["result"], stored["machine"]) == ({"seen": 6}, about["machine"])
    text = (tmp_path / "counting.md").read_text()
    assert text in capsys.readouterr().out
    assert text.startswith("# How a study counts\n")
    assert "| second | 6 |" in text
    assert about["machine"]["device"] in text
    assert TRIAL not in text
    assert STUDY.main(["--out", str(tmp_path), "--workers", "2"]) == 0  # nothing depends on the workers
    assert CALLS == ["first", "second"]


def test_one_stage_can_be_asked_for_and_taken_again(tmp_path):
    words = ["--out", str(tmp_path)]
    assert STUDY.main([*words, "--stage", "first"]) == 0
    assert CALLS == ["first"]
    assert "Not run: second." in (tmp_path / "counting.md").read_text()
    assert STUDY.main([*words, "--again", "first"]) == 0
    assert CALLS == ["first", "first"]
    assert STUDY.main([*words, "--stage", "second", "--again", "first"]) == 0
    assert CALLS == ["first", "first", "first", "second"]


def test_what_a_stage_needs_is_named(tmp_path, capsys):
    assert STUDY.main(["--out", str(tmp_path), "--stage", "second"]) == 1
    assert "stage second failed: This needs what stage first stores; run it first: --stage first." in capsys.readouterr().err


KILLED = """
import os, signal, sys
from pathlib import Path
from studies.harness import Study

def note(run):
    with (run.out / "notes").open("a") as stream:
        stream.write("noted ")
    return 1

def fall(run):
    if not (run.out / "fallen").exists():
        (run.out / "fallen").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2

study = Study("falling", "Falls once.", "a moment", {"note": note, "fall": fall}, lambda results, options: str(results))
sys.exit(study.main(["--out", sys.argv[1]]))
"""


def test_killed_between_stages_it_goes_on(tmp_path, python):
    out = tmp_path / "out"
    assert python(KILLED, out).returncode == -signal.SIGKILL
    assert [path.name for path in (out / "stages").iterdir()] == ["note.json"]
    again = python(KILLED, out)
    assert again.returncode == 0, again.stderr
    assert "== note: done before" in again.stderr
    assert (out / "notes").read_text() == "noted "
    assert "{'note': 1, 'fall': 2}" in (out / "falling.md").read_text()


def altered(path: Path, **changes: str) -> None:
    document = json.loads(path.read_text())
    document["machine"].update(changes)
    path.write_text(json.dumps(document))


def test_a_stage_of_another_machine_is_refused(tmp_path, capsys):
    words = ["--out", str(tmp_path)]
    assert STUDY.main(words) == 0
    altered(tmp_path / "stages" / "first.json", device="another-box")
    assert STUDY.main(words) != 0
    said = capsys.readouterr().err
    assert "was measured with device another-box, and now it is" in said
    assert "--again first" in said
    assert STUDY.main([*words, "--render"]) != 0
    assert STUDY.main([*words, "--again", "first"]) == 0


def test_a_folder_of_another_machine_version_option_or_study_is_refused(tmp_path, capsys):
    words = ["--out", str(tmp_path)]
    assert STUDY.main(words) == 0
    assert STUDY.main([*words, "--seeds", "4"]) != 0
    assert f"{tmp_path} holds a run with seeds 3, and now it is 4. Choose another --out." in capsys.readouterr().err
    assert STUDY.main([*words, "--tiny"]) != 0
    other = Study("another", "Another.", "a moment", STUDY.stages, report, STUDY.options)
    assert other.main(words) != 0
    assert "holds the study counting, not another" in capsys.readouterr().err
    altered(tmp_path / "study.json", hwbench="0.0.1")
    assert STUDY.main(words) != 0
    assert "was measured with hwbench 0.0.1" in capsys.readouterr().err
    assert CALLS == ["first", "second"]


def test_a_study_whose_results_hold_anywhere_goes_on_elsewhere_and_names_the_machines(tmp_path, monkeypatch, capsys):
    study, words = replace(STUDY, anywhere=True), ["--out", str(tmp_path)]
    assert study.main([*words, "--stage", "first"]) == 0
    here = provenance.machine()
    monkeypatch.setattr(provenance, "machine", lambda: {**here, "device": "another-box"})
    assert study.main(words) == 0
    assert CALLS == ["first", "second"]
    stages = {name: json.loads((tmp_path / "stages" / f"{name}.json").read_text()) for name in ("first", "second")}
    assert [stage["machine"]["device"] for stage in stages.values()] == [here["device"], "another-box"]
    assert "Some stages ran on another-box." in (tmp_path / "counting.md").read_text()
    assert study.main([*words, "--seeds", "4"]) != 0  # options are as binding as ever
    assert "holds a run with seeds 3" in capsys.readouterr().err


def test_a_report_is_rendered_from_stored_results_alone_also_elsewhere(tmp_path, monkeypatch):
    words = ["--out", str(tmp_path)]
    assert STUDY.main(words) == 0
    text = (tmp_path / "counting.md").read_text()
    (tmp_path / "counting.md").unlink()
    CALLS.clear()
    monkeypatch.setattr(provenance, "machine", lambda: {"device": "elsewhere"})
    assert STUDY.main([*words, "--render"]) == 0
    assert (tmp_path / "counting.md").read_text() == text
    assert CALLS == []
    assert STUDY.main(words) != 0  # to measure on, it would have to be the same machine


def test_nothing_to_render_says_so(tmp_path, capsys):
    assert STUDY.main(["--out", str(tmp_path), "--render"]) == 2
    assert capsys.readouterr().err == f"studies.counting: There is no run of a study at {tmp_path / 'study.json'}.\n"


def test_a_failing_stage_leaves_the_others(tmp_path, capsys):
    def fails(run):
        raise MeasurementError("No device\nanswers.")

    def lacks(run):
        import nowhere_to_be_found  # noqa: F401

    study = Study("failing", "Fails.", "a moment", {"fails": fails, "lacks": lacks, "first": first}, report, STUDY.options)
    assert study.main(["--out", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "studies.failing: stage fails failed: No device\\nanswers.\n" in said
    assert "studies.failing: stage lacks failed: No module named 'nowhere_to_be_found'\n" in said
    text = (tmp_path / "failing.md").read_text()
    assert "Not run: fails, lacks." in text
    assert "| first | 3 |" in text


def test_a_bug_keeps_its_traceback(tmp_path):
    def broken(run):
        return 1 / 0

    study = Study("broken", "Breaks.", "a moment", {"first": first, "broken": broken}, report, STUDY.options)
    with pytest.raises(ZeroDivisionError):
        study.main(["--out", str(tmp_path)])
    assert (tmp_path / "stages" / "first.json").exists()


def test_interrupted_it_says_how_to_go_on(tmp_path, capsys):
    def stopped(run):
        raise KeyboardInterrupt

    assert Study("stopped", "Stops.", "a moment", {"stopped": stopped}, report).main(["--out", str(tmp_path)]) == 130
    assert "run the same command to go on" in capsys.readouterr().err


def test_help_tells_what_it_does_how_long_it_takes_and_its_stages(capsys):
    with pytest.raises(SystemExit, match="0"):
        STUDY.main(["--help"])
    told = capsys.readouterr().out
    for words in ("How a study counts.", "Takes a moment.", "--seeds", "(default: 3)", "first   Counts.", "second  Doubles"):
        assert words in told


def test_an_unknown_stage_names_those_there_are(tmp_path, capsys):
    assert STUDY.main(["--out", str(tmp_path), "--stage", "third"]) == 2
    assert "studies.counting has no stage 'third'; stages: first, second." in capsys.readouterr().err
    assert issubclass(MeasurementError, HwbenchError)
