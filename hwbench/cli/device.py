"""hwbench device detect | add | setup | check | show | list."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options

if TYPE_CHECKING:
    from hwbench.device.files import Device

app = typer.Typer(
    help="What a device is: detect this machine, add a board, set an emulator up, check, show, list.", no_args_is_help=True
)


@app.command()
def detect(workspace: options.Workspace = options.HERE, wide: options.Wide = False, json: options.Json = False) -> None:
    """Write devices/<name>.toml for this machine; peaks are measured by two short kernels."""
    from hwbench.device import files

    with console.progress("detecting this machine"):
        found = files.detect(workspace)
    _show(found, workspace, wide, json)


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="What to call the board.")],
    like: Annotated[str, typer.Option("--like", help="The device whose figures it has (hwbench device list).")],
    ssh: Annotated[str, typer.Option("--ssh", help="user@host, or a name of your own ssh configuration.")],
    option: Annotated[
        list[str] | None, typer.Option("--option", help="Key=value, handed to ssh as -o, e.g. Port=2222; repeatable.")
    ] = None,
    python: Annotated[str, typer.Option("--python", help="The Python to run there, unless it is python3.")] = "",
    folder: Annotated[str, typer.Option("--folder", help="Where the agent goes there, unless it is the usual place.")] = "",
    workspace: options.Workspace = options.HERE,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Write devices/<name>.toml for a board that ssh reaches; never overwrites one, and does not reach for it yet."""
    from hwbench.device import files

    made = files.add(name, like, ssh, options=option or (), workspace=workspace, python=python, folder=folder)
    _show(made, workspace, wide, json)


@app.command()
def setup(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A device's name (hwbench device list).")],
    runtime: Annotated[str, typer.Option("--runtime", help="Runtime that a board must have.")] = "onnxruntime",
    workspace: options.Workspace = options.HERE,
    json: options.Json = False,
) -> None:
    """Make ready what a device needs: the emulator of an emulated one, the agent on a board, which is reached for."""
    from hwbench.core.errors import UsageError
    from hwbench.device import files

    device = files.get(name, workspace)
    if device.reach in ("emulated", "local"):
        options.refuse(context, ("runtime",), f"Device {device.name} is set up for every runtime")
    if device.reach == "emulated":
        from hwbench.device import emulator

        with console.progress(f"setting {device.emulator} up") as tick:
            made = emulator.set_up(device.emulator, tick=tick)
        done = f"Device {device.name} is ready: {made.description}."
    elif device.unreachable:
        raise UsageError(f"Device {device.name} cannot be set up: {device.unreachable}")
    elif device.reach == "local":
        done = f"Device {device.name} needs no set-up: its reach is local."
    else:
        from hwbench.device.target import Target
        from hwbench.profiler.live_target import connect

        with console.progress(f"reaching for {device.name}"):
            there = connect(Target.of(device.name, runtime, workspace=workspace)).environment.values
        version = there["runtime_version"]
        done = f"Device {device.name} is ready: it answered, {there['machine']} with {runtime} {version}."
    if json:
        console.emit_json({"device": device.name, "reach": device.reach, "emulator": device.emulator or None, "message": done})
    else:
        console.say(done)


@app.command()
def check(
    seconds: Annotated[float, typer.Option("--seconds", help="Length of the noise reading.")] = 3.0,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Tell whether this machine is fit to be measured on, now; changes nothing.

    Exits with 0 whatever the verdict, unless the check itself fails.
    """
    from collections import Counter
    from dataclasses import asdict

    from hwbench.device import health

    with console.progress("checking") as tick:
        findings = health.check_device(seconds, tick)
    verdict = health.fit(findings)
    if json:
        console.emit_json({"verdict": verdict, "findings": [asdict(finding) for finding in findings]})
        return
    columns = {"name": "check", "status": "status", "found": "found", "advice": "what to do"}
    console.table("This machine, now", [asdict(finding) for finding in findings], columns, wide)
    counts = Counter(finding.status for finding in findings)
    warnings = "1 warning" if counts["warning"] == 1 else f"{counts['warning']} warnings"
    console.say(f"{verdict}: {counts['bad']} bad, {warnings}, {counts['good']} good, {counts['unreadable']} unreadable.")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="'local' or a device's name.")] = "local",
    workspace: options.Workspace = options.HERE,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Show one device."""
    from hwbench.device import files

    _show(files.get(name, workspace), workspace, wide, json)


@app.command("list")
def list_devices(workspace: options.Workspace = options.HERE, wide: options.Wide = False, json: options.Json = False) -> None:
    """List every known device: what is known of it (table, predictor, data sheet) and what can be asked of it."""
    from hwbench.core.errors import DataError
    from hwbench.core.workspace import Workspace
    from hwbench.device import files
    from hwbench.device.reached import reached
    from hwbench.predictor.known import known_of

    place = Workspace.at(workspace)
    devices, unreadable = [], {}
    with console.progress("reading what is known"):
        for path in files.files(place):
            try:
                device = files.read(path)
                devices.append((device, known_of(device, place)))
            except DataError as error:  # the others are no worse for it
                unreadable[path.stem] = str(error)
    if json:
        listed: list[dict[str, object]] = [
            {**_facts(device), "reachable": reached(device, workspace).said, **known.document()} for device, known in devices
        ]
        console.emit_json([*listed, *({"name": name, "error": error} for name, error in unreadable.items())])
        return
    rows = [
        {
            "name": device.name,
            "reach": _reach(device, workspace),
            "known": "\n".join(known.told()),
            "asked": "\n".join(known.asked()),
        }
        for device, known in devices
    ]
    rows += [{"name": name, "reach": "-", "known": error, "asked": "-"} for name, error in unreadable.items()]
    columns = {"name": "name", "reach": "reached", "known": "what is known", "asked": "what can be asked"}
    console.table("Devices", rows, columns, wide)


def _facts(d: Device) -> dict[str, object]:
    """What a device's file says of it, in short."""
    return {
        "name": d.name, "kind": d.kind, "cpu": d.cpu_model, "cores": d.cores or None, "local": d.is_local, "reach": d.reach,
        "file": str(d.path),
    }  # fmt: skip


def _reach(device: Device, workspace: Path) -> str:
    """The way to a device in a word, and whether it was ever gone."""
    from hwbench.device.reached import YES, reached

    word = reached(device, workspace).word
    if word in ("no", YES):
        return "no" if word == "no" else "here" if device.is_local else device.reach
    return f"{device.reach}, {word}"


def _show(device: Device, workspace: Path, wide: bool, json: bool) -> None:
    from dataclasses import asdict

    from hwbench.core.command import hint
    from hwbench.core.workspace import Workspace
    from hwbench.device import files
    from hwbench.device.reached import reached

    document = {key: str(value) if key == "path" else value for key, value in asdict(device).items()}
    document["reachable"] = reached(device, workspace).said
    if json:
        console.emit_json(document)
    else:
        document.pop("section")  # stands under its own name as well
        rows = [{"field": name, "value": _in_words(value)} for name, value in document.items() if value not in ({}, (), "")]
        console.table(f"Device {document['name']}", rows, wide=wide)
        if device.disturbed:
            why = "; ".join(dict.fromkeys(device.disturbed.values()))
            line = files.detect_command(Workspace.at(workspace))
            again = f" {hint(line, start='When the machine is quiet, run')}" if device.is_local else ""
            said = f"note: {len(device.disturbed)} of {len(device.peaks)} peaks were measured while disturbed"
            console.say(f"{said} ({why}) and are not cited.{again}")


def _in_words(value: object) -> str | None:
    """A field of a device, for people."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return None if value is None else str(value)
