"""A little of the campaign in every run of the tests: some kills, some edits; and that its judge sees what is wrong."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from hwbench.core.errors import UsageError
from studies.campaign import __main__ as campaign
from studies.campaign import jobs, kills, kinds, report
from studies.campaign.edited import ANOTHER, REFUSED, SAME, read_edited
from studies.campaign.jobs import JOBS, Ended, Job
from studies.campaign.mutators import mutant
from studies.mutants import CENTRAL, FOUND, drawn, mutants

SEARCH = next(job for job in JOBS if job.name == "search")
JSON = b'{"a": [1, 2.5], "b": "text"}\n'


@pytest.fixture(scope="module")
def base(tiny_workspace, tmp_path_factory) -> Path:
    """What a search needs, and one that nobody disturbed."""
    root = tmp_path_factory.mktemp("campaign")
    shutil.copytree(tiny_workspace / "devices", root / "common" / "devices")
    (root / "search").mkdir()
    (root / "search" / "mine.py").write_text(jobs.ACCURACY)
    kinds.prepare_known(root / "known")
    return root


@pytest.fixture(scope="module")
def whole(base) -> Ended:
    done = jobs.run(SEARCH, jobs.prepared(SEARCH, base / "search-whole", base))
    assert done.code == 0, done.stderr
    return done


def test_a_search_that_is_killed_loses_doubles_and_changes_nothing(base, whole):
    at = random.Random(7).sample(range(1, len(whole.events)), 2)
    for end in at:
        faults, kind, said = kills.killed_once(SEARCH, end, base, whole)
        assert (faults, kind is not None) == ([], True), said


def test_the_judge_sees_what_is_lost_doubled_and_wrong(base, whole, tmp_path):
    root = Path(shutil.copytree(base / "search-whole", tmp_path / "it"))
    kept = jobs.lines(SEARCH, root)
    well = Ended(0, "")

    def judged(last: Ended = well) -> set[str]:
        return set(kills.judged(SEARCH, root, base / "search-whole", kept, last))

    assert judged() == set()
    assert judged(Ended(1, "Traceback (most recent call last)")) == {"traceback", "wrong"}
    assert judged(Ended(None, "")) == {"hang"}
    log = root / "out" / "trials.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[1:]))
    assert judged() == {"lost", "wrong"}
    log.write_bytes(b"".join([*lines, lines[0]]))
    assert judged() == {"doubled", "wrong"}


@pytest.mark.parametrize("name", ["device .toml", "architectures .json"])
def test_edited_files_are_refused_in_one_line_or_read(base, name):
    folder = next(kind.folder for kind in kinds.KINDS if kind.name == name)
    if not (base / folder).exists():
        shutil.copytree(base / "common", base / folder)
    found = read_edited(str(base), name, list(range(30)))
    assert {outcome for outcome, _ in found} <= {SAME, REFUSED, ANOTHER}, found
    assert REFUSED in {outcome for outcome, _ in found}


def test_a_mutant_differs_and_is_drawn_by_its_seed():
    for ending in (".json", ".jsonl", ".toml", ".bin"):
        made = [mutant(JSON, ending, random.Random(seed)) for seed in range(50)]
        assert JSON not in made
        assert made == [mutant(JSON, ending, random.Random(seed)) for seed in range(50)]
        assert len(set(made)) > 20


def test_mutants_of_code_are_lines_that_still_compile():
    chosen = drawn(60, 0)
    assert len({each.name for each in chosen}) == 60
    assert {each.module for each in chosen} == set(CENTRAL)
    assert [each.became for each in chosen[: len(FOUND)]] == [became for _, _, became in FOUND]
    for module in CENTRAL:
        source = (jobs.ROOT / "hwbench" / f"{module}.py").read_text()
        for each in mutants(module)[:20]:
            text = each.applied(source)
            compile(text, module, "exec")
            assert text != source


def test_every_job_is_killed_as_often_as_it_weighs():
    whole = {job.name: Ended(0, "", ["open"] * 40) for job in JOBS}
    found = list(kills._drawn(100, whole, random.Random(0)))
    assert {job.name: sum(each is job for each, _ in found) for job in JOBS} == {job.name: job.weight for job in JOBS}
    assert isinstance(found[0][0], Job)
    assert all(1 <= end <= 40 for _, end in found)


def test_portions_are_all_that_was_asked_for_and_nothing_twice():
    whole = {job.name: Ended(0, "", ["open"] * 40) for job in JOBS}
    every = list(kills._drawn(100, whole, random.Random(0)))
    portions = [every[slice(at, None, 10)] for at in range(10)]
    assert sorted((job.name, end) for each in portions for job, end in each) == sorted((job.name, end) for job, end in every)
    assert all(len({job.name for job, _ in each}) >= 4 for each in portions), "each has something of most verbs"
    row = {"tries": 1, "events": 7, "at": {"open": 1}, "lost": 0}
    told = {f"kills-{at}": {"rows": {"fit": row}, "stories": [at]} for at in (1, 2)} | {"repeats": {}}
    assert report.merged("kills", told) == {
        "rows": {"fit": {"tries": 2, "events": 7, "at": {"open": 2}, "lost": 0}}, "stories": [1, 2],
    }  # fmt: skip


def test_a_base_that_was_moved_or_left_half_way_is_refused(tmp_path):
    for text, said in ((None, "was not prepared to its end"), ("/elsewhere", "was prepared elsewhere")):
        if text:
            (tmp_path / campaign.READY).write_text(text)
        with pytest.raises(UsageError, match=said):
            campaign._base.__wrapped__(tmp_path)
