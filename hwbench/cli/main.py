"""The `hwbench` command: every other file of this folder (without a leading _) is one verb.

A verb file has `run`, a function typer turns into a command, or `app` for a noun with actions. It parses,
calls the library function of the same name and prints. Errors are one line on stderr and a non-zero exit;
with --json the last line of stdout is one JSON document, also for errors.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import pkgutil
import shlex
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer.completion import get_completion_inspect_parameters
from typer.core import TyperGroup

from hwbench import __version__, cli
from hwbench.cli._checked import CheckedCommand, understood
from hwbench.core.command import hint
from hwbench.core.errors import HwbenchError, Interrupted, MeasurementError, MissingOps, UsageError
from hwbench.optimize.errors import InfeasibleBudget

ORDER = (
    "doctor",
    "device",
    "list",
    "sample",
    "export",
    "profile",
    "lut",
    "table",
    "fit",
    "predict",
    "transfer",
    "rebuild",
    "measure",
    "score",
    "search",
    "validate",
    "specialise",
    "compress",
    "verify",
    "report",
    "site",
    "recompute",
    "quickstart",
    "check_part",
    "completion",
)
"""As the flow goes; verbs not named here follow."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a stream says that takes no more."""


def build() -> typer.Typer:
    """The application with all verbs."""
    app = typer.Typer(
        name="hwbench",
        cls=Verbs,
        help="How fast a network runs on a device, and the best network that is fast enough.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    found = [m.name for m in pkgutil.iter_modules(cli.__path__) if not m.name.startswith("_") and m.name != "main"]
    for name in sorted(found, key=lambda n: (ORDER.index(n) if n in ORDER else len(ORDER), n)):
        module = importlib.import_module(f"hwbench.cli.{name}")
        if hasattr(module, "app"):
            for action in module.app.registered_commands:
                action.cls = CheckedCommand
            app.add_typer(module.app, name=name)
        else:
            app.command(name.replace("_", "-"), cls=CheckedCommand)(module.run)
    app.callback()(_top)
    get_completion_inspect_parameters()  # typer's own shells in place of click's; its options would clutter --help
    return app


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"hwbench {__version__}")
        raise typer.Exit


def _top(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Options of no verb."""


def main() -> None:
    """Runs the command line."""
    try:
        build()()
    except HwbenchError as error:
        _fail(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt as stop:  # before a verb began
        _fail(_interrupted(stop))
        sys.exit(Interrupted.exit_code)
    except OSError as error:
        if error.errno not in FULL or error.filename is not None:
            raise
        unsaid = MeasurementError(f"Cannot write what it says: {error.strerror}; free the disk, or send it elsewhere.")
        _fail(unsaid)
        sys.exit(unsaid.exit_code)


GONE = {
    "gpu": "hwbench fit --gpu fits GPU operators, hwbench predict --predictor NAME --device GPU --input OPS asks them, hwbench "
    "transfer --predictor NAME --device GPU --measured OPS adapts them, hwbench predict MODEL.onnx --device GPU prices models"
}
"""Verbs of before -> what does their work now."""


class Verbs(TyperGroup):
    """All verbs: Ctrl-C in one of them ends in one line, and so does a line that is not understood.

    Typer on its own would end without a word, or in a box.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """What stands before the verb."""
        with understood(ctx):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that is asked; one that went says where to."""
        if args and args[0] in GONE:
            raise UsageError(f"hwbench {args[0]} is gone. {GONE[args[0]]}.")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Runs the verb."""
        try:
            with understood(ctx):
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise _interrupted(stop) from None


def _interrupted(stop: KeyboardInterrupt) -> Interrupted:
    """What whoever was at work keeps (core/progress.py: keep), and the command as it was typed."""
    kept, again = getattr(stop, "__notes__", []), shlex.join(["hwbench", *sys.argv[1:]])
    if kept:
        return Interrupted(f"Interrupted. Kept: {'; '.join(kept)}. {hint(again, start='To go on, run')}")
    return Interrupted(f"Interrupted; of this command nothing is kept. {hint(again, start='To start again, run')}")


def _fail(error: HwbenchError) -> None:
    """Says it, where anybody can be told."""
    with suppress(OSError):
        _say(error)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # what waits to be written would end Python in a traceback
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _say(error: HwbenchError) -> None:
    line = " ".join(str(error).split())
    typer.echo(f"hwbench: {line}", err=True)
    if "--json" in sys.argv:
        document: dict[str, object] = {"error": type(error).__name__, "message": line}
        if isinstance(error, InfeasibleBudget):
            document |= {"latency_ms": error.latency_ms, "architecture": error.architecture}
            document |= {"limits": error.limits, "least": error.least, "nearest": error.nearest, "file": str(error.path)}
        if isinstance(error, MissingOps):
            document |= {"missing_ops": list(error.keys)}
        typer.echo(json.dumps(document))


if __name__ == "__main__":
    main()
