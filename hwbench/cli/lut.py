"""hwbench lut check | compare | diff | history | show | recover."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options

if TYPE_CHECKING:
    from hwbench.lut.diff import Diff

app = typer.Typer(
    help="Lookup tables: runtimes side by side, what changed between two, older editions, rows.", no_args_is_help=True
)

MOST_FAULTS = 20
"""Faults that are printed; --json has all."""

DIFF_COLUMNS = {
    "key": "key",
    "setting": "setting",
    "a_min_ms": "A min ms",
    "b_min_ms": "B min ms",
    "change_percent": "change %",
    "noise_percent": "noise %",
    "own_change_percent": "without shift %",
    "answer": "answer",
    "reason": "reason",
}
Table = Annotated[str, typer.Argument(help="FILE.parquet, or FILE.parquet@N for edition N of `lut history`.")]


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="FILE.parquet of operators, or FILE.networks.parquet.")],
    workspace: options.Workspace = options.HERE,
    json: options.Json = False,
) -> None:
    """Tell whether a table is fit to be given to others: valid, or invalid with reasons.

    Exits with 0 if it is valid and with 3 if it is not.
    """
    from hwbench.core.errors import DataError
    from hwbench.lut import check as lut_check

    with console.progress("checking the table"):
        found = lut_check.check(file, workspace)
    if json:
        console.emit_json(found.document())
    else:
        for fault in found.faults[:MOST_FAULTS]:
            console.say(f"{fault['check']}: {fault['row']}{': ' if fault['row'] else ''}{fault['reason']}")
        if len(found.faults) > MOST_FAULTS:
            console.say(f"and {len(found.faults) - MOST_FAULTS} more (--json lists all)")
        for remark in found.remarks:
            console.say(f"note: {remark['check']}: {remark['reason']}")
        word = "invalid" if found.faults else "valid"
        console.say(f"{file}: {word}: {found.rows} rows, {len(found.faults)} faults; looked at {', '.join(found.done)}")
    if found.faults:
        raise typer.Exit(DataError.exit_code)


@app.command()
def diff(
    a: Table,
    b: Table,
    setting: Annotated[str | None, typer.Option("--setting", help="Only this one, e.g. fp32-b1-t1-back-to-back.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="List unchanged rows too.")] = False,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Tell what changed from table A to table B beyond noise.

    Exits with 0 whether or not anything changed.
    """
    from hwbench.lut import diff as lut_diff
    from hwbench.lut import editions

    with console.progress("comparing tables"):
        changes = lut_diff.diff(editions.read(a), editions.read(b), setting)
    if json:
        console.emit_json(changes.document())
    else:
        _print_diff(changes, everything, wide)


def _print_diff(changes: Diff, everything: bool, wide: bool) -> None:
    """What differs in the environments, a summary, the rows, and what only one table has."""
    typer.echo(f"A: {changes.a}\nB: {changes.b}")
    for difference in changes.environment:
        console.say(difference.text)
    console.say(changes.summary)
    console.say(changes.shift_text)
    rows = changes.as_rows(everything)
    if rows:
        console.table(
            "Rows" if everything else "Changed and unclear rows", rows, DIFF_COLUMNS, wide, more="own_change_percent reason"
        )
    for failure in changes.failed:
        console.say(f"  failed: {failure.key} {failure.setting}: {failure.a} in A, {failure.b} in B")
    for name, alone in (("A", changes.only_a), ("B", changes.only_b)):
        shown = alone if everything else alone[:4]
        for key, at in shown:
            console.say(f"  only in {name}: {key} {at}")
        if len(alone) > len(shown):
            console.say(f"  only in {name}: {len(alone) - len(shown)} more (--all lists them)")


@app.command()
def compare(
    runtime: Annotated[
        list[str] | None,
        typer.Option(
            "--runtime",
            help="Repeat for several, releases too (onnxruntime==1.20.0); others are multiples of the first.",
            show_default="all",
        ),
    ] = None,
    space: Annotated[
        list[str] | None,
        typer.Option(
            "--space", help="Measure its rows first where they are lacking, runtimes in turn.", callback=options.own_space
        ),
    ] = None,
    device: options.Device = "local",
    threads: options.Threads = 1,
    batch: options.Batch = 1,
    dtype: options.Dtype = "fp32",
    max_seconds: Annotated[
        float | None, typer.Option("--max-seconds", help="Of --space: no further round starts after that, for each runtime.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for compare.md, .csv, .json and .svg.")] = Path("compared"),
    workspace: options.Workspace = options.HERE,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Tell which runtime is fastest where, on one device."""
    import dataclasses

    from hwbench.profiler.policy import Policy
    from hwbench.study import compare_runtimes

    with console.progress("comparing runtimes"):
        done = compare_runtimes.compare(
            device,
            runtimes=runtime or (),
            setting=options.setting(dtype, batch, threads),
            workspace=workspace,
            out=out,
            spaces=space or (),
            policy=dataclasses.replace(Policy(), max_seconds=max_seconds),
        )
    if json:
        console.emit_json(done)
        return
    runtimes = done["runtimes"]
    rows = [
        {"kind": kind["kind"], "rows": kind["rows"], **{each: compare_runtimes.cell(kind, each) for each in runtimes}}
        for kind in done["kinds"]
    ]
    title = f"{done['device']}, {done['setting']}: multiples of {done['base']} (rows led, of these clearly)"
    console.table(title, rows, wide=wide)
    for name, told in runtimes.items():
        if told["refused"]:
            console.say(f"{name} refused {len(told['refused'])} rows.")
    for change in done["changes"]:
        console.say(compare_runtimes.change_text(change))
    for name, why in done["left_out"].items():
        console.say(f"left out: {name}: {why}")
    console.say(f"report: {out / 'compare.md'}; every row: {out / 'compare.csv'}")


@app.command()
def history(
    file: Annotated[Path | None, typer.Argument(help="FILE.parquet; this machine's table if left out.")] = None,
    runtime: options.Runtime = "onnxruntime",
    workspace: options.Workspace = options.HERE,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """List every edition the journal beside a table holds."""
    from hwbench.device.target import Target
    from hwbench.lut import editions as histories
    from hwbench.lut import table as luts

    path = file or luts.find_lut(Target.of(runtime=runtime, workspace=workspace))
    with console.progress("reading the journal"):
        every = histories.editions(path)
    if json:
        console.emit_json({"table": str(path), "editions": [edition.document() for edition in every]})
        return
    if not every:
        console.say(f"The journal beside {path} is empty.")
        return
    columns = {
        "number": "@N",
        "edition": "edition",
        "rows": "rows",
        "first": "first taken",
        "last": "last taken",
        "runtime": "runtime",
        "cpu": "CPU",
        "settings": "settings",
    }
    console.table(f"Editions of {path}", [edition.as_row() for edition in every], columns, wide, more="edition cpu settings")


@app.command()
def show(
    table: Annotated[
        str | None, typer.Argument(help="FILE.parquet, or FILE.parquet@N; this machine's table if left out.")
    ] = None,
    doubtful: Annotated[bool, typer.Option("--doubtful", help="Only rows that failed or are in doubt, worst first.")] = False,
    runtime: options.Runtime = "onnxruntime",
    workspace: options.Workspace = options.HERE,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Show the rows of a table or of one of its older editions."""
    from hwbench.device.target import Target
    from hwbench.lut import editions
    from hwbench.lut import table as luts
    from hwbench.lut.verdict import in_doubt

    table = table or str(luts.find_lut(Target.of(runtime=runtime, workspace=workspace)))
    with console.progress("reading the table"):
        lut = editions.read(table)
    if json:
        environment = dict(lut.environment.values)
        rows = in_doubt(editions.listing(lut)) if doubtful else editions.listing(lut)
        console.emit_json({"table": table, "environment": environment, "rows": rows})
        return
    columns = {
        "key": "key",
        "setting": "setting",
        "latency_min_ms": "min ms",
        "spread_percent": "spread %",
        "latency_median_ms": "median ms",
        "verdict": "verdict",
        "reason": "reason",
    }
    rows = in_doubt(editions.as_rows(lut)) if doubtful else editions.as_rows(lut)
    numbers = "latency_min_ms spread_percent latency_median_ms"  # which the reason names where it matters
    console.table(table, rows, columns, wide, more=numbers if doubtful else "latency_median_ms reason")


@app.command()
def recover(
    source: Annotated[Path, typer.Option("--from", help="Parquet: one row per measured network.")],
    features: Annotated[str, typer.Option("--features", help="Columns of choices, with commas between them; lists by place.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for lut.parquet and card.json.")],
    target: Annotated[str, typer.Option("--target", help="Column of latencies, ms.")] = "latency_ms",
    device: Annotated[str, typer.Option("--device", help="What was measured, for the card.")] = "unknown",
    shared: Annotated[bool, typer.Option("--shared", help="A level costs the same in every place of a list.")] = False,
    where: Annotated[list[str] | None, typer.Option("--where", help="COLUMN=VALUE: only such rows; repeatable.")] = None,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Recover costs per operator from latencies of whole networks, where operators cannot be timed alone."""
    from hwbench.predictor.tabular import op_costs

    columns = [name.strip() for name in features.split(",") if name.strip()]
    with console.progress("recovering costs"):
        recovered = op_costs.recover(
            source, columns, target=target, device=device, out=out, shared=shared, where=options.pairs("--where", where)
        )
    if json:
        console.emit_json({"out": str(out), "costs": [vars(each) for each in recovered.costs], "card": recovered.card})
        return
    rows = [{k: v for k, v in vars(each).items() if k != "place" or not shared} for each in recovered.costs]
    console.table(f"Costs on {device}; every network pays {recovered.constant_ms:.4g} ms -> {out}", rows, wide=wide)
    error = recovered.errors
    console.say(
        f"left-out networks: mean error {error['mean_abs_error']:.2%}, Spearman {error['spearman']:.4f}"
        + ("; the sum is exact" if recovered.exact else "")
    )
    for names in recovered.confounded:
        console.say(f"cannot be told apart: {', '.join(names)}")
