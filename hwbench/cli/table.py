"""hwbench table import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options

app = typer.Typer(help="Lookup tables others published.", no_args_is_help=True)


@app.callback()
def _table() -> None:
    """Keeps the one action a word of its own."""


@app.command("import")
def import_table(
    file: Annotated[Path, typer.Argument(help="The published table: .yaml, .npy or .parquet.")],
    style: Annotated[str, typer.Option("--as", help="How its keys are written: once-for-all (ProxylessNAS too) or fasterseg.")],
    device: Annotated[str, typer.Option("--device", help="What it was measured on, e.g. pixel-1.")],
    source: Annotated[str, typer.Option("--source", help="Whose it is: authors, address, licence; kept in the table.")],
    runtime: Annotated[str, typer.Option("--runtime", help="What it was measured with, as its makers say.")] = "published",
    dtype: options.Dtype = "fp32",
    batch: options.Batch = 1,
    threads: options.Threads = 1,
    where: Annotated[
        list[str] | None, typer.Option("--where", help="COLUMN=VALUE: of a Parquet file only such rows; repeatable.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write, if not luts/DEVICE/RUNTIME.parquet of the workspace.")
    ] = None,
    workspace: options.Workspace = options.HERE,
    json: options.Json = False,
) -> None:
    """Store a published table as a lookup table: every row of it or none, with where it comes from."""
    from dataclasses import asdict

    from hwbench.lut.importers import import_table as importers_import_table

    setting = options.setting(dtype, batch, threads)
    chosen = options.pairs("--where", where)
    with console.progress("importing"):
        done = importers_import_table.import_table(
            file, style, device, source, runtime=runtime, setting=setting, where=chosen, out=out, workspace=workspace
        )
    if json:
        console.emit_json({**asdict(done), "path": str(done.path), "setting": setting.key})
        return

    def listed(counts: dict[str, int]) -> str:
        return f" ({', '.join(f'{name} {count}' for name, count in counts.items())})" if counts else ""

    console.say(f"{done.path}: {done.rows} rows imported at {setting.key}, means over runs as published.")
    console.say(f"  {sum(done.mapped.values())} mapped to ops of ours{listed(dict(done.mapped))}")
    console.say(f"  {sum(done.kept.values())} kept under their published key{listed(dict(done.kept))}")
    if not done.known_device:
        console.say(f"  {device} has no device file: its table can be read and summed; nothing else is known of it.")
