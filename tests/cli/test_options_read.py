"""No option is accepted and ignored: every verb, in every way it can be asked, with every option that way does not read.

The table that the command line is checked by (hwbench/cli/_modes.py) is the list of what is tried here, so nothing is listed
twice; that it names every option of every verb, and every number's range, is tested first.
"""

from __future__ import annotations

import functools
import json
import shlex
import subprocess
import sys
import typing
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from hwbench.cli._checked import was_given
from hwbench.cli._modes import RANGES, VERBS, Mode
from hwbench.cli.main import build
from hwbench.core.errors import UsageError
from hwbench.core.workspace import packaged

APP = build()


def commands(command: Any, *path: str) -> dict[str, Any]:
    """Verb -> its command."""
    if not hasattr(command, "commands"):
        return {" ".join(path): command}
    return {verb: found for name, below in command.commands.items() for verb, found in commands(below, *path, name).items()}


ROOT = typer.main.get_command(APP)
COMMANDS = commands(ROOT)


def parameters(verb: str) -> dict[str, Any]:
    return {each.name: each for each in COMMANDS[verb].params}


def is_flag(parameter: Any) -> bool:
    return bool(getattr(parameter, "is_flag", False))


@functools.cache
def number(verb: str, name: str) -> type[int] | type[float] | None:
    """What kind of number an option takes, alone or repeated; None where it takes none."""
    said = typing.get_type_hints(COMMANDS[verb].callback)[name]
    inside = [said, *typing.get_args(said), *(part for each in typing.get_args(said) for part in typing.get_args(each))]
    return next((kind for kind in (int, float) if kind in inside), None)


def words(verb: str, name: str, given: str | None = None) -> list[str]:
    """An option, or an argument, with something that it takes."""
    parameter, kind = parameters(verb)[name], number(verb, name)
    value = "x" if kind is None else str(next(each for each in (1, kind(0.5), 4, -1) if RANGES[name].holds(each)))
    if parameter.param_type_name == "argument":
        return [given or value]
    return [parameter.opts[0], *([] if is_flag(parameter) else [given or value])]


def shown(name: str, option: Any) -> str:
    """How messages name it."""
    return name.upper() if option.param_type_name == "argument" else str(option.opts[0])


def asked(verb: str, mode: Mode) -> list[str]:
    """The least that asks a verb in this way."""
    known = parameters(verb)
    first = mode.when[:1]
    needed = [each.split("|")[0] for each in mode.needs]
    required = [name for name, each in known.items() if each.required]
    return [word for name in dict.fromkeys((*required, *first, *needed)) for word in words(verb, name)]


def refused(*line: str) -> str:
    with pytest.raises(UsageError) as caught:
        ROOT.main([*line], prog_name="hwbench", standalone_mode=False)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def pairs() -> Iterator[tuple[str, Mode, str]]:
    """(verb, way, option that this way does not read)."""
    for verb, declared in VERBS.items():
        for mode in declared.modes:
            for name in parameters(verb):
                if name not in mode.reads:
                    yield verb, mode, name


def test_every_verb_and_every_option_is_in_the_table():
    assert VERBS.keys() == COMMANDS.keys()
    for verb, declared in VERBS.items():
        read = frozenset.union(*(mode.reads for mode in declared.modes))
        assert read == parameters(verb).keys(), f"{verb}: which way reads {read ^ parameters(verb).keys()}?"
        for mode in declared.modes:
            assert {*mode.when, *(name for need in mode.needs for name in need.split("|"))} <= mode.reads
        for only in declared.only:
            assert set(only.options) <= read
        assert all(mode.when for mode in declared.modes[:-1]), f"{verb}: ways behind the one without words are never reached"


def test_every_number_has_its_range():
    assert {name for verb in COMMANDS for name in parameters(verb) if number(verb, name)} == RANGES.keys()


def test_an_option_that_the_way_asked_for_does_not_read_is_refused():
    tried = 0
    for verb, mode, name in pairs():
        option, modes = parameters(verb)[name], VERBS[verb].modes
        said = refused(*verb.split(), *asked(verb, mode), *words(verb, name))
        if any(name in earlier.when for earlier in modes[: modes.index(mode)]):
            continue  # it asks for a way that comes first, which then refuses what asked for this one
        way = f"{verb} {mode.said}".rstrip()
        assert said.startswith(f"{way} does not read {shown(name, option)}: leave it out, or ask for {verb}")
        tried += 1
    assert tried > 60


def test_options_that_are_read_in_some_cases_are_refused_in_the_others():
    for verb, declared in VERBS.items():
        for only, name in ((rule, name) for rule in declared.only for name in rule.options):
            option, other = parameters(verb)[name].opts[0], CONTRARY.get((verb, name), [])
            read = {name, *(word.removeprefix("--") for word in other[:1] if word.startswith("--"))}
            lines = {mode: [*asked(verb, mode), *words(verb, name, TELLING.get(name)), *other] for mode in declared.modes}
            modes = [mode for mode in declared.modes if read <= mode.reads and not only.met(named(verb, lines[mode]))]
            assert modes, (verb, name, lines)
            for mode in modes:
                said = refused(*verb.split(), *lines[mode])
                assert f"reads {option} only {only.where}: leave {option} out" in said


def named(verb: str, line: list[str]) -> dict[str, Any]:
    """What a line gives, by name, as the rules see it."""
    context = COMMANDS[verb].make_context(verb, [*line], resilient_parsing=True)
    return {name: value for name, value in context.params.items() if was_given(context, name)}


CONTRARY = {
    ("list", "workspace"): ["ops"],
    ("profile", "until"): ["--device", "pi4", "--device", "pi5"],
    ("profile", "executor"): ["--until", "p95 error < 3 %"],
    ("profile", "again"): ["--until", "p95 error < 3 %"],
    ("profile", "doubtful"): ["--again"],
    ("lut diff", "everything"): ["--json"],
    ("predict", "layers"): ["--json"],
    **{(verb, "workers"): ["--executor", "ray"] for verb in ("score", "search", "validate")},
    ("search", "proxy"): ["--accuracy", "x"],
    **{
        ("compress", name): ["--method", "netadapt"]
        for name in ("configurations", "rule", "teacher", "strategy", "evaluations", "subnets", "tune_epochs")
    },
}
"""What must stand there so that an option is not read, where leaving words out does not do it."""
TELLING = {"repeats": "2"}
"""Values of options that may be given always as long as they change nothing."""


def test_commands_of_shipped_cards_are_accepted(monkeypatch):
    accepted = []
    monkeypatch.setattr("typer.core.TyperCommand.invoke", lambda command, context: accepted.append(context.info_name))
    rebuild = [json.loads(path.read_text())["rebuild"] for path in packaged().glob("predictors/*/*/card.json")]
    for line in rebuild:
        done = CliRunner().invoke(APP, shlex.split(line)[1:], catch_exceptions=False)
        assert done.exit_code == 0, line
    assert len(accepted) == len(rebuild) > 20


def test_what_a_way_needs_must_be_given():
    for verb, declared in VERBS.items():
        for mode in declared.modes:
            for need in mode.needs:
                start = next((name for name in mode.when if name != need), None)
                if start is None:
                    continue
                known, others = parameters(verb), [each.split("|")[0] for each in mode.needs if each != need]
                required = [name for name, each in known.items() if each.required]
                line = [word for name in dict.fromkeys((*required, start, *others)) for word in words(verb, name)]
                options = " or ".join(shown(each, known[each]) for each in need.split("|"))
                assert f"needs {options} as well" in refused(*verb.split(), *line)
        if all(mode.when for mode in declared.modes):
            required = [word for name, each in parameters(verb).items() if each.required for word in words(verb, name)]
            assert "says too little: ask for" in refused(*verb.split(), *required)


@pytest.mark.parametrize("wrong", ["-1", "0", "nan", "inf", "99999999999999999999"])
def test_numbers_out_of_range_are_refused(wrong):
    tried = 0
    for verb in VERBS:
        for name, option in parameters(verb).items():
            kind = number(verb, name)
            if kind is None or (kind is int and not wrong.lstrip("-").isdecimal()) or RANGES[name].holds(float(wrong)):
                continue  # no number, not understood as a whole one, or within its range
            known = parameters(verb).items()
            line = [word for other, each in known if each.required and other != name for word in words(verb, other)]
            said = refused(*verb.split(), *line, option.opts[0], wrong)
            assert said.startswith(f"{option.opts[0]} {kind(wrong)} is out of range: give a ")
            tried += 1
    assert tried


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["profile", "--threads", "two"], "Invalid value for '--threads': "),
        (["profile", "--spce", "bert"], "No such option: --spce"),
        (["profile", "--space"], "Option '--space' requires an argument."),
        (["sample"], "Missing option '--space'. What there is: hwbench sample --help"),
        (["lut", "diff", "a", "b", "c"], "Got unexpected extra argument"),
        (["profil"], "No such command 'profil'. Did you mean 'profile'"),
        (["lut", "shw"], "No such command 'shw'. Did you mean 'show'"),
        (["--verson"], "No such option: --verson"),
    ],
)
def test_what_is_not_understood_is_one_line(line, said):
    told = refused(*line)
    assert told.startswith(said)
    assert told.endswith(" --help")


@pytest.mark.parametrize("line", [[], ["lut"], ["device"]])
def test_a_noun_alone_is_answered_with_its_help(line):
    done = CliRunner().invoke(APP, line)
    assert "Usage: " in done.output
    assert done.exit_code == 2


@pytest.mark.parametrize(
    "line",
    [
        ["sample", "--space", "bert", "--seed", "1", "--seed", "2"],
        ["predict", "m.onnx", "--out", "a.csv", "--output", "b.csv"],
        ["search", "--space", "bert", "--out", "x", "--limit", "params_m=5", "--limit", "params_m=7"],
        ["search", "--space", "bert", "--out", "x", "--budget", "params_m=5", "--budget", "params_m=7"],
        ["measure", "m.onnx", "--shape", "x=1,2", "--shape", "x=2,2"],
        ["measure", "m.onnx", "--fill", "x=1", "--fill", "x=2"],
        ["fit", "--from", "t", "--features", "a", "--out", "o", "--where", "a=1", "--where", "a=2"],
        ["lut", "recover", "--from", "t", "--features", "a", "--out", "o", "--where", "a=1", "--where", "a=2"],
    ],
)
def test_nothing_is_given_twice(line):
    said = refused(*line)
    assert "was given 2 times" in said or "was given twice" in said


def test_a_refusal_loads_nothing_heavy():
    script = (
        "import sys; sys.argv = ['hwbench', 'predict', 'm.onnx', '--arch', 'x'];"
        "from hwbench.cli import main\n"
        "try: main.main()\n"
        "except SystemExit as end: print(end.code, sorted({'numpy', 'onnx', 'pandas', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "2 []\n"
    assert done.stderr.count("\n") == 1
