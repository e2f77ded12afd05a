"""Plug-ins by file name: a file `<name>.py` in the folder of a kind is the registration of <name>.

Which kinds there are and where their folders lie is declared by the packages that own them, in their `__init__.py`:
`KINDS = {kind: package}`; `RENAMED_KINDS = {old: new}` remembers what a kind was called before.
A plug-in file holds one class named after the file (`ffn_block.py` -> `FfnBlock`) that has every member of
the contract, the one Protocol class named after the kind, in `base.py` of that folder or of the one around it.
`VARIANTS = {"tiny": {...}}` in the file gives `<name>-tiny` with those constructor arguments; a variant called "" is `<name>`
itself. Options may follow a colon: `bert:sequence=384`. Other packages add parts through the entry-point group
`hwbench.<kind>`.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import hwbench
from hwbench.core.errors import UnknownName, UsageError


@lru_cache(maxsize=None)
def kinds() -> dict[str, str]:
    """Kind -> the package its parts lie in."""
    return _declared("KINDS")


def _declared(name: str) -> dict[str, str]:
    """What hwbench and the packages directly below it say under that name, together."""
    below = [f"hwbench.{module.name}" for module in pkgutil.iter_modules(hwbench.__path__) if module.ispkg]
    found: dict[str, str] = {}
    for package in ("hwbench", *below):
        found.update(getattr(importlib.import_module(package), name, {}))
    return found


def _package(kind: str) -> str:
    if kind not in kinds():
        raise UnknownName(unknown("kind", kind, kinds()))
    return kinds()[kind]


def names(kind: str) -> list[str]:
    """Every registered name of a kind, sorted; variants are listed instead of the file they come from."""
    found: list[str] = []
    for name in sorted(_targets(kind)):
        variants = _variants(kind, name)
        found += [f"{name}-{variant}" if variant else name for variant in variants or {"": {}}]
    return found


@lru_cache(maxsize=None)
def get(kind: str, name: str) -> Any:
    """The plug-in of that name, checked against its contract; one shared instance per name.

    Raises:
        UnknownName: nobody registered it; the message names the nearest ones.
        UsageError: an option after the colon is unknown or malformed.
    """
    return make(kind, name)


def make(kind: str, name: str, **extra: Any) -> Any:
    """A new instance, for plug-ins that hold state (strategies) or need arguments (objectives)."""
    base_name, _, option_text = name.partition(":")
    file_name, variant = _origin(kind, base_name)
    cls = _targets(kind)[file_name]()
    arguments = dict(_variants(kind, file_name).get(variant, {}))
    arguments.update(_parse_options(kind, name, option_text, cls, taken=arguments))
    instance = cls(**arguments, **extra)
    instance.name = name
    _check_contract(kind, instance)
    return instance


def _origin(kind: str, name: str) -> tuple[str, str]:
    """(file or entry point, variant) that a registered name comes from."""
    for target in _targets(kind):
        variants = _variants(kind, target)
        if name == target and (not variants or "" in variants):
            return target, ""
        if name.startswith(f"{target}-") and name[len(target) + 1 :] in variants:
            return target, name[len(target) + 1 :]
    if current(kind, name) != name:
        return _origin(kind, current(kind, name))
    raise UnknownName(unknown(kind, name, names(kind)))


def current(kind: str, name: str) -> str:
    """What a part is called now; a stored name may be older."""
    base, colon, options = name.partition(":")
    return hwbench.RENAMED_PARTS.get(kind, {}).get(base, base) + colon + options


def about(kind: str, name: str) -> str:
    """The first line of what a part's file says about itself."""
    module = inspect.getmodule(_targets(kind)[_origin(kind, name)[0]]())
    return (module.__doc__ or "").strip().splitlines()[0] if module else ""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The one sentence for a name that is not there."""
    known = sorted(known)
    near = difflib.get_close_matches(name.replace("_", "-"), known, n=3, cutoff=0.5)
    near = near or difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"Unknown {kind} '{name}'.{hint} Available: {', '.join(known) or 'none'}."


@lru_cache(maxsize=None)
def _targets(kind: str) -> dict[str, Any]:
    """For each name the function that imports and returns the class."""
    package = importlib.import_module(_package(kind))
    targets: dict[str, Any] = {}
    for module in pkgutil.iter_modules(package.__path__):
        if module.name != "base" and not module.ispkg:
            targets[module.name] = lambda name=module.name: _class_of(kind, name)
    for point in entry_points(group=f"hwbench.{kind}"):
        if point.name in targets:
            raise UsageError(f"Two parts call themselves {kind} '{point.name}': hwbench's own and {point.value}. Rename one.")
        targets[point.name] = point.load
    for old, new in _declared("RENAMED_KINDS").items():
        for point in entry_points(group=f"hwbench.{old}") if new == kind else ():
            raise UsageError(
                f"{_distribution(point)} registers '{point.name}' in the entry-point group hwbench.{old}, which is called "
                f"hwbench.{new} now: register it there."
            )
    return targets


def _distribution(point: EntryPoint) -> str:
    """The package that registered an entry point."""
    return f"Package {point.dist.name}" if point.dist is not None else f"Module {point.module}"


def _class_of(kind: str, name: str) -> Any:
    module = importlib.import_module(f"{_package(kind)}.{name}")
    class_name = "".join(part.capitalize() for part in name.split("_"))
    if not hasattr(module, class_name):
        path = f"{module.__name__.replace('.', '/')}.py"
        raise UsageError(f"{path} must define a class named {class_name}; it does not.")
    return getattr(module, class_name)


@lru_cache(maxsize=None)
def _variants(kind: str, name: str) -> dict[str, dict[str, Any]]:
    module = inspect.getmodule(_targets(kind)[name]())
    return getattr(module, "VARIANTS", {})


@lru_cache(maxsize=None)
def contract(kind: str) -> Any:
    """The Protocol that parts of a kind follow."""
    package = _package(kind)
    inside = any(module.name == "base" for module in pkgutil.iter_modules(importlib.import_module(package).__path__))
    base = package if inside else package.rpartition(".")[0]
    return getattr(importlib.import_module(f"{base}.base"), kind.capitalize())


def _check_contract(kind: str, instance: Any) -> None:
    wanted = contract(kind)
    members = {*wanted.__dict__, *wanted.__annotations__}
    missing = sorted(m for m in members if not m.startswith("_") and not hasattr(instance, m))
    if missing:
        cls = type(instance)
        raise UsageError(f"{kind} {cls.__module__}.{cls.__name__} lacks {', '.join(missing)} of its contract.")


def _parse_options(kind: str, name: str, text: str, cls: Any, taken: dict[str, Any]) -> dict[str, Any]:
    if not text:
        return {}
    parameters = inspect.signature(cls).parameters
    allowed = {key: p for key, p in parameters.items() if isinstance(p.default, int | float) and key not in taken}
    options: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or key not in allowed:
            raise UsageError(f"{kind} '{name}': cannot read '{part}'. Options: {', '.join(allowed) or 'none'} (name=number).")
        try:
            options[key] = type(allowed[key].default)(value)
        except ValueError:
            raise UsageError(f"{kind} '{name}': {key} must be a number, got '{value}'.") from None
    return options
