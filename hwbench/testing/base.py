"""What all suites share: a part is named or given, a check that fails names it, and pytest is not needed.

A check is a method `test_...`; `@cases(argument=values)` runs it once per value. `make` gives a part, `expect` fails with the
part's name, the member and what was expected. A check that cannot be made here (a package or data is missing) skips itself.
"""

from __future__ import annotations

import re
import unittest
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any, NoReturn, TypeVar

from hwbench.core import registry
from hwbench.core.errors import HwbenchError

Check = TypeVar("Check", bound=Callable[..., None])


def cases(**arguments: Iterable[Any]) -> Callable[[Check], Check]:
    """Runs a check once for every combination of these arguments."""

    def mark(check: Check) -> Check:
        check.cases = {name: list(values) for name, values in arguments.items()}  # type: ignore[attr-defined]
        return check

    return mark


class Contract:
    """A suite; subclasses say of which kind, and someone's subclass which part."""

    kind: str
    name: str = ""
    """A registered name, options after a colon."""
    part: Any = None
    """Instead of a name: the class, or an object where the kind needs no arguments."""

    def make(self, **arguments: Any) -> Any:
        """A new part, checked for the members of its contract; where it has neither name nor class, override this.

        Raises:
            HwbenchError: it cannot be made, or a member is missing.
            unittest.SkipTest: it needs a package that is not installed.
        """
        try:
            return registry.make(self.kind, self.called, **arguments)
        except HwbenchError as error:
            if "pip install" in str(error):
                raise unittest.SkipTest(str(error)) from None
            raise

    @property
    def called(self) -> str:
        """The name under which the registry knows the part."""
        if self.part is None:
            return self.name or type(self).__name__
        return registry.named(self.kind, self.part)

    def expect(self, kept: Any, member: str, expected: str) -> None:
        """Fails unless something holds.

        Args:
            kept: Whether it does.
            member: Of the contract.
            expected: What it should have been, and what was found.
        """
        if not kept:
            raise AssertionError(f"{self.kind} {self.called}, {member}: {expected}")

    @contextmanager
    def refusal(self, error: type[Exception], pattern: str, member: str) -> Iterator[None]:
        """Fails unless what runs inside raises that error, with a message that matches."""
        try:
            yield
        except error as raised:
            self.expect(re.search(pattern, str(raised)), member, f"expected a message like '{pattern}', found '{raised}'")
        else:
            raise AssertionError(
                f"{self.kind} {self.called}, {member}: expected {error.__name__} ('{pattern}'), nothing was raised"
            )

    def skip(self, reason: str) -> NoReturn:
        """Ends the check: it cannot be made here."""
        raise unittest.SkipTest(reason)

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """For pytest alone: one test per case."""
        for argument, values in getattr(metafunc.function, "cases", {}).items():
            metafunc.parametrize(argument, values, ids=[str(value) for value in values])

    def test_it_has_every_member_of_its_contract(self) -> None:
        """As everything that uses it finds out first."""
        self.make(**self.arguments())

    def arguments(self) -> dict[str, Any]:
        """What a part of this kind is made with."""
        return {}


def checks(suite: type[Contract]) -> dict[str, list[dict[str, Any]]]:
    """Check -> the arguments of each of its runs."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name in (name for cls in reversed(suite.__mro__) for name in vars(cls) if name.startswith("test_")):
        wanted = getattr(getattr(suite, name), "cases", {})
        found[name] = [dict(zip(wanted, values, strict=True)) for values in product(*wanted.values())]
    return found


def suite_of(kind: str) -> type[Contract]:
    """The suite of a kind."""
    from hwbench import testing

    found: type[Contract] = getattr(testing, f"{kind.capitalize()}Contract")
    return found


def suites(kind: str, **attributes: Callable[[str], Any]) -> dict[str, type[Contract]]:
    """For `globals().update(...)` in a test file: one class per registered name of a kind.

    Args:
        kind: Of plug-in.
        attributes: Of the suite, as functions of the name.
    """
    found = {}
    for name in registry.names(kind):
        title = "Test" + "".join(part.capitalize() for part in re.split(r"\W|_", name))
        own = {attribute: value(name) for attribute, value in attributes.items()}
        found[title] = type(title, (suite_of(kind),), {"name": name, **own})
    return found
