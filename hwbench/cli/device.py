"""hwbench device detect | check | show | list."""

from __future__ import annotations

from typing import Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options

app = typer.Typer(help="What a device is: detect this machine, check it, show one, list all.", no_args_is_help=True)


@app.command()
def detect(workspace: options.Workspace = options.HERE, json: options.Json = False) -> None:
    """Write devices/<name>.toml for this machine; peaks are measured by two short kernels."""
    from hwbench import device

    _show(device.detect(workspace), json)


@app.command()
def check(
    seconds: Annotated[float, typer.Option("--seconds", help="Length of the noise reading.")] = 3.0,
    json: options.Json = False,
) -> None:
    """Tell whether this machine is fit to be measured on, now; changes nothing.

    Exits with 0 whatever the verdict, unless the check itself fails.
    """
    from collections import Counter
    from dataclasses import asdict

    from rich.markup import escape

    from hwbench import checker

    with console.progress("checking") as tick:
        findings = checker.check_device(seconds, tick)
    verdict = checker.fit(findings)
    if json:
        console.emit_json({"verdict": verdict, "findings": [asdict(finding) for finding in findings]})
        return
    # Findings name processes, and any of them may be called like markup.
    rows = [{key: escape(value) for key, value in asdict(finding).items()} for finding in findings]
    console.table("This machine, now", rows, {"name": "check", "status": "status", "found": "found", "advice": "what to do"})
    counts = Counter(finding.status for finding in findings)
    warnings = "1 warning" if counts["warning"] == 1 else f"{counts['warning']} warnings"
    typer.echo(f"{verdict}: {counts['bad']} bad, {warnings}, {counts['good']} good, {counts['unreadable']} unreadable.")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="'local' or a device's name.")] = "local",
    workspace: options.Workspace = options.HERE,
    json: options.Json = False,
) -> None:
    """Show one device."""
    from hwbench import device

    _show(device.get(name, workspace), json)


@app.command("list")
def list_devices(workspace: options.Workspace = options.HERE, json: options.Json = False) -> None:
    """List every known device."""
    from hwbench import device
    from hwbench.workspace import Workspace

    found = [device.read(path) for path in device.files(Workspace.at(workspace))]
    rows = [
        {"name": d.name, "kind": d.kind, "cpu": d.cpu_model, "cores": d.cores, "local": d.is_local, "file": str(d.path)}
        for d in found
    ]
    if json:
        console.emit_json(rows)
    else:
        console.table(
            "Devices", rows, {"name": "name", "kind": "kind", "cpu": "CPU", "cores": "cores", "local": "this machine"}
        )


def _show(found: object, json: bool) -> None:
    from dataclasses import asdict

    document = {key: str(value) if key == "path" else value for key, value in asdict(found).items()}  # type: ignore[call-overload]
    if json:
        console.emit_json(document)
    else:
        rows = [
            {"field": k, "value": ", ".join(map(str, v)) if isinstance(v, tuple | list) else str(v)}
            for k, v in document.items()
        ]
        console.table(f"Device {document['name']}", rows)
