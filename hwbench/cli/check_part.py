"""hwbench check-part module:Class."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options


def run(
    part: Annotated[str, typer.Argument(help="module:Class or FILE.py:Class of a part of your own, or a registered name.")],
    kind: Annotated[str, typer.Option(help="Kind of plug-in, where it cannot be told from the part.")] = "",
    tables: Annotated[Path | None, typer.Option(help="Of a benchmark: folder of tables (default: HWBENCH_TABLES).")] = None,
    device: Annotated[str, typer.Option(help="Of a transport: the device it goes to.")] = "",
    workspace: options.Workspace = options.HERE,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Check a part against the contract of its kind: every check, ok or failed with the reason; exit code 1 if one failed."""
    from hwbench.testing.run import FAILED, SKIPPED, check_part

    settings: dict[str, Any] = {"folder": tables} if tables else {}
    if device:
        from hwbench.device import files

        settings["device"] = files.get(device, workspace)
    with console.progress(f"checking {part}"):
        found, outcomes = check_part(part, kind, **settings)
    failed = sum(outcome.status == FAILED for outcome in outcomes)
    rows = [{"check": o.check, "status": o.status, "reason": o.reason or None} for o in outcomes]
    if json:
        console.emit_json({"part": part, "kind": found, "passed": not failed, "checks": rows})
    else:
        console.table(f"{found} {part}", rows, wide=wide)
        left = sum(outcome.status == SKIPPED for outcome in outcomes)
        skipped = f", {left} could not be checked here" if left else ""
        console.say(f"{found} {part}: {len(rows) - failed - left} of {len(rows)} checks kept{skipped}, {failed} failed.")
    if failed:
        raise typer.Exit(1)
