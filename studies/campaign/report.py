"""The campaign's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hwbench.core import markdown
from studies.campaign.edited import OUTCOMES
from studies.campaign.kills import FAULTS
from studies.harness import Results

SHOWN = 12
"""Stories that are printed of each part."""


def report(results: Results, options: Mapping[str, Any]) -> str:
    """What was tried, and what went wrong."""
    parts = []
    tried, faults = totals(results)
    if tried:
        parts.append(f"{tried} tries; " + ", ".join(f"{name} {n}" for name, n in faults.items()) + ".")
    if "kills" in results:
        said = "SIGKILL before a file is opened, renamed or removed, within a line of a log, before a process is started or a "
        said += "question asked; then the same again, to its end."
        parts += ["## Kills", said, _kills(results["kills"]["rows"])]
    if "edited" in results:
        rows = [{"file": name, **row} for name, row in results["edited"]["rows"].items()]
        parts += ["## Edited files", "Another answer is right only for files that people write.", _table(rows)]
    for stage, title in (("faults", "Disks, clocks and second writers"), ("liars", "Devices that lie")):
        if stage in results:
            rows = [{"what": name, **row} for name, row in results[stage]["rows"].items()]
            parts += [f"## {title}", _table(rows)]
    if "repeats" in results:
        rows = [
            {
                "verb": name,
                "times": row["times"],
                "MB after 5": f"{row['memory_mb'][0]:.0f}",
                "MB at the end": f"{row['memory_mb'][1]:.0f}",
                "open files": " to ".join(map(str, row["files"])),
                "processes left": row["processes_left"],
            }
            for name, row in results["repeats"].items()
        ]
        parts += ["## Again and again", _table(rows)]
    told = [
        f"- {stage}: {', '.join(f'{key} {value}' for key, value in story.items() if key != 'said')}: "
        f"`{' '.join(story['said'].split())[-300:]}`"
        for stage in ("kills", "edited", "faults", "liars")
        for story in results.get(stage, {}).get("stories", [])[:SHOWN]
    ]
    if told:
        parts += ["## What went wrong", "\n".join(told)]
    return "\n\n".join(parts)


def totals(results: Results) -> tuple[int, dict[str, int]]:
    """(tries, fault -> how often) of all parts."""
    faults = dict.fromkeys((*FAULTS, "crash"), 0)
    tried = 0
    for stage in ("kills", "edited", "faults", "liars"):
        for row in results.get(stage, {}).get("rows", {}).values():
            tried += row["tries"] if "tries" in row else sum(row[name] for name in OUTCOMES)
            for name in faults:
                faults[name] += row.get(name, 0)
    return tried, faults


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
