"""Published numbers are those of stored data: everything of ours passes, and one digit changed anywhere does not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import hwbench
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import write_json
from hwbench.core.workspace import packaged
from hwbench.study import published_numbers, recompute
from hwbench.study.published_numbers import Number
from hwbench.study.stated_figures import FILE, Sources, Statements
from tests import campaign

OURS = packaged() / "reports"


def numbers(text: str, *names: str) -> list[str]:
    return [number.text for block in published_numbers.read(text, names) for number in block.numbers]


# What is a number


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mean error 2.5 %, worst +6.8 % of 1,476 rows", ["2.5", "+6.8", "1,476"]),
        ("a tau of .094 [.068, -.125]", [".094", ".068", "-.125"]),
        ("took 12.4ms, 0.7x; NAS-Bench-201, fp32, p50, ResNet-50 and a 12-layer ViT", ["12.4", "0.7"]),
        ("on 2026-11-18 at 12:35 with onnxruntime 1.31.1 and torch 2.13: `--seeds 5`, [four](reports/2026/x-9.md) 3", ["3"]),
        ("a Raspberry Pi 4 takes 5 s", ["5"]),
        ("| a | 5 % |\n|---|---:|\n| b | 7 |", ["7"]),
        ("    code 7\n\n```console\n$ run 8\n9\n```\n<!-- 10\n11 -->\n- **12** of 13", ["12", "13"]),
        ("1. first of 2\n2. second", ["2"]),
    ],
)
def test_numbers_that_state_something_are_found(text, found):
    assert numbers(text, "Raspberry Pi 4") == found


def test_a_number_is_told_with_its_line():
    (block,) = published_numbers.read("one\ntwo 2 **three\nfour 4**\n")
    assert block.text == "one two 2 three four 4"
    assert block.numbers == (Number(8, "2", 2), Number(21, "4", 3))


# What figures.toml may say


@pytest.fixture
def reports(tmp_path) -> Path:
    """Two documents and a result."""
    folder = tmp_path / "reports"
    (folder / "a-2026-01-01").mkdir(parents=True)
    found = {
        "errors": {"x": 0.0512, "y": 0.1},
        "rows": [{"kind": "ffn", "ms": 1.5, "ok": True}, {"kind": "head", "ms": 4, "ok": None}],
    }
    write_json(folder / "a-2026-01-01" / "found.json", found)
    (folder / "README.md").write_text("# All\n\nErr: **5.1 %** over 20 seeds, [read](a-2026-01-01/a.md).\n")
    (folder / "a-2026-01-01" / "a.md").write_text("| kind | ms |\n|---|---:|\n| ffn | 1.50 |\n| head | 4.00 |\n")
    (folder / FILE).write_text(
        '[[figure]]\nin = "README.md"\nfrom = "a-2026-01-01/found.json"\ntext = "Err: {errors/x*100:.1f} %"\n'
        '[[given]]\nin = "*"\ntexts = ["20 seeds"]\nreason = "settings"\n'
        '[[figure]]\nin = "a-2026-01-01/a.md"\nfrom = "a-2026-01-01/found.json"\neach = { kind = ["ffn", "head"] }\n'
        'text = "| <kind> | {rows/[kind=<kind>]/ms:.2f} |"\n'
    )
    return folder


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("errors/x", "0.0512"),
        ("errors/x*100:.2f", "5.12"),
        ("errors/x:~.3f", ".051"),
        ("max(errors/*):+.1f", "+0.1"),
        ("count(rows/[ms>=1.5])", "2"),
        ("rows/[kind=head][ms>2]/ms", "4"),
        ("count(rows/[ok=true])", "1"),
        ("rows/1/ok", "-"),
        ("mean(rows/*/ms):.2f", "2.75"),
        ("rows/[kind^=ff]/kind", "ffn"),
    ],
)
def test_paths(reports, expression, told):
    assert Sources(reports, {}).value(expression, "a-2026-01-01/found.json") == told


def test_paths_into_a_recomputed_document(reports):
    text = "## Half\n\n| models | within 10 % |\n|---|---|\n| all | 64 (9/14) |\n\nMean 3.5 %, worst 9.\n"
    sources = Sources(reports, {"b.md": text})
    assert sources.value("Half/[models=all]/within 10 %#2", "b.md") == "9"
    assert sources.value("Half/[line^=Mean]/line#2:.1f", "b.md") == "9.0"


@pytest.mark.parametrize(
    ("expression", "file", "said"),
    [
        ("errors/z", "a-2026-01-01/found.json", "nothing is at errors/z"),
        ("rows/*/ms", "a-2026-01-01/found.json", "2 entries"),
        ("x", "", "names no file"),
        ("x", "gone.json", "no gone.json"),
        ("x", "README.md", "was not recomputed"),
        ("__class__", "a-2026-01-01/found.json", "nothing is at"),
    ],
)
def test_what_a_path_cannot_find_is_said(reports, expression, file, said):
    with pytest.raises(DataError, match=said):
        Sources(reports, {}).value(expression, file)


@pytest.mark.parametrize(
    "entry", ['[[figures]]\nin = "a"', '[[figure]]\nin = "README.md"', '[[given]]\nin = "a"\ntexts = []\nwhy = "x"']
)
def test_an_entry_that_is_none_is_refused(reports, entry):
    (reports / FILE).write_text(entry)
    with pytest.raises(DataError, match=r"figures\.toml"):
        hwbench.recompute(reports)


# A folder of reports


def test_what_stands_there_is_what_is_stored(reports):
    done = hwbench.recompute(reports)
    assert (done["numbers"], done["recomputed"], done["given"], done["wrong"], done["lost"]) == (4, 3, 1, [], [])


@pytest.mark.parametrize(
    ("document", "old", "new"),
    [
        ("README.md", "5.1", "5.2"),
        ("README.md", "20 seeds", "21 seeds"),
        ("README.md", "read]", "read 7 of]"),
        ("a-2026-01-01/a.md", "4.00", "4.01"),
    ],
)
def test_a_wrong_number_and_one_more_are_told(reports, document, old, new):
    path = reports / document
    path.write_text(path.read_text().replace(old, new))
    wrong = hwbench.recompute(reports)["wrong"]
    assert wrong
    assert {entry["document"] for entry in wrong} == {document}


def test_figures_of_a_document_that_is_gone_are_told(reports):
    (reports / "a-2026-01-01" / "a.md").unlink()
    (entry,) = hwbench.recompute(reports)["wrong"]
    assert (entry["text"], entry["why"]) == ("a-2026-01-01/a.md", "no such document")


@pytest.mark.parametrize("given", ["nowhere", "."])
def test_a_folder_without_reports_is_refused(tmp_path, given):
    with pytest.raises(UsageError, match=r"folder|report"):
        hwbench.recompute(tmp_path / given)


# Ours


@pytest.fixture(scope="module")
def ours():
    """Every document of ours written again, and figures.toml."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(OURS.parent)
        texts, notes = recompute.written_again(OURS, OURS.parent)
    assert [note for note in notes if not note.startswith("quickstart-2026-11-16")] == []
    return Statements.read(OURS / FILE), Sources(OURS, texts)


def verdict(ours, name: str, text: str) -> recompute.Verdict:
    return recompute.check(name, text, *ours)


def test_every_number_of_ours_is_accounted_for(ours):
    found = [verdict(ours, name, (OURS / name).read_text()) for name in recompute.documents(OURS)]
    assert [entry for each in found for entry in each.wrong] == []
    assert sum(each.found["written again"] + each.found["stated"] for each in found) > 15_000
    assert {entry["reason"] for each in found for entry in each.lost}.isdisjoint({""})


def planted(text: str, number: Number, rng: random.Random) -> str:
    """One digit of a number changed, in place."""
    lines = text.splitlines(keepends=True)
    line = lines[number.line - 1]
    # The number's own place in the raw line: the first that stands free there.
    begin = next(at for at in range(len(line)) if line.startswith(number.text, at) and not line[at - 1 : at].isalnum())
    places = [begin + i for i, sign in enumerate(number.text) if sign.isdigit()]
    at = rng.choice(places)
    lines[number.line - 1] = line[:at] + str((int(line[at]) + rng.randint(1, 9)) % 10) + line[at + 1 :]
    return "".join(lines)


@pytest.mark.campaign(always=True)
def test_one_digit_changed_in_each_report_is_found(ours):
    """One of each document's recomputed numbers; in a campaign, fifty."""
    rng = random.Random(20)
    tried = set()
    for name in recompute.documents(OURS):
        text = (OURS / name).read_text()
        how = verdict(ours, name, text).how
        blocks = published_numbers.read(text, ours[0].names)
        every = [n for at, block in enumerate(blocks) for n in block.numbers if how[at, n.at] in ("written again", "stated")]
        for number in rng.sample(every, min(len(every), 50 if campaign.RUNNING else 1)):
            assert verdict(ours, name, planted(text, number, rng)).wrong, (name, number)
            tried.add(name)
    assert len(tried) > 40
