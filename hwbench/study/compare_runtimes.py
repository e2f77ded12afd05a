"""Several runtimes on one machine, row by row: which is fastest where.

    hwbench lut compare                                   every runtime this machine has a table of
    hwbench lut compare --runtime onnxruntime --runtime ncnn --out compared
    hwbench lut compare --runtime onnxruntime==1.20.0 --runtime onnxruntime==1.31.1 --space autoformer-tiny

With a space, rows that are lacking are measured first: releases are installed (device/releases.py), and fresh processes of all
take turns. Of releases of one runtime it is also told what each changed against the one before it, row by row.

Compared is `latency_min_ms` of the rows all tables were asked for. A runtime *leads* a row where it is fastest: clearly, if
every other one is slower beyond noise as `hwbench lut diff` judges it; alone, if all others refuse the op. Written are

    compare.md      by kind of op: who leads how often, and latencies as multiples of the first runtime's
    compare.csv     every row with every runtime's latency, spread and verdict
    compare.json    all of it, and which tables it rests on
    compare.svg     a dot for every row
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import markdown, registry
from hwbench.core.errors import MeasurementError, UsageError
from hwbench.core.files import atomic_write, write_json
from hwbench.device import releases
from hwbench.device.target import DEFAULT_RUNTIME, Target
from hwbench.lut import diff
from hwbench.lut import table as luts
from hwbench.lut.table import Lut
from hwbench.network.spec import OpSpec, Setting
from hwbench.profiler.policy import Policy
from hwbench.profiler.profile import needed_specs
from hwbench.profiler.side_by_side import Failed, Work, profile_side_by_side
from hwbench.study import charts

OWN = ("runtime", "runtime_version", "executes_on")
"""What the tables may differ in; all else of their environments must agree."""
CLEARLY, NOISE, ALONE = "clearly", "within noise", "alone"


@registry.takes(runtimes="runtime", spaces="space")
def compare(
    device: str = "local",
    runtimes: Sequence[str] = (),
    setting: Setting = Setting(),
    workspace: str | Path = ".",
    out: str | Path | None = None,
    spaces: Sequence[str] = (),
    policy: Policy = Policy(),
) -> dict[str, Any]:
    """Which runtime is fastest where, on one device.

    Args:
        device: `local` or a device's name.
        runtimes: At least two, the first one what others are multiples of; all that were timed there if none is given.
        setting: dtype, batch, threads.
        workspace: Where the tables are.
        out: Folder for the report (see the top of this file); nothing is written if not given.
        spaces: Whose rows are measured first where they are lacking, each runtime's fresh processes in turn.
        policy: How long that may take.

    Returns:
        `runtimes` (version, rows measured, refusals), `rows` (latencies, who leads and how), `kinds` (by kind of op:
        geometric means of multiples, counts of leads), `left_out` (tables that hold no latencies of this device, releases
        that cannot be installed), `changes` (of releases of one runtime: what each changed against the one before).

    Raises:
        UsageError: fewer than two tables, or no row that all of them were asked for.
        EnvironmentMismatch: the tables are of unlike machines.
    """
    target = Target.of(device, setting=setting, workspace=workspace)
    asked = list(dict.fromkeys(runtimes))
    failed = _measured(target, asked, spaces, policy) if spaces else {}
    tables, left_out = _tables(target, [each for each in asked if each not in failed])
    left_out = {**failed, **left_out}
    if len(tables) < 2:
        have = ", ".join(tables) or "none"
        if failed:
            raise MeasurementError(f"Fewer than two runtimes could be measured: {'; '.join(failed.values())}")
        raise UsageError(
            f"Comparing takes tables of at least two runtimes on {target.device}; timed there: {have}. "
            f"{luts.how_to_measure(replace(target, runtime='openvino'))}"
        )
    document = {"device": target.device, **_compared(tables, setting), "left_out": left_out}
    if out is not None:
        _write(Path(out), document)
    return document


def _measured(target: Target, runtimes: Sequence[str], spaces: Sequence[str], policy: Policy) -> dict[str, str]:
    """Measures what the runtimes' tables lack; returns runtime -> why there is nothing to compare of it.

    Raises:
        UsageError: no runtime is named, or one that nobody knows.
    """
    if len(runtimes) < 2:
        raise UsageError(
            "Measuring the rows of --space before they are compared takes at least two runtimes: give --runtime twice."
        )
    failed = {}
    for runtime in runtimes:
        if (release := releases.release_of(runtime)) is None:
            registry.get("runtime", runtime)
            continue
        try:
            releases.install(release)  # here, where it is told what was installed
        except MeasurementError as error:
            failed[runtime] = str(error)
    work = Work(needed_specs(spaces), policy)
    wanted = [replace(target, runtime=runtime) for runtime in runtimes if runtime not in failed]
    answers = profile_side_by_side(work, wanted) if len(wanted) > 1 else {}
    return failed | {runtime: answer.message for runtime, answer in answers.items() if isinstance(answer, Failed)}


def _changes(tables: Mapping[str, Lut], setting: Setting) -> list[dict[str, Any]]:
    """What every release of a runtime changed against the one named before it, beyond noise."""
    found = []
    for (before, mine), (after, other) in pairwise(tables.items()):
        if releases.engine(before) != releases.engine(after):
            continue
        told = diff.diff(mine, other, setting.key)
        changed = {
            answer: {row.key: row.change for row in told.rows if row.answer == answer} for answer in ("slower", "faster")
        }
        counts = {name: told.counts[name] for name in ("same", "unclear")}
        found.append({"before": before, "after": after, "rows": len(told.rows), **changed, **counts, "shift": told.shift})
    return found


def change_text(change: Mapping[str, Any], most: int = 3) -> str:
    """One release against the one before, as a sentence."""

    def listed(which: str) -> str:
        rows = list(change[which].items())
        named = ", ".join(f"{key} {100 * by:+.1f} %" for key, by in rows[:most])
        more = f", and {len(rows) - most} more" if len(rows) > most else ""
        return f"{len(rows)} {which}{f': {named}{more}' if rows else ''}"

    verdict = "made some rows slower" if change["slower"] else "made no row slower beyond noise"
    told = f"{change['after']} against {change['before']} {verdict}. Of {change['rows']} rows {listed('slower')}"
    return f"{told}; {listed('faster')}; {change['same']} same, {change['unclear']} unclear."


def _compared(tables: Mapping[str, Lut], setting: Setting) -> dict[str, Any]:
    """Everything the tables say of the rows that all of them were asked for, at one setting.

    Raises:
        UsageError: there is no such row.
        EnvironmentMismatch: the tables are of unlike machines.
    """
    first, *others = tables.values()
    for other in others:
        luts.refuse_mixing(first.environment, other.environment, str(first.path), str(other.path), but=OWN)
    asked = [set(table.rows_at(setting)) for table in tables.values()]
    keys = sorted(set.intersection(*asked))
    if not keys:
        counts = ", ".join(f"{runtime} {len(mine)}" for runtime, mine in zip(tables, asked, strict=True))
        raise UsageError(
            f"No row at {setting.key} is in all tables (rows: {counts}). Profile the same spaces under each runtime."
        )
    rows = _rows(tables, keys, setting)
    return {
        "setting": setting.key,
        "base": next(iter(tables)),
        "runtimes": {runtime: _summary(table, keys, setting) for runtime, table in tables.items()},
        "only_some": len(set.union(*asked)) - len(keys),
        "kinds": _kinds(rows, list(tables)),
        "changes": _changes(tables, setting),
        "rows": rows,
    }


def _tables(target: Target, asked: Sequence[str]) -> tuple[dict[str, Lut], dict[str, str]]:
    """(runtime -> its table, runtime -> why it is left out); what was asked for by name is never left out silently."""
    stems = [path.stem for path in target.workspace.each("luts", target.device, pattern="*.parquet")]
    # onnxruntime first, where nobody says otherwise: it is what results are held against.
    every = sorted((stem for stem in stems if not stem.endswith(".networks")), key=lambda s: (s != DEFAULT_RUNTIME, s))
    tables, left_out = {}, {}
    for runtime in asked or every:
        table = Lut.of(replace(target, runtime=runtime))
        try:
            table.require_timed()
        except MeasurementError as error:
            if asked:
                raise
            left_out[runtime] = str(error)
        else:
            tables[runtime] = table
    return tables, left_out


def _summary(table: Lut, keys: Sequence[str], setting: Setting) -> dict[str, Any]:
    """One runtime: where it ran, how much of it is measured and how steadily, what it refused."""
    rows = table.rows_at(setting)
    mine = [rows[key] for key in keys]
    timed = [row for row in mine if row["latency_min_ms"] is not None]
    spreads = [row["min_spread"] for row in timed if row["min_spread"] is not None]
    return {
        "version": table.environment.values["runtime_version"],
        "executes_on": table.environment.values.get("executes_on", "cpu"),
        "table": "/".join(table.path.parts[-3:]),
        "measured": len(timed),
        "stable": sum(row["verdict"] == "stable" for row in timed),
        "median_spread": float(np.median(spreads)) if spreads else None,
        "refused": {row["key"]: f"{row['status']}: {row['reason']}" for row in mine if row["latency_min_ms"] is None},
    }


def _rows(tables: Mapping[str, Lut], keys: Sequence[str], setting: Setting) -> list[dict[str, Any]]:
    slower: dict[tuple[str, str, str], bool] = {}
    """(op, runtime, other runtime) -> whether the other one is slower beyond noise, as a share of the first one's latency."""
    for (a, mine), (b, other) in permutations(tables.items(), 2):
        slower.update({(row.key, a, b): row.answer == "slower" for row in diff.diff(mine, other, setting.key).rows})
    rows_at = {runtime: table.rows_at(setting) for runtime, table in tables.items()}
    rows = []
    for key in keys:
        cells = {runtime: each[key] for runtime, each in rows_at.items()}
        timed = {
            runtime: float(cell["latency_min_ms"]) for runtime, cell in cells.items() if cell["latency_min_ms"] is not None
        }
        leader = min(timed, key=lambda runtime: timed[runtime], default=None)
        others = [runtime for runtime in timed if runtime != leader]
        how = None if leader is None else ALONE if not others else NOISE
        if leader is not None and others and all(slower[key, leader, other] for other in others):
            how = CLEARLY
        rows.append(
            {
                "key": key,
                "kind": OpSpec.parse(key).op,
                "leader": leader,
                "how": how,
                "latency_min_ms": {runtime: cell["latency_min_ms"] for runtime, cell in cells.items()},
                "min_spread": {runtime: cell["min_spread"] for runtime, cell in cells.items()},
                "verdict": {runtime: cell["verdict"] for runtime, cell in cells.items()},
            }
        )
    return rows


def _kinds(rows: Sequence[Mapping[str, Any]], runtimes: Sequence[str]) -> list[dict[str, Any]]:
    base = runtimes[0]
    kinds = []
    for kind in [*sorted({row["kind"] for row in rows}), None]:
        mine = [row for row in rows if kind in (None, row["kind"])]
        multiples = {runtime: _multiples(mine, runtime, base) for runtime in runtimes}
        kinds.append(
            {
                "kind": kind or "all",
                "rows": len(mine),
                "multiple": {r: float(np.exp(np.mean(np.log(m)))) if m else None for r, m in multiples.items()},
                "leads": {r: sum(row["leader"] == r for row in mine) for r in runtimes},
                "leads_clearly": {r: sum(row["leader"] == r and row["how"] != NOISE for row in mine) for r in runtimes},
            }
        )
    return kinds


def _multiples(rows: Sequence[Mapping[str, Any]], runtime: str, base: str) -> list[float]:
    """Latencies as multiples of another runtime's, of rows both have."""
    pairs = [(row["latency_min_ms"][runtime], row["latency_min_ms"][base]) for row in rows]
    return [mine / other for mine, other in pairs if mine and other]


def _write(folder: Path, document: dict[str, Any]) -> None:
    write_json(folder / "compare.json", document)
    atomic_write(folder / "compare.csv", _csv(document))
    runtimes, base = list(document["runtimes"]), document["base"]
    dots = {
        kind["kind"]: {
            runtime: _multiples([row for row in document["rows"] if row["kind"] == kind["kind"]], runtime, base)
            for runtime in runtimes
        }
        for kind in document["kinds"][:-1]
    }
    atomic_write(folder / "compare.svg", charts.svg(charts.multiples(dots, base)))
    atomic_write(folder / "compare.md", markdown.document(*sections(document)))


def told_again(document: Mapping[str, Any]) -> str:
    """compare.md of a stored compare.json, all figures counted again from its rows."""
    kinds = _kinds(document["rows"], list(document["runtimes"]))
    # one written before releases could be compared holds no changes, as it compares no two releases of a runtime
    return markdown.document(*sections({"changes": [], **document, "kinds": kinds}))


def _csv(document: Mapping[str, Any]) -> str:
    """One line for every row; a cell is empty where a runtime has no such number."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    values = ("latency_min_ms", "min_spread", "verdict")
    runtimes = list(document["runtimes"])
    lines.writerow(["key", "kind", "leader", "how", *(f"{value}@{runtime}" for runtime in runtimes for value in values)])
    for row in document["rows"]:
        lines.writerow([*(row[name] for name in ("key", "kind", "leader", "how")),
                        *(row[value][runtime] for runtime in runtimes for value in values)])  # fmt: skip
    return text.getvalue()


def sections(document: Mapping[str, Any]) -> list[str]:
    """The report, in Markdown, part by part."""
    runtimes, base = document["runtimes"], document["base"]
    percent = {r: "-" if t["median_spread"] is None else f"{100 * t['median_spread']:.2f}" for r, t in runtimes.items()}
    parts = [
        markdown.heading(f"Runtimes on {document['device']}: which is fastest where"),
        f"`latency_min_ms` at {document['setting']}, {len(document['rows'])} rows that every runtime was asked for. Others are "
        f"multiples of {base} (geometric means): above 1 is slower. In brackets: rows led, and clearly led: beyond the "
        "noise of both tables, or because no other runtime takes the op. Every row is in compare.csv.",
        markdown.picture("latencies as multiples", "compare.svg"),
        markdown.table(
            ["kind of op", "rows", *runtimes],
            [[k["kind"], k["rows"], *(cell(k, r) for r in runtimes)] for k in document["kinds"]],
        ),
        markdown.table(
            ["runtime", "on", "rows measured", "of these stable", "median spread %", "refused"],
            [
                [f"{r} {t['version']}", t["executes_on"], t["measured"], t["stable"], percent[r], len(t["refused"])]
                for r, t in runtimes.items()
            ],
            texts=2,
        ),
    ]
    if document["changes"]:
        parts += ["What each release changed:", markdown.bullets(change_text(each, most=10) for each in document["changes"])]
    refusals = [f"{runtime}, {key}: {why}" for runtime, mine in runtimes.items() for key, why in mine["refused"].items()]
    if refusals:
        parts += ["Refused, so not timed:", markdown.bullets(refusals)]
    if document["left_out"]:
        parts += ["Left out:", markdown.bullets(f"{runtime}: {why}" for runtime, why in document["left_out"].items())]
    return parts


def cell(kind: Mapping[str, Any], runtime: str) -> str:
    """A kind of op under a runtime, as a person reads it: multiple (rows led, of those clearly)."""
    multiple = kind["multiple"][runtime]
    led = f"({kind['leads'][runtime]}, {kind['leads_clearly'][runtime]})"
    return f"- {led}" if multiple is None else f"{multiple:.2f} {led}"
