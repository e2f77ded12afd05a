"""hwbench device detect | show | list."""

from __future__ import annotations

from typing import Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options

app = typer.Typer(help="What a device is: detect this machine, show one, list all.", no_args_is_help=True)


@app.command()
def detect(workspace: options.Workspace = options.HERE, json: options.Json = False) -> None:
    """Write devices/<name>.toml for this machine; peaks are measured by two short kernels."""
    from hwbench import device

    _show(device.detect(workspace), json)


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
