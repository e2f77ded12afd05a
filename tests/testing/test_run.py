"""Suites run without pytest, on registered parts and on classes; a part that breaks its contract is told where and how."""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

import hwbench
from hwbench.cli.main import build
from hwbench.core import registry
from hwbench.core.errors import UnknownName, UsageError
from hwbench.testing.base import checks, suite_of
from hwbench.testing.run import FAILED, OK, SKIPPED, check_part

SOURCE = '''
import numpy as np
from hwbench.optimize.objective.base import ACCURACY, FITNESS, ONE_NUMBER, check_budgets


class Generous:
    """Accuracy alone: dearer is as good."""

    hard = False
    objectives = ONE_NUMBER
    limits = {}

    def __init__(self, limits):
        check_budgets(limits)

    def told(self, values):
        return {FITNESS: values[ACCURACY] + 0.0 * values["latency_ms"]}


class Wasteful(Generous):
    """The dearer, the better."""

    def told(self, values):
        return {FITNESS: values[ACCURACY] + values["latency_ms"]}


class Clumsy(Generous):
    def told(self, values):
        return {FITNESS: values["nothing"]}


class Lacking:
    hard, objectives, limits = False, ONE_NUMBER, {}

    def __init__(self, limits): ...


class Nothing: ...


not_a_class = 3
'''


@pytest.fixture(autouse=True)
def parts(tmp_path, monkeypatch):
    (tmp_path / "their_parts.py").write_text(SOURCE)
    (tmp_path / "broken_module.py").write_text("import a_package_nobody_has")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("their_parts", None)
    registry._given.clear()
    registry._given_shared.clear()


def ask(*arguments: str):
    return CliRunner().invoke(build(), ["check-part", *arguments])


def test_there_is_a_suite_for_every_kind():
    assert {suite_of(kind).kind for kind in registry.kinds()} == set(registry.kinds())
    assert all(len(checks(suite_of(kind))) >= 5 for kind in registry.kinds())
    assert len(hwbench.testing.__all__) == len(registry.kinds())


def test_no_suite_needs_pytest(python):
    names = "".join(f"hwbench.testing.{name}; " for name in hwbench.testing.__all__)
    done = python(f"import sys; sys.modules['pytest'] = sys.modules['hypothesis'] = None; import hwbench.testing; {names}")
    assert done.returncode == 0, done.stderr


def test_a_part_that_keeps_its_contract_passes():
    kind, outcomes = check_part("their_parts:Generous")
    assert kind == "objective"
    assert {outcome.status for outcome in outcomes} == {OK}


@pytest.mark.parametrize("name", ["params", "calibrated-sum", "ridge", "add", "local"])
def test_registered_parts_pass_by_their_name(name):
    if name == "local":
        with pytest.raises(UsageError, match="'local' is the name of more than one part; give --kind: transport or strategy"):
            check_part(name)
    kind, outcomes = check_part(name, "transport" if name == "local" else "")
    assert {outcome.status for outcome in outcomes} <= {OK, SKIPPED}
    assert kind in registry.kinds()


def test_a_failed_check_names_part_member_and_what_was_expected():
    _, outcomes = check_part("their_parts:Wasteful")
    failed = {outcome.check: outcome.reason for outcome in outcomes if outcome.status == FAILED}
    reason = failed["at equal accuracy the cheaper never stands behind"]
    assert reason.startswith(
        "objective their_parts:Wasteful, told: expected the lower latency_ms first at equal accuracy; of {"
    )
    assert reason.endswith("[cost = latency_ms]")
    assert "what is invalid stays so" not in failed


def test_whatever_a_part_raises_is_a_failed_check_with_its_place():
    _, outcomes = check_part("their_parts:Clumsy")
    reasons = {outcome.reason for outcome in outcomes if outcome.check == "within the budgets accuracy counts"}
    assert reasons == {"KeyError: 'nothing' (their_parts.py:29)"}


def test_a_lacking_member_is_what_every_check_says():
    _, outcomes = check_part("their_parts:Lacking", "objective")
    assert {outcome.reason.partition(" [")[0] for outcome in outcomes} >= {
        "objective their_parts.Lacking lacks told of its contract."
    }
    assert outcomes[0].status == FAILED


class TestMadeByHand(hwbench.testing.ProxyContract):
    """A suite may make its part itself."""

    def make(self, **arguments):
        return registry.make("proxy", "params", **arguments)


@pytest.mark.parametrize(
    ("part", "kind", "message"),
    [
        ("no.such.module:Part", "", r"There is no module no.such.module that can be imported: ModuleNotFoundError: No module"),
        ("broken_module:Part", "", "ModuleNotFoundError: No module named 'a_package_nobody_has'"),
        ("their_parts:Absent", "", "Module their_parts has no Absent; it has Generous, Wasteful, Clumsy, Lacking, Nothing."),
        ("their_parts:not_a_class", "", "their_parts:not_a_class is no class, but int; give module:Class."),
        ("their_parts:Nothing", "", "What kind of part is their_parts:Nothing? It has no contract's methods. Give --kind: "),
        ("nobody", "", "No part is called 'nobody'; give a name of hwbench list KIND, or module:Class."),
        ("nobody", "space", "Unknown space 'nobody'."),
        ("params", "proxi", "Unknown kind 'proxi'. Did you mean proxy?"),
    ],
)
def test_bad_input_is_answered_in_one_line(part, kind, message):
    with pytest.raises(UsageError) as error:
        check_part(part, kind)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_command_prints_a_table_and_ends_with_1_where_something_failed():
    good, bad = ask("their_parts:Generous"), ask("their_parts:Wasteful", "--json")
    assert good.exit_code == 0, good.output
    assert "objective their_parts:Generous: 9 of 9 checks kept, 0 failed." in good.stdout
    assert bad.exit_code == 1
    document = json.loads(bad.stdout.splitlines()[-1])
    assert (document["kind"], document["passed"]) == ("objective", False)
    assert {row["status"] for row in document["checks"]} == {OK, FAILED}


def test_an_unknown_device_is_named():
    assert isinstance(ask("local", "--kind", "transport", "--device", "toaster").exception, UnknownName)
