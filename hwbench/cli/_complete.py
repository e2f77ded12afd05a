"""What the Tab key offers for a parameter's value, by the parameter's name: the same wherever it is asked for.

Only what lists without loading anything heavy. Verbs and options are offered by typer itself, files by the shell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

Listed = Callable[[Any], Iterable[str]]
"""Of the context of the line so far: what could stand there."""


def names(kind: str) -> Listed:
    """Of registered parts."""

    def listed(context: Any) -> Iterable[str]:
        from hwbench.core import registry

        return [registry.shown(kind, name) for name in registry.names(kind)]

    return listed


def devices(context: Any) -> Iterable[str]:
    """Of device files, in the workspace the line names and shipped."""
    from hwbench.core.workspace import Workspace
    from hwbench.device import files

    given = context.params.get("workspace") or "."
    return ["local", *(path.stem for path in files.files(Workspace.at(given)))]


def kinds(context: Any) -> Iterable[str]:
    """Of parts."""
    from hwbench.core import registry

    return registry.kinds()


def plurals(context: Any) -> Iterable[str]:
    """What `hwbench list` takes."""
    from hwbench.cli.list import DEVICES, PLURALS

    return (*PLURALS, DEVICES)


def shells(context: Any) -> Iterable[str]:
    """What `hwbench completion` takes."""
    from hwbench.cli.completion import SHELLS

    return SHELLS


VALUES: Mapping[str, Listed] = {
    "space": names("space"),
    "strategy": names("strategy"),
    "proxy": names("proxy"),
    "objective": names("objective"),
    "runtime": names("runtime"),
    "executor": names("executor"),
    "regressor": names("regressor"),
    "device": devices,
    "like": devices,
    "device show name": devices,
    "device setup name": devices,
    "validate table": names("benchmark"),
    "specialise table": names("benchmark"),
    "list kind": plurals,
    "check-part kind": kinds,
    "completion shell": shells,
    "statistic": lambda context: ("min", "p50"),
}
"""A parameter's name, behind its verb where only that one means so -> what it can be."""


def offered(listed: Listed, context: Any, incomplete: str) -> list[Any]:
    """What begins like that; nothing where it cannot be listed, as nobody can be told then."""
    from typer._click.shell_completion import CompletionItem

    from hwbench.core.errors import HwbenchError

    try:
        return [CompletionItem(each) for each in listed(context) if each.startswith(incomplete)]
    except (HwbenchError, OSError):
        return []


def complete(verb: str, parameters: Iterable[Any]) -> None:
    """Lets the parameters of a verb answer the Tab key."""
    for each in parameters:
        listed = VALUES.get(f"{verb} {each.name}") or VALUES.get(str(each.name))
        if listed is not None:
            each.shell_complete = partial(offered, listed)
