"""Whether an object keeps the contract of its kind: every member of the Protocol is there, and methods take its arguments.

What a member does is not looked at here; the suites of hwbench/testing do that (`hwbench check-part module:Class`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from hwbench.core.errors import UsageError


@lru_cache(maxsize=None)
def members(protocol: Any) -> dict[str, inspect.Signature | None]:
    """Public member -> the signature of a method (without self), None for a value."""
    names = sorted(name for name in {*vars(protocol), *protocol.__annotations__} if not name.startswith("_"))
    return {name: _bound(vars(protocol)[name]) if callable(vars(protocol).get(name)) else None for name in names}


def _bound(method: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(method)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def check(kind: str, protocol: Any, part: Any) -> None:
    """Raises unless the part keeps the contract; the message names the part, the member and what was expected.

    Raises:
        UsageError: a member is missing, a method is no method, or it does not take the arguments it will be given.
    """
    missing = [name for name in members(protocol) if not hasattr(part, name)]
    if missing:
        raise UsageError(f"{kind} {class_name(part)} lacks {', '.join(missing)} of its contract.")
    for fault in _faults(protocol, part):
        raise UsageError(f"{kind} {class_name(part)} breaks its contract: {fault}.")


def _faults(protocol: Any, part: Any) -> Iterator[str]:
    for name, wanted in members(protocol).items():
        found = getattr(part, name)
        if wanted is None:
            if inspect.ismethod(found):
                yield f"{name} must be a value, it is a method"
        elif not callable(found):
            yield f"{name} must be a method, it is {found!r}"
        elif (given := _signature(found)) is not None and not _takes(given, wanted):
            n = len(wanted.parameters)
            named = f" ({', '.join(wanted.parameters)})" if n else ""
            yield f"{name} must take {n} argument{'s' * (n != 1)}{named}, its own are {given}".replace("'", "")


@lru_cache(maxsize=None)
def _own(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # written in C: it cannot be asked
        return None


def _signature(method: Any) -> inspect.Signature | None:
    """Of a bound method; remembered by its function, as the same parts are made again and again."""
    if inspect.ismethod(method):
        own = _own(method.__func__)
        return None if own is None else own.replace(parameters=list(own.parameters.values())[1:])
    try:
        return inspect.signature(method)
    except (TypeError, ValueError):
        return None


def _takes(given: inspect.Signature, wanted: inspect.Signature) -> bool:
    """Whether a call with all arguments of the contract can be made, by their place where the contract leaves that open."""
    by_name = {name for name, each in wanted.parameters.items() if each.kind is inspect.Parameter.KEYWORD_ONLY}
    try:
        given.bind(*(name for name in wanted.parameters if name not in by_name), **dict.fromkeys(by_name))
    except TypeError:
        return False
    return True


def class_name(part: Any) -> str:
    """module.Class of an object."""
    cls = part if inspect.isclass(part) else type(part)
    return f"{cls.__module__}.{cls.__qualname__}"
