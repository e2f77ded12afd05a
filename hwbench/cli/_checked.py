"""Every verb's command line, held against the table of what is read (_modes.py) before the verb itself is asked.

Refused in one line: an option given twice of which only the last would count, one that the way asked for does not read, one
that is missing, a number out of range, a name no file can have, and whatever click does not understand.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

import typer
from typer.core import TyperCommand

from hwbench.cli import _complete
from hwbench.cli import _modes as modes
from hwbench.cli._options import was_given
from hwbench.core.errors import UsageError

SENTENCE, SHOWN = {",", "=", " "}, 60
"""Text with one of these is no file's name but columns, a limit or a condition; so much of a name is shown."""
MISUSE: type[Exception] = typer.BadParameter.__mro__[1]
"""What click raises for a line it does not understand; typer brings a click of its own, older ones took the installed one."""


@contextmanager
def understood(ctx: Any) -> Iterator[None]:
    """Turns what click says of a line into an error of ours; its help, for a noun alone, is no error."""
    try:
        yield
    except MISUSE as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        said = " ".join(error.format_message().split())  # type: ignore[attr-defined]
        whole = said if said.endswith((".", "?")) else f"{said}."
        where = getattr(error, "ctx", None) or ctx
        raise UsageError(f"{whole} What there is: {where.command_path} --help") from None


class CheckedCommand(TyperCommand):
    """A verb that refuses what it would not read, and offers what it would."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        _complete.complete(_words(self), self.params)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As click does, but for options that stand there twice."""
        with understood(ctx):
            if not ctx.resilient_parsing:
                _, _, order = self.make_parser(ctx).parse_args(args=list(args))
                single = [each for each in order if not (each.multiple or each.nargs != 1 or getattr(each, "is_flag", False))]
                for parameter, times in Counter(single).items():
                    if times > 1:
                        raise UsageError(f"{_option(parameter)} was given {times} times: leave all but one of them out.")
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """The check, then the verb."""
        check(ctx)
        return super().invoke(ctx)


def check(context: typer.Context) -> None:
    """Raises UsageError unless everything given is read, and everything needed is given."""
    name = verb_name(context)
    verb = modes.VERBS[name]
    options = {str(each.name): each for each in context.command.params}
    given = {each: context.params[each] for each in options if was_given(context, each)}
    said = {each: _option(parameter) for each, parameter in options.items()}
    for each, value in given.items():
        _check_range(said[each], each, value)
        _check_reachable(said[each], value)
    mode = _mode_of(name, verb, given)
    asked = f"{name} {mode.said}".rstrip()
    for each in given:
        if each not in mode.reads:
            others = [f"{name} {other.said}".rstrip() for other in verb.modes if each in other.reads]
            raise UsageError(f"{asked} does not read {said[each]}: leave it out, or ask for {' or '.join(others)}.")
    for need in mode.needs:
        names = need.split("|")
        if not any(each in given for each in names):
            raise UsageError(f"{asked} needs {' or '.join(said[each] for each in names)} as well.")
    for only in (*verb.only, *modes.EVERYWHERE):
        for each in only.options:
            if each in given and not only.met(given):
                raise UsageError(f"{asked} reads {said[each]} only {only.where}: leave {said[each]} out, or ask for that.")


def verb_name(context: typer.Context) -> str:
    """The words of a verb, as its help lists them: the file it is in, and the action where that has several."""
    return _words(context.command)


def _words(command: Any) -> str:
    file, name = str(command.callback.__module__).rpartition(".")[2].replace("_", "-"), str(command.name)
    return name if name == file else f"{file} {name}"


def _mode_of(name: str, verb: modes.Verb, given: modes.Given) -> modes.Mode:
    """The first way that something given means; the one that needs no word where nothing does."""
    for mode in verb.modes:
        if not mode.when or any(each in given for each in mode.when):
            return mode
    ways = [f"{name} {mode.said}" for mode in verb.modes]
    raise UsageError(f"{name} says too little: ask for {' or '.join(ways)}.")


def _check_range(option: str, name: str, value: Any) -> None:
    """Raises UsageError for a number out of range."""
    for each in value if isinstance(value, list | tuple) else [value]:
        if isinstance(each, bool) or not isinstance(each, int | float):
            continue
        allowed = modes.RANGES[name]
        if not allowed.holds(each):
            kind = "whole number" if isinstance(each, int) else "number"
            raise UsageError(f"{option} {each} is out of range: give a {kind} {allowed.said}.")


def _check_reachable(option: str, value: Any) -> None:
    """Raises UsageError for what no file can be called: whatever looks for it later would end in an error of the system's."""
    for each in value if isinstance(value, list | tuple) else [value]:
        if not isinstance(each, str | PurePath) or {*str(each)} & SENTENCE:
            continue
        try:
            Path(each).expanduser().stat()
        except RuntimeError as error:  # no such user
            raise UsageError(f"{option} {_short(each)} cannot be reached: {error} Give another.") from None
        except OSError as error:
            if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
                raise UsageError(f"{option} {_short(each)} cannot be reached: {error.strerror}. Give another.") from None


def _short(text: object) -> str:
    whole = str(text)
    return whole if len(whole) <= SHOWN else f"{whole[:SHOWN]}..."


def _option(parameter: Any) -> str:
    """As it is written on a command line."""
    return str(parameter.name).upper() if parameter.param_type_name == "argument" else str(parameter.opts[0])
