"""hwbench score."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options


def run(
    arch: Annotated[Path, typer.Option("--arch", help="Architecture file, or a search's folder.")],
    space: Annotated[
        str | None, typer.Option("--space", help="Search space, where --arch does not say it.", callback=options.own_space)
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option("--proxy", help="hwbench list proxies; options follow a colon: dss:seed=1. Repeat for several (dss)."),
    ] = None,
    workspace: options.Workspace = options.HERE,
    workers: Annotated[int, typer.Option("--workers", help="Processes that score.")] = 1,
    executor: options.Executor = options.USUAL,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Score architectures without training them; scores made of ranks rank within the file."""
    import hwbench

    with console.progress("scoring") as tick:
        done = hwbench.score(space, arch, proxy or ["dss"], workspace, workers=workers, tick=tick, executor=executor)
    if json:
        console.emit_json(done)
        return
    _show(done, wide)


def _show(done: dict[str, Any], wide: bool) -> None:
    """One row per architecture, one column per proxy."""
    proxies = done["proxies"]
    count = len(next(iter(proxies.values()))["scores"])
    rows = [{"#": at, **{name: told["scores"][at] for name, told in proxies.items()}} for at in range(count)]
    units = {name: f"{name} [{told['unit']}]" for name, told in proxies.items()}
    console.table(f"{done['space']}: training-free scores, higher is better", rows, {"#": "#", **units}, wide)
    for name, told in proxies.items():
        for note in told.get("notes", []):
            console.say(f"note: {note}")
        for at, why in told["failed"].items():
            console.say(f"no {name} of {at}: {why}")
