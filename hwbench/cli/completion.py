"""hwbench completion."""

from __future__ import annotations

from typing import Annotated

import typer

SHELLS = ("bash", "zsh", "fish")


def run(shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print what makes a shell complete hwbench's verbs, options, spaces, devices and other names; for its start-up file."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    from hwbench.core.errors import UnknownName
    from hwbench.core.registry import unknown

    if shell not in SHELLS:
        raise UnknownName(unknown("shell", shell, SHELLS))
    typer.echo(get_completion_script(prog_name="hwbench", complete_var="_HWBENCH_COMPLETE", shell=shell))
