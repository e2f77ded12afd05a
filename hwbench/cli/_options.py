"""The options verbs share: one name, one meaning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hwbench.network.spec import Setting

Device = Annotated[str, typer.Option("--device", help="'local' or a device's name (hwbench device list).")]
Runtime = Annotated[str, typer.Option("--runtime", help="Inference runtime.")]
Threads = Annotated[int, typer.Option("--threads", help="Threads of the runtime.")]
Batch = Annotated[int, typer.Option("--batch", help="Samples per run.")]
Dtype = Annotated[str, typer.Option("--dtype", help="Number format.")]
Space = Annotated[str, typer.Option("--space", help="Search space, e.g. autoformer-tiny or bert:sequence=384.")]
Spaces = Annotated[list[str], typer.Option("--space", help="Search space; repeat for several.")]
Workspace = Annotated[Path, typer.Option("--workspace", help="Folder for devices/, luts/, predictors/, reports/.")]
Seed = Annotated[int, typer.Option("--seed", help="Same seed, same result.")]
Json = Annotated[bool, typer.Option("--json", help="Last line of stdout is one JSON document.")]
Statistic = Annotated[str, typer.Option("--statistic", help="min (what the machine can do) or p50 (what a user feels).")]
Precision = Annotated[float, typer.Option("--precision", help="Agreement asked of three processes' minima, relative.")]
MaxProcesses = Annotated[int, typer.Option("--max-processes", help="Cap on fresh worker processes per row.")]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", help="name=1,197,192 fixes an input the file leaves open; repeat for several."),
]
Tables = Annotated[
    Path | None,
    typer.Option(
        "--tables", envvar="HWBENCH_TABLES", help="Folder of public tables; a file that is not here is looked for there."
    ),
]

HERE = Path()


def setting(dtype: str, batch: int, threads: int) -> Setting:
    """The Setting the options ask for."""
    from hwbench.network.spec import Setting

    return Setting(dtype=dtype, batch=batch, threads=threads)


def shapes(given: list[str] | None) -> dict[str, list[int]]:
    """Input -> shape, as --shape gives them."""
    from hwbench.core.errors import UsageError

    found = {}
    for text in given or []:
        name, equals, sides = text.rpartition("=")
        try:
            found[name] = [int(side) for side in sides.split(",")]
        except ValueError:
            equals = ""
        if not equals or not name:
            raise UsageError(f"--shape '{text}' is not understood; write name=1,197,192.")
    return found


def pairs(option: str, given: list[str] | None) -> dict[str, str]:
    """Name -> value, from name=value."""
    from hwbench.core.errors import UsageError

    found = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} '{text}' is not understood; write name=value.")
        found[name] = value
    return found


def refuse(context: typer.Context, names: Sequence[str], why: str) -> None:
    """Raises UsageError if one of these parameters was given on the command line, where it says nothing."""
    from hwbench.core.errors import UsageError

    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"{why}: leave out {parameter.opts[0]}.")
