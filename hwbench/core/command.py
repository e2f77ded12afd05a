"""Command lines of hwbench, written one way: what an error tells to run, and what a card says rebuilds it.

command("fit", space=["bert"], threads=2, stored=True) == "hwbench fit --space bert --threads 2 --stored"

Every word is quoted as a shell needs it, so that what is printed can be pasted: a part that came from a file of code is written
as the user gave it. What is stored (`stored_command`) holds its stored name, which has no path.

An error that a command would mend ends in a `hint`, which says all that the user said (`Target.options`, or the line itself:
`typed` of cli/_options.py); where the user has to fill something in, it ends in a `form`. No other code writes either:
tests/cli/test_hints.py knows every place that has a hint, and runs it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from os import PathLike

from hwbench.core import registry

Value = str | int | float | bool | PathLike[str] | Sequence[str] | Mapping[str, object] | None
"""None and False leave an option out, True is a flag, several values repeat it, a mapping repeats it as name=value, where
several values are one with commas: shape={"x": (1, 3)} is --shape x=1,3."""


def command(verb: str, *arguments: str | PathLike[str], **options: Value) -> str:
    """`hwbench VERB ARGUMENT... --option value ...`; underscores of an option's name become hyphens."""
    return shlex.join(["hwbench", *verb.split(), *map(str, arguments), *map(registry.as_given, words(**options))])


def hint(*commands: str, start: str = "Run") -> str:
    """The end of a message: commands to be pasted as they stand, one after the other; nothing may follow."""
    return f"{start}: {' && '.join(commands)}"


def extra(name: str) -> str:
    """The command that installs the packages of one of hwbench's extras."""
    return f"pip install 'hwbench-nas[{name}]'"


def form(line: str) -> str:
    """The end of a message: a command that words in capitals make incomplete."""
    return f"as in: {line}"


def stored_command(verb: str, **options: Value) -> str:
    """The same for a file."""
    return shlex.join(["hwbench", *verb.split(), *words(**options)])


def words(**options: Value) -> list[str]:
    """The options alone, word by word, in the order given."""
    line: list[str] = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            line.append(flag)
        elif isinstance(value, Mapping):
            line += [word for key, each in value.items() for word in (flag, f"{key}={_text(each)}")]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            line += [word for each in value for word in (flag, _text(each))]
        elif value is not None and value is not False:
            line += [flag, _text(value)]
    return line


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    if not isinstance(value, float):
        return str(value)
    short = f"{value:g}"
    return short if float(short) == value else repr(value)
