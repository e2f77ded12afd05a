"""hwbench list <kind>."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options

if TYPE_CHECKING:
    from hwbench.predictor.card_types import Card

PLURALS = {
    "ops": "op", "spaces": "space", "transports": "transport", "runtimes": "runtime", "regressors": "regressor",
    "predictors": "aggregator", "proxies": "proxy", "objectives": "objective", "strategies": "strategy",
    "benchmarks": "benchmark", "executors": "executor",
}  # fmt: skip
RENAMED = {"reaches": "transport", "tables": "benchmark"}
"""What kinds were called before: still answered."""
DEVICES = "devices"


def run(
    kind: Annotated[str | None, typer.Argument(help=f"One of {', '.join((*PLURALS, DEVICES))}; without it, these.")] = None,
    workspace: options.Workspace = options.HERE,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """List what is registered: parts by name with what they are; fitted predictors with their errors; devices."""
    if kind is None:
        _kinds(workspace, wide, json)
        return
    if kind in (DEVICES, "device"):
        from hwbench.cli.device import list_devices

        list_devices(workspace, wide, json)
        return
    from hwbench.core import registry
    from hwbench.core.errors import UnknownName

    known = {**PLURALS, **RENAMED}
    singular = known.get(kind, known.get(f"{kind}s", kind))
    if singular not in registry.kinds():
        raise UnknownName(registry.unknown("kind", kind, (*PLURALS, DEVICES)))
    rows = [{"name": registry.shown(singular, n), "about": registry.about(singular, n)} for n in registry.names(singular)]
    if singular == "space":
        from hwbench.space import activity, slots

        with console.progress("counting architectures"):
            for row in rows:
                space = registry.get("space", row["name"])
                row.update(size=f"{activity.size(space):.3g}", ops=str(len(slots.distinct_specs(space))))
    if singular == "benchmark":
        from hwbench.accuracy.benchmark.base import grid_size

        for row in rows:
            genes = registry.get("benchmark", row["name"]).genes
            row.update(genes=str(len(genes)), combinations=f"{grid_size(genes):.3g}")
    if singular == "aggregator":
        rows += _fitted(workspace)
    if json:
        console.emit_json(rows)
    else:
        console.table(kind.capitalize(), rows, {key: key for row in rows for key in row}, wide, more="kind ceiling data")


def _kinds(workspace: Path, wide: bool, json: bool) -> None:
    """What can be listed, and how many there are of each."""
    from hwbench.core import registry
    from hwbench.core.workspace import Workspace
    from hwbench.device import files

    counts = {plural: len(registry.names(singular)) for plural, singular in PLURALS.items()}
    counts["predictors"] += len(_fitted(workspace))
    counts[DEVICES] = len(list(files.files(Workspace.at(workspace))))
    rows = [{"kind": plural, "number": n, "command": f"hwbench list {plural}"} for plural, n in counts.items()]
    if json:
        console.emit_json(rows)
    else:
        console.table("What can be listed", rows, wide=wide)


def _fitted(workspace: object) -> list[dict[str, str]]:
    """One row per stored predictor, of whatever kind; what a card does not state is a dash."""
    from hwbench.core import registry
    from hwbench.core.errors import HwbenchError
    from hwbench.core.workspace import Workspace
    from hwbench.predictor import card as cards
    from hwbench.predictor.known import stated

    rows = []
    for path in Workspace.at(str(workspace)).each("predictors", pattern="*/*/card.json"):
        row = {"name": f"{path.parent.parent.name}/{path.parent.name}"}
        try:
            card = cards.read(path)
        except HwbenchError as error:  # one bad card must not hide the others
            rows.append({**row, "about": f"unreadable: {error}"})
            continue
        shown = registry.shown("aggregator", registry.current("aggregator", card.method))  # other methods stay as they are
        spaces = f" for {', '.join(card.spaces)}" if card.spaces else ""
        rows.append(
            {
                **row,
                "about": f"fitted {shown}{spaces}",
                "kind": card.kind,
                "error": stated(card.errors, "mean_abs_error"),
                "coverage": stated(card.coverage, "covered"),
                "ceiling": stated(card.noise_ceiling, "mean_abs_error"),
                "data": _data(card),
            }
        )
    return rows


def _data(card: Card) -> str:
    rows = ("" if each.rows is None else f", {each.rows} rows" for each in card.files)
    return ", ".join(each.file + more for each, more in zip(card.files, rows, strict=True)) or "-"
