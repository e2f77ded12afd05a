"""The campaign's tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hwbench.core import markdown
from studies.campaign.edited import OUTCOMES
from studies.campaign.kills import FAULTS
from studies.harness import Results

SHOWN = 12
"""Stories that are printed of each part."""


PARTS = ("kills", "edits", "faults", "liars")


def report(results: Results, options: Mapping[str, Any]) -> str:
    """What was tried, and what went wrong."""
    told = {name: merged(name, results) for name in PARTS}
    tried, faults = totals(told)
    parts = [f"{tried} tries; " + ", ".join(f"{name} {n}" for name, n in faults.items()) + "."] if tried else []
    if rows := told["kills"]["rows"]:
        said = "SIGKILL before a file is opened, renamed or removed, within a line of a log, before a process is started or a "
        said += "question asked; then the same again, to its end. "
        parts += ["## Kills", said + _asked(rows, options["kills"]), _kills(rows)]
    if rows := told["edits"]["rows"]:
        n = max(sum(row[name] for name in OUTCOMES) for row in rows.values())
        said = f"{n} of each kind, {options['edits']} asked for. Another answer is right only for files that people write."
        parts += ["## Edited files", said, _table([{"file": name, **row} for name, row in rows.items()])]
    for name, title in (("faults", "Disks, clocks and second writers"), ("liars", "Devices that lie")):
        if rows := told[name]["rows"]:
            parts += [f"## {title}", _table([{"what": what, **row} for what, row in rows.items()])]
    if "repeats" in results:
        parts += ["## Again and again", _table(_repeated(results["repeats"]))]
    stories = [
        f"- {name}: {', '.join(f'{key} {value}' for key, value in story.items() if key != 'said')}: "
        f"`{' '.join(story['said'].split())[-300:]}`"
        for name in PARTS
        for story in told[name]["stories"][:SHOWN]
    ]
    return "\n\n".join([*parts, *(["## What went wrong", "\n".join(stories)] if stories else [])])


def merged(part: str, results: Results) -> dict[str, Any]:
    """All portions of a part as one: its counts added up, its stories one after the other."""
    rows: dict[str, dict[str, Any]] = {}
    stories: list[dict[str, Any]] = []
    for stage, found in results.items():
        if stage.rpartition("-")[0] != part:
            continue
        stories += found["stories"]
        for name, row in found["rows"].items():
            mine = rows.setdefault(name, {})
            for key, value in row.items():
                if isinstance(value, Mapping):
                    mine[key] = Counter(mine.get(key, {})) + Counter(value)
                else:  # the moments of a run are those of the longest
                    mine[key] = max(mine.get(key, 0), value) if key == "events" else mine.get(key, 0) + value
    return {"rows": rows, "stories": stories}


def totals(told: Mapping[str, Any]) -> tuple[int, dict[str, int]]:
    """(tries, fault -> how often) of all parts."""
    faults = dict.fromkeys((*FAULTS, "crash"), 0)
    tried = 0
    for part in told.values():
        for row in part["rows"].values():
            tried += row["tries"] if "tries" in row else sum(row[name] for name in OUTCOMES)
            for name in faults:
                faults[name] += row.get(name, 0)
    return tried, faults


def _asked(rows: Mapping[str, Any], n: int) -> str:
    return f"{sum(row['tries'] for row in rows.values())} of {n} asked for."


def _repeated(told: Mapping[str, Any]) -> list[dict[str, object]]:
    return [
        {
            "verb": name,
            "times": row["times"],
            "MB after 5": f"{row['memory_mb'][0]:.0f}",
            "MB at the end": f"{row['memory_mb'][1]:.0f}",
            "open files": " to ".join(map(str, row["files"])),
            "processes left": row["processes_left"],
        }
        for name, row in told.items()
    ]


def _kills(rows: Mapping[str, Any]) -> str:
    shown = []
    for name, row in rows.items():
        at = ", ".join(f"{kind} {n}" for kind, n in sorted(row["at"].items()))
        part = ", ".join(f"{n}" for _, n in sorted(row["part"].items()))
        shown.append({"verb": name, "moments": row["events"], "kills": row["tries"], "hit": at, "quarters of the run": part,
                      **{fault: row[fault] for fault in FAULTS}})  # fmt: skip
    return _table(shown)


def _table(rows: Sequence[Mapping[str, object]]) -> str:
    """The first column is words."""
    return markdown.table(list(rows[0]), [list(row.values()) for row in rows])
