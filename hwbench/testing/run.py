"""Runs a suite on a part without pytest: each check, whether it was kept, and why not."""

from __future__ import annotations

import importlib
import inspect
import sys
import unittest
import warnings
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from hwbench.core import contract, registry, user_code
from hwbench.core.errors import HwbenchError, UnknownName, UsageError
from hwbench.testing.base import Contract, checks, suite_of

OK, FAILED, SKIPPED = "ok", "failed", "not checked"


@dataclass(frozen=True)
class Outcome:
    """Of one check."""

    check: str
    status: str
    reason: str = ""


def check_part(part: str, kind: str = "", **attributes: Any) -> tuple[str, list[Outcome]]:
    """(kind, outcomes) of a part.

    Args:
        part: module:Class, FILE.py:Class, or a registered name.
        kind: Of plug-in; found out from the entry point, the registered name or the members where it is not given.
        attributes: Of the suite, e.g. `folder` of a benchmark table.

    Raises:
        UsageError: there is no such module, class or name, or its kind cannot be told.
    """
    if kind and kind not in registry.kinds():
        raise UnknownName(registry.unknown("kind", kind, registry.kinds()))
    if _is_path(part):
        given, entry = _class(part), _entry_of(part)
        kind = kind or (entry[0] if entry else _kind_of(part, given))
        attributes |= {"name": entry[1]} if entry and entry[0] == kind else {"part": given}
    else:
        kind = kind or _kind_of_name(part)
        registry.about(kind, part.partition(":")[0])
        attributes |= {"name": registry.current(kind, part)}
    suite = suite_of(kind)
    if unread := [name for name in attributes if name not in ("name", "part") and not hasattr(suite, name)]:
        option = {"folder": "--tables"}.get(unread[0], f"--{unread[0]}")
        raise UsageError(f"No check of a {kind} reads {option}: leave it out.")
    return kind, run(type(f"Check{suite.__name__}", (suite,), attributes))


def _is_path(part: str) -> bool:
    return ":" in part and "=" not in part.partition(":")[2]


def _class(path: str) -> Any:
    """What module:Class or FILE.py:Class names; modules of the current folder are found, too."""
    if user_code.is_reference(path):
        return _checked(path, user_code.load(path, "part"))
    module_name, _, class_name = path.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # whatever someone's module does while it is imported
        raise UsageError(f"There is no module {module_name} that can be imported: {type(error).__name__}: {error}.") from None
    for name in class_name.split("."):
        if not hasattr(found, name):
            classes = [n for n, c in vars(found).items() if inspect.isclass(c) and c.__module__ == module_name]
            raise UsageError(f"Module {module_name} has no {class_name}; it has {', '.join(classes) or 'no classes'}.")
        found = getattr(found, name)
    return _checked(path, found)


def _checked(path: str, found: Any) -> Any:
    if not inspect.isclass(found):
        raise UsageError(f"{path} is no class, but {type(found).__name__}; give module:Class.")
    return found


def _entry_of(path: str) -> tuple[str, str] | None:
    """(kind, name) of the entry point that registers a class."""
    for kind in registry.kinds():
        for point in entry_points(group=f"hwbench.{kind}"):
            if point.value == path:
                return kind, point.name
    return None


def _kind_of(path: str, given: type) -> str:
    """The kind whose contract's methods it has, all or most of them."""
    shares = {}
    for kind in registry.kinds():
        methods = [name for name, signature in contract.members(registry.contract(kind)).items() if signature is not None]
        shares[kind] = sum(hasattr(given, name) for name in methods) / len(methods)
    best = max(shares.values())
    likely = [kind for kind, share in shares.items() if share == best]
    if best < 0.5 or len(likely) > 1:
        why = f"it could be {' or '.join(likely)}" if best >= 0.5 else "it has no contract's methods"
        raise UsageError(f"What kind of part is {path}? {why.capitalize()}. Give --kind: {', '.join(registry.kinds())}.")
    return likely[0]


def _kind_of_name(name: str) -> str:
    base = name.partition(":")[0]
    likely = [kind for kind in registry.kinds() if registry.is_registered(kind, base)]
    if len(likely) == 1:
        return likely[0]
    if likely:
        raise UsageError(f"'{name}' is the name of more than one part; give --kind: {' or '.join(likely)}.")
    raise UsageError(f"No part is called '{name}'; give a name of hwbench list KIND, or module:Class.")


def run(suite: type[Contract]) -> list[Outcome]:
    """Every check of a suite, in order; of several cases the first that fails counts."""
    return [_outcome(suite, name, runs) for name, runs in checks(suite).items()]


def _outcome(suite: type[Contract], name: str, runs: list[dict[str, Any]]) -> Outcome:
    title, skipped = name.removeprefix("test_").replace("_", " "), []
    for arguments in runs:
        case = "".join(f" [{key} = {value}]" for key, value in arguments.items())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                getattr(suite(), name)(**arguments)
        except unittest.SkipTest as reason:
            skipped.append(str(reason))
        except (AssertionError, HwbenchError) as failed:
            return Outcome(title, FAILED, f"{failed}{case}")
        except Exception as error:  # someone's part may raise whatever it likes
            return Outcome(title, FAILED, f"{type(error).__name__}: {error} ({user_code.place(error)}){case}")
    return Outcome(title, SKIPPED, skipped[0]) if skipped and len(skipped) == len(runs) else Outcome(title, OK)
