"""Device specialisation: what is lost by using on one device the winner of another (HAT, Wang et al. 2020, table 13).

    hwbench specialise --table nasbench201-cifar10 --complete --budget-percentile 25 --out specialised

Every device has a budget of its own, the same percentile of its latencies, and a winner: the most accurate network within
it. A winner carried to another device either keeps that device's budget, and then what counts is the accuracy it lacks, or
it breaks it, and then by how much. Networks that some device did not measure are left out for all: everything is compared
on the same networks. Written are

    specialise.md     the shares of pairs that lose, the winners, and the cross table of every budget
    specialise.csv    every pair at every budget, with what the shares are computed from
    specialise.json   all of it, and which data it rests on
    cross-p25.png     the cross table as a picture, for every budget
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy.benchmark.base import Benchmark, Rows, folder_of
from hwbench.core import markdown, registry
from hwbench.core.errors import UsageError
from hwbench.core.files import atomic_write, write_json
from hwbench.study import heat_map

POINTS, SLOWER = 0.5, 0.10
"""Accuracy points, and latency relative to the budget, beyond which another device's winner hurts."""
PERCENTILES = (10.0, 25.0, 50.0)
LEAST_NETWORKS = 50


@registry.takes(table="benchmark")
def specialise(
    table: str,
    budget_percentile: float | Sequence[float] = PERCENTILES,
    tables: str | Path | None = None,
    device: Sequence[str] = (),
    out: str | Path | None = None,
    complete: bool = False,
) -> dict[str, Any]:
    """The cross tables of winners over all pairs of devices, one for each budget.

    Args:
        table: Registered table.
        budget_percentile: Of each device's latencies: its budget; one or several.
        tables: Folder of tables; HWBENCH_TABLES if not given.
        device: At least two devices; all of the table if none is given.
        out: Folder for the report (see the top of this file); nothing is written if not given.
        complete: Leave out devices that did not measure every network.

    Returns:
        `devices` and, for each of `budgets`, their `winners`, and [winner's device][device] `lost_points` (null where the
        budget is broken) and `latency_excess` (relative, 0 where it is kept); `hurt` is the share of pairs that lose more
        than POINTS or SLOWER.

    Raises:
        UsageError: an unknown table or device, a percentile outside 0 .. 100, or too few networks measured everywhere.
    """
    percentiles = _percentiles(budget_percentile)
    plan: Benchmark = registry.get("benchmark", table)
    rows = plan.read(folder_of(tables))
    devices = _devices(rows, device, complete)
    document = {"table": table, "data_sha256": rows.fingerprint(devices), **_document(rows, table, devices, percentiles)}
    if out is not None:
        _write(Path(out), document)
    return document


def _document(rows: Rows, table: str, devices: Sequence[str], percentiles: Sequence[float]) -> dict[str, Any]:
    everywhere = _everywhere(rows, devices, table)
    genes, accuracy = rows.genes[everywhere], rows.accuracy[everywhere]
    latency = np.stack([rows.latency_of(name)[everywhere] for name in devices])
    return {
        "networks": len(everywhere),
        "devices": list(devices),
        "pairs": len(devices) * (len(devices) - 1),
        "limits": {"points": POINTS, "latency": SLOWER},
        "budgets": [_crossed(genes, accuracy, latency, devices, each) for each in percentiles],
    }


def _percentiles(given: float | Sequence[float]) -> list[float]:
    percentiles = sorted({float(each) for each in ([given] if isinstance(given, int | float) else given)})
    wrong = [each for each in percentiles if not 0 < each <= 100]
    if wrong or not percentiles:
        raise UsageError(f"The budget percentile must lie between 0 and 100, got {wrong[0] if wrong else 'none'}.")
    return percentiles


def _devices(rows: Rows, asked: Sequence[str], complete: bool) -> list[str]:
    devices = list(dict.fromkeys(asked)) or list(rows.latency_ms)
    if complete:
        networks = int((~np.isnan(rows.accuracy)).sum())
        devices = [name for name in devices if len(rows.usable(name)) == networks]
    if len(devices) < 2:
        raise UsageError(f"Specialisation needs at least two devices, got {', '.join(devices) or 'none'}.")
    return devices


def _crossed(
    genes: np.ndarray, accuracy: np.ndarray, latency: np.ndarray, devices: Sequence[str], percentile: float
) -> dict[str, Any]:
    """Every winner on every device, at one budget."""
    budgets = np.percentile(latency, percentile, axis=1)
    winners = np.array([_winner(accuracy, ms, budget) for ms, budget in zip(latency, budgets, strict=True)])
    # [winner's device, device it is used on]
    carried = latency[:, winners].T
    return {
        "budget_percentile": percentile,
        "winners": {
            name: {
                "genes": genes[winner].tolist(),
                "accuracy": float(accuracy[winner]),
                "latency_ms": float(latency[i, winner]),
                "budget_ms": float(budgets[i]),
            }
            for i, (name, winner) in enumerate(zip(devices, winners, strict=True))
        },
        "different_winners": len(set(winners.tolist())),
        "latency_ms": carried.tolist(),
        **_losses(carried, budgets, accuracy[winners], devices),
    }


def _losses(carried: np.ndarray, budgets: np.ndarray, accuracy: np.ndarray, devices: Sequence[str]) -> dict[str, Any]:
    """What winners lose elsewhere, of their latencies [winner's device, device it is used on] and accuracies."""
    excess = np.maximum(carried / budgets - 1.0, 0.0)
    lost = np.where(excess > 0, np.nan, accuracy[None, :] - accuracy[:, None])
    other = ~np.eye(len(devices), dtype=bool)
    points, slower = np.nan_to_num(lost) > POINTS, excess > SLOWER
    return {
        "lost_points": lost.tolist(),
        "latency_excess": excess.tolist(),
        "broken": float((excess[other] > 0).mean()),
        "lose_points": float(points[other].mean()),
        "lose_latency": float(slower[other].mean()),
        "hurt": float((points | slower)[other].mean()),
        "worst_points": float(np.nan_to_num(lost).max()),
        "worst_latency": float(excess.max()),
        "hurt_on": {name: float((points | slower)[other[:, i], i].mean()) for i, name in enumerate(devices)},
    }


def told_again(document: Mapping[str, Any]) -> str:
    """specialise.md of a stored specialise.json, all losses computed again from its latencies and accuracies."""
    budgets = []
    for each in document["budgets"]:
        winners = list(each["winners"].values())
        limits, accuracy = (np.array([winner[key] for winner in winners]) for key in ("budget_ms", "accuracy"))
        budgets.append({**each, **_losses(np.array(each["latency_ms"]), limits, accuracy, document["devices"])})
    return _markdown({**document, "budgets": budgets})


def _write(folder: Path, document: dict[str, Any]) -> None:
    write_json(folder / "specialise.json", document)
    atomic_write(folder / "specialise.csv", _pairs(document))
    for budget in document["budgets"]:
        title = f"Another device's winner, {document['table']}, budget at percentile {budget['budget_percentile']:g}"
        lost, excess = np.array(budget["lost_points"]), np.array(budget["latency_excess"])
        atomic_write(folder / picture_name(budget), heat_map.cross_table(document["devices"], lost, excess, title))
    atomic_write(folder / "specialise.md", _markdown(document))


def picture_name(budget: dict[str, Any]) -> str:
    """The file of a budget's picture."""
    return f"cross-p{budget['budget_percentile']:g}.png"


def _pairs(document: dict[str, Any]) -> str:
    """CSV: one line for every winner on every device at every budget; a cell is empty where there is no such number."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(
        ["budget_percentile", "winner_of", "used_on", "accuracy", "own_winner_accuracy", "latency_ms", "own_winner_latency_ms",
         "budget_ms", "lost_points", "latency_excess", "hurt"]
    )  # fmt: skip
    for budget in document["budgets"]:
        winners = budget["winners"]
        for i, mine in enumerate(document["devices"]):
            for j, there in enumerate(document["devices"]):
                lost, excess = budget["lost_points"][i][j], budget["latency_excess"][i][j]
                lines.writerow(
                    [budget["budget_percentile"], mine, there, winners[mine]["accuracy"], winners[there]["accuracy"],
                     budget["latency_ms"][i][j], winners[there]["latency_ms"], winners[there]["budget_ms"],
                     "" if np.isnan(lost) else lost, excess, lost > POINTS or excess > SLOWER]
                )  # fmt: skip
    return text.getvalue()


def cell(lost: float, excess: float) -> str:
    """A pair as a person reads it: points lost within the budget (-), or latency above it (+)."""
    if excess > 0:
        return f"+{excess:.0%}" if excess >= 0.01 else f"+{excess:.1%}"
    return f"-{lost:.2f}" if lost > 0 else "0"


def _markdown(document: dict[str, Any]) -> str:
    limits = document["limits"]
    told = (
        f"{len(document['devices'])} devices, {document['networks']:,} networks measured on all of them, {document['pairs']} "
        "pairs. A device's budget is a percentile of its own latencies; its winner is the most accurate network within it. "
        "On another device a winner either keeps that budget, and then it may lack accuracy, or breaks it. It hurts where it "
        f"lacks more than {limits['points']:g} points or takes over {limits['latency']:.0%} above the budget. Every pair with "
        "its accuracies and latencies is in specialise.csv."
    )
    title = markdown.heading(f"{document['table']}: what another device's winner loses")
    parts = [part for budget in document["budgets"] for part in _budget(budget, document["devices"])]
    return markdown.document(title, told, _shares(document), *parts)


def _shares(document: dict[str, Any]) -> str:
    """How many pairs lose, one line for every budget."""
    limits = document["limits"]
    columns = {
        "hurt": "pairs that hurt %",
        "lose_points": f"lack over {limits['points']:g} points %",
        "lose_latency": f"over {limits['latency']:.0%} too slow %",
        "broken": "break the budget %",
    }
    rows = [
        [f"{budget['budget_percentile']:g}", *(f"{100 * budget[name]:.1f}" for name in columns), budget["different_winners"],
         f"{budget['worst_points']:.2f}", f"{100 * budget['worst_latency']:.0f}"]
        for budget in document["budgets"]
    ]  # fmt: skip
    more = ("different winners", "most points lost", "most above the budget %")
    return markdown.table(["budget at percentile", *columns.values(), *more], rows)


def _budget(budget: dict[str, Any], devices: Sequence[str]) -> list[str]:
    """The winners at one budget, and the cross table."""
    winners = [
        [name, f"{w['budget_ms']:.4g}", f"{w['latency_ms']:.4g}", f"{w['accuracy']:.2f}", " ".join(map(str, w["genes"])),
         f"{100 * budget['hurt_on'][name]:.0f}"]
        for name, w in budget["winners"].items()
    ]  # fmt: skip
    return [
        markdown.heading(f"Budget at percentile {budget['budget_percentile']:g}", 2),
        markdown.picture("winners across devices", picture_name(budget)),
        "Winners, and the share of the other devices' winners that hurt there.",
        markdown.table(
            ["device", "budget ms", "winner's ms", "its accuracy", "its genes", "others hurt here %"],
            winners,
        ),
        "Rows: whose winner. Columns: where it is used. Points lost within the budget (-), or latency above it (+).",
        markdown.table(["winner of", *devices], [[name, *line] for name, line in zip(devices, cells(budget), strict=True)]),
    ]


def cells(budget: dict[str, Any]) -> list[list[str]]:
    """The cross table of a budget as a person reads it."""
    pairs = zip(budget["lost_points"], budget["latency_excess"], strict=True)
    return [[cell(p, e) for p, e in zip(lost, excess, strict=True)] for lost, excess in pairs]


def _everywhere(rows: Rows, devices: Sequence[str], table: str) -> np.ndarray:
    """Networks measured on all of these devices."""
    shared = np.arange(len(rows))
    for name in devices:
        before, shared = shared, np.intersect1d(shared, rows.usable(name))
        if len(shared) < LEAST_NETWORKS:
            raise UsageError(
                f"{table}: {name} shares {len(shared)} of {len(before)} networks with the devices before it; "
                f"at least {LEAST_NETWORKS} must be measured everywhere. Leave it out: choose devices by --device."
            )
    return shared


def _winner(accuracy: np.ndarray, latency: np.ndarray, budget: float) -> int:
    """The most accurate network within a budget; of equals, the fastest."""
    within = np.flatnonzero(latency <= budget)
    return int(within[np.lexsort((latency[within], -accuracy[within]))[0]])
