"""The options verbs share: one name, one meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from hwbench.network.spec import Setting


def own_space(context: typer.Context, given: Any) -> Any:
    """--space as given; FILE.py:NAME is loaded, here and nowhere later, and goes on under the name it is stored by."""
    if isinstance(given, list):
        return [own_space(context, each) for each in given]
    if given is None or ".py" not in given or context.resilient_parsing:  # the others cost no import, the Tab key runs no code
        return given
    from hwbench.core import user_code
    from hwbench.space.make_space import make_space

    return make_space(given).name if user_code.is_reference(given) else given


Device = Annotated[str, typer.Option("--device", help="'local' or a device's name (hwbench device list).")]
Runtime = Annotated[str, typer.Option("--runtime", help="Inference runtime.")]
Threads = Annotated[int, typer.Option("--threads", help="Threads of the runtime.")]
Batch = Annotated[int, typer.Option("--batch", help="Samples per run.")]
ModelBatch = Annotated[
    int | None, typer.Option("--batch", help="Samples per run; an ONNX file must leave its first side open.")
]
Dtype = Annotated[str, typer.Option("--dtype", help="Number format.")]
Space = Annotated[
    str,
    typer.Option("--space", help="Search space: autoformer-tiny, bert:sequence=384 or ./mine.py:MySpace.", callback=own_space),
]
SpaceOfSearch = Annotated[
    str | None,
    typer.Option("--space", help="Where the search's space is code of yours: ./mine.py:MySpace.", callback=own_space),
]
Workspace = Annotated[Path, typer.Option("--workspace", help="Folder for devices/, luts/, predictors/, reports/.")]
Seed = Annotated[int, typer.Option("--seed", help="Same seed, same result.")]
Json = Annotated[bool, typer.Option("--json", help="Last line of stdout is one JSON document.")]
Wide = Annotated[bool, typer.Option("--wide", help="All columns of a table, wider than the screen.")]
Statistic = Annotated[str, typer.Option("--statistic", help="min (what the machine can do) or p50 (what a user feels).")]
Precision = Annotated[float, typer.Option("--precision", help="Agreement asked of three processes' minima, relative.")]
MaxProcesses = Annotated[int, typer.Option("--max-processes", help="Cap on fresh worker processes per row.")]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", help="name=1,197,192 fixes an input the file leaves open; repeat for several."),
]
Fills = Annotated[
    list[str] | None,
    typer.Option("--fill", help="name=16000 fills an input with that number (a rate, a length, a switch); repeat for several."),
]
USUAL = "processes"
Executor = Annotated[
    str,
    typer.Option(
        "--executor", help="Where work is done: processes of this machine, ray (its cluster) or ray://HOST:10001 (another)."
    ),
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
    """Input -> shape, as --shape gives them; nothing after the last = is the shape of a scalar."""
    from hwbench.core.errors import UsageError

    found: dict[str, list[int]] = {}
    for text in given or []:
        name, equals, sides = text.rpartition("=")
        _refuse_twice("--shape", name, found)
        try:
            found[name] = [int(side) for side in sides.split(",")] if sides else []
        except ValueError:
            equals = ""
        if not equals or not name:
            raise UsageError(f"--shape '{text}' is not understood; write name=1,197,192.")
    return found


def sweep(given: list[str] | None) -> dict[str, list[int]]:
    """Axis -> sizes, as --sweep gives them."""
    from hwbench.cli._modes import RANGES, Range
    from hwbench.core.errors import UsageError

    found: dict[str, list[int]] = {}
    for text in given or []:
        axis, _, sizes = text.rpartition("=")
        _refuse_twice("--sweep", axis, found)
        try:
            found[axis] = [int(size) for size in sizes.split(",")]
        except ValueError:
            axis = ""
        if not axis:
            raise UsageError(f"--sweep '{text}' is not understood; write sequence=8,32,128.")
        allowed = RANGES[axis] if axis in ("batch", "threads") else Range(1)
        if out := [size for size in found[axis] if not allowed.holds(size)]:
            raise UsageError(f"--sweep {axis}={out[0]} is out of range: give whole numbers {allowed.said}.")
    return found


def fills(given: list[str] | None) -> dict[str, float]:
    """Input -> the number it is filled with, as --fill gives them."""
    from math import isfinite

    from hwbench.core.errors import UsageError

    found: dict[str, float] = {}
    for text in given or []:
        name, _, value = text.rpartition("=")
        _refuse_twice("--fill", name, found)
        try:
            found[name] = int(value) if value.lstrip("+-").isdecimal() else float(value)
        except ValueError:
            name = ""
        if not name or not isfinite(found[name]):
            raise UsageError(f"--fill '{text}' is not understood; write name=16000.")
    return found


@contextmanager
def runnable(context: typer.Context) -> Iterator[None]:
    """Where a model's inputs have no fixed shape, the refusal ends in the command as it was typed, with usual shapes added."""
    from hwbench.core.command import hint
    from hwbench.core.errors import UsageError
    from hwbench.profiler.onnx_inputs import OpenInputs

    try:
        yield
    except OpenInputs as error:
        raise UsageError(f"{error.what}. {hint(typed(context, error.suggested))}") from None


def typed(context: typer.Context, shapes: Mapping[str, Sequence[int]] | None = None, without: Sequence[str] = ()) -> str:
    """The command line as it was typed, with these shapes behind those given, and without some parameters."""
    from hwbench.core.command import command

    arguments: list[str] = []
    given: dict[str, Any] = {}
    for parameter in context.command.params:
        name, value = str(parameter.name), context.params.get(str(parameter.name))
        if not was_given(context, name) or name in without:
            continue
        if parameter.param_type_name == "argument":
            arguments += map(str, value if isinstance(value, list | tuple) else [value])
        else:
            given[parameter.opts[0].removeprefix("--")] = value
    before = given.pop("shape", None) or []
    shape = [*before, *(f"{name}={','.join(map(str, sides))}" for name, sides in (shapes or {}).items())]
    return command(str(context.info_name), *arguments, **given, shape=shape)


def percent(option: str, text: str | None) -> float | None:
    """The share that an option gives as 5%."""
    from hwbench.core.errors import UsageError

    if text is None:
        return None
    number = text.strip().removesuffix("%").strip()
    try:
        if text.strip().endswith("%") and 0 <= float(number) < float("inf"):
            return float(number) / 100
    except ValueError:
        pass
    raise UsageError(f"{option} '{text}' is not understood; write 5%.")


def was_given(context: typer.Context, name: str) -> bool:
    """Whether a parameter stands on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def pairs(option: str, given: list[str] | None) -> dict[str, str]:
    """Name -> value, from name=value."""
    from hwbench.core.errors import UsageError

    found: dict[str, str] = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} '{text}' is not understood; write name=value.")
        _refuse_twice(option, name, found)
        found[name] = value
    return found


def _refuse_twice(option: str, name: str, found: Mapping[str, object]) -> None:
    """Raises UsageError for a name that was given before: only one of its values would count."""
    from hwbench.core.errors import UsageError

    if name in found:
        raise UsageError(f"{option} {name} was given twice: leave one of them out.")


def refuse(context: typer.Context, names: Sequence[str], why: str) -> None:
    """Raises UsageError if one of these parameters was given on the command line, where it says nothing."""
    from hwbench.core.errors import UsageError

    for parameter in context.command.params:
        if parameter.name in names and was_given(context, str(parameter.name)):
            raise UsageError(f"{why}: leave out {parameter.opts[0]}.")
