"""Plug-ins by file name: a file `<name>.py` in the folder of a kind is the registration of <name>.

Which kinds there are and where their folders lie is declared by the packages that own them, in their `__init__.py`:
`KINDS = {kind: package}`; `RENAMED_KINDS = {old: new}` remembers what a kind was called before.
A plug-in file holds one class named after the file (`ffn_block.py` -> `FfnBlock`) that has every member of
the contract, the one Protocol class named after the kind, in `base.py` of that folder or of the one around it.
`VARIANTS = {"tiny": {...}}` in the file gives `<name>-tiny` with those constructor arguments; a variant called "" is `<name>`
itself. Where the folder's `__init__.py` says `FULL_NAMES = True`, the keys of VARIANTS are whole names.
Options may follow a colon: `bert:sequence=384`.

Parts of other people come through the entry-point group `hwbench.<kind>`, or as objects: `named` gives an object (or a class
that makes one) a name, under which everything here finds it until the process ends. One that was loaded from a file the user
named (core/user_code.py) is such an object; its stored name never makes anyone load the file. People write names with hyphens,
files have underscores: both are understood everywhere, and a part keeps the spelling it was registered under.
"""

from __future__ import annotations

import copy
import difflib
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

import hwbench
from hwbench.core import contract as contracts
from hwbench.core import user_code
from hwbench.core.errors import UnknownName, UsageError

Answer = TypeVar("Answer")
_given: dict[tuple[str, str], Any] = {}
"""(kind, name) -> the object, or the class, a caller gave."""
_given_shared: dict[tuple[str, str], Any] = {}
"""What `get` made of a class that was given."""
_references: dict[str, tuple[str, str]] = {}
"""Name of a part from a file of code -> FILE.py:NAME as the user gave it, and with the absolute path it had then."""
FROM_FILES = ("space",)
"""Kinds whose parts may come from a file of code, by the function hwbench.make_KIND."""
CONTENT = "@"
"""What follows it in the name of a part from a file tells two contents of the file apart."""


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
    return [name for target in sorted(_targets(kind)) for name in _names_of(kind, target)]


def shown(kind: str, name: str) -> str:
    """How people write a name: with hyphens; the names of ops stand in keys and keep their underscores."""
    base, colon, options = name.partition(":")
    return name if kind == "op" or "." in base else base.replace("_", "-") + colon + options


def named(kind: str, part: Any, name: str = "") -> str:
    """The name of a part that was given by name, as an object or as its class: the one given here, its `name`, or module:Class.

    An object answers to its name in this process only. Another object of the same name takes its place.

    Raises:
        UsageError: an object breaks its contract, or has the name of another part.
    """
    if isinstance(part, str):
        return _spelled(kind, part)
    if not inspect.isclass(part) and not _is_factory(kind, part):
        contracts.check(kind, contract(kind), _with_name(part))
    own = getattr(part, "name", None)
    name = name or (own if isinstance(own, str) and own else _path(part))
    if (found := _find(kind, name.partition(":")[0])) is not None and (kind, name) not in _given:
        theirs = _targets(kind)[found[0]]()
        if theirs is not part and theirs is not type(part):
            raise UsageError(
                f"An object of {contracts.class_name(part)} calls itself {kind} '{name}', as {contracts.class_name(theirs)} "
                "does. Give it another name."
            )
        if not inspect.isclass(part) and get(kind, name) is part:
            return current(kind, name)
    if _given.get((kind, name)) is not part:
        _given[kind, name] = part
        _given_shared.pop((kind, name), None)
    return name


def named_by_file(kind: str, part: Any, name: str, reference: str) -> str:
    """The same for a part the user gave as FILE.py:NAME; `name` is FILE.py:NAME@CONTENT: no stored name holds a path."""
    path, own = user_code.parse(reference, kind)
    if not _is_factory(kind, part):
        part.name = name
    _references[name] = (reference, f"{path}:{own}")
    return named(kind, part, name)


def as_given(name: str) -> str:
    """A name as the user gives it: FILE.py:NAME with its path for a part from a file of code, any other as it is."""
    return _references[name][0] if name in _references else name


def code_of(name: str) -> str | None:
    """The name, where a command that reads it from stored data needs its file beside; None where it is registered."""
    return name if name in _references else None


def from_files() -> list[tuple[str, str, str]]:
    """(kind, name, FILE.py:NAME with its absolute path) of every part that came from a file: what `load_again` takes."""
    return [(kind, name, _references[name][1]) for kind, name in _given if name in _references]


def load_again(parts: Iterable[tuple[str, str, str]]) -> None:
    """Lets this process know what the one that started it had from files."""
    for kind, name, reference in parts:
        named_by_file(kind, user_code.load(reference, kind), name, reference)


def takes(**arguments: str) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Lets a function that takes names of parts take the parts as well, alone or in a list: argument -> kind.

    To a type checker it takes anything then: its own signature says names.
    """

    def decorate(verb: Callable[..., Answer]) -> Callable[..., Answer]:
        signature = inspect.signature(verb)

        @functools.wraps(verb)
        def call(*given: Any, **named_arguments: Any) -> Answer:
            try:
                bound = signature.bind(*given, **named_arguments)
            except TypeError:
                return verb(*given, **named_arguments)  # which says what is wrong
            for argument, kind in arguments.items():
                if (part := bound.arguments.get(argument)) is None:
                    continue
                several = isinstance(part, list | tuple)
                bound.arguments[argument] = [named(kind, each) for each in part] if several else named(kind, part)
            return verb(*bound.args, **bound.kwargs)

        return call

    return decorate


def require_registered(kind: str, name: str) -> None:
    """Raises where a part is known to this process only: another one finds parts by their registration.

    Raises:
        UsageError: it was given as an object; what came from a file is loaded there again.
    """
    if (kind, name) in _given and name not in _references:
        raise UsageError(
            f"{kind} '{name}' was given as an object, which other processes do not know: register it in the entry-point group "
            f"hwbench.{kind}, or give an executor of threads."
        )


def _spelled(kind: str, name: str) -> str:
    """A name in the hyphens and underscores it was registered with; an old name stays."""
    base, colon, options = name.partition(":")
    if (kind, name) in _given or _alike(base) in map(_alike, hwbench.RENAMED_PARTS.get(kind, {})):
        return name
    return current(kind, base) + colon + options


def _with_name(part: Any) -> Any:
    """The object; one without a name gets that of its class."""
    if not isinstance(getattr(part, "name", None), str):
        part.name = _path(part)
    return part


def _path(part: Any) -> str:
    """module:Class (or :function) of what was given."""
    origin = part if hasattr(part, "__qualname__") else getattr(part, "func", type(part))
    return f"{origin.__module__}:{origin.__qualname__}"


def _is_factory(kind: str, part: Any) -> bool:
    """Whether it makes parts: a class, or a function that is no part itself."""
    methods = [name for name, signature in contracts.members(contract(kind)).items() if signature is not None]
    return inspect.isclass(part) or (callable(part) and not any(hasattr(part, name) for name in methods))


def get(kind: str, name: str) -> Any:
    """The plug-in of that name, checked against its contract; one shared instance per name.

    Raises:
        UnknownName: nobody registered it; the message names the nearest ones.
        UsageError: an option after the colon is unknown or malformed.
    """
    if (kind, name) not in _given:
        return _shared(kind, current(kind, name))
    if not _is_factory(kind, _given[kind, name]):
        return _given[kind, name]
    if (kind, name) not in _given_shared:
        _given_shared[kind, name] = make(kind, name)
    return _given_shared[kind, name]


@lru_cache(maxsize=None)
def _shared(kind: str, name: str) -> Any:
    return make(kind, name)


def make(kind: str, name: str, **extra: Any) -> Any:
    """A new instance, for plug-ins that hold state (strategies) or need arguments (objectives)."""
    if (kind, name) in _given and not _is_factory(kind, _given[kind, name]):
        if extra:
            wanted = " and ".join(extra)
            raise UsageError(
                f"{kind} '{name}' is made anew with its {wanted}: give its class, or a function of them, no object."
            )
        return copy.deepcopy(_given[kind, name])
    factory, arguments = _factory(kind, name)
    instance = _call(kind, factory, {**arguments, **extra})
    instance.name = current(kind, name)
    contracts.check(kind, contract(kind), instance)
    return instance


def _call(kind: str, factory: Any, arguments: dict[str, Any]) -> Any:
    """What a class makes of these arguments; one from outside that cannot take them is told so."""
    if not str(factory.__module__ if hasattr(factory, "__module__") else "").startswith("hwbench."):
        try:
            inspect.signature(factory).bind(**arguments)
        except TypeError:
            own, wanted = inspect.signature(factory), f"({', '.join(arguments)})"
            raise UsageError(
                f"{kind} {_path(factory).replace(':', '.')} breaks its contract: it is made with {wanted}, its own are {own}."
            ) from None
        except ValueError:
            pass  # its signature cannot be asked
    return factory(**arguments)


def _factory(kind: str, name: str) -> tuple[Any, dict[str, Any]]:
    """(class or function, arguments of the name's own) that make a part."""
    if (kind, name) in _given:
        return _given[kind, name], {}
    base, _, options = name.partition(":")
    if kind in FROM_FILES and user_code.is_reference(name):
        raise UnknownName(_not_given(kind, name))
    if user_code.is_reference(name):
        raise UnknownName(
            f"Unknown {kind} '{name}': on the command line a file can hold a {' or a '.join(FROM_FILES)} or an accuracy "
            f"function only. In Python hwbench's functions take the {kind} itself; for the command line register it in the "
            f"entry-point group hwbench.{kind}."
        )
    if options and "=" not in options and _find(kind, base) is None:
        raise UnknownName(
            f"Unknown {kind} '{name}': it was given as an object, which this process does not know. Register it in the "
            f"entry-point group hwbench.{kind}, or give it here, too: hwbench.core.registry.named('{kind}', IT)."
        )
    target, variant = _origin(kind, base)
    cls = _targets(kind)[target]()
    arguments = dict(_variants(kind, target).get(variant, {}))
    return cls, {**arguments, **_parse_options(kind, name, options, cls, taken=arguments)}


def _not_given(kind: str, name: str) -> str:
    """What to say of a part from a file that nobody loaded here: stored data never do."""
    file, _, tail = name.rpartition(":")
    own, _, content = tail.partition(CONTENT)
    said = f"Unknown {kind} '{name}'"
    if not content:
        return f"{said}: a file of code is loaded by hwbench.make_{kind}('{name}') alone: give what that returns."
    own = f"{file.rpartition('/')[2]}:{own}"
    for other, (reference, _) in _references.items():
        if other.startswith(f"{own}{CONTENT}"):
            return f"{said}: {reference} was changed since, it is {other} now."
    return (
        f"{said}: code of a file is loaded only where you name the file: give --{kind} PATH/{own}; in Python call "
        f"hwbench.make_{kind}('PATH/{own}') first."
    )


def recipe(kind: str, name: str) -> dict[str, Any]:
    """What another process needs to make the same part: {"class": "module:Class", "arguments": {...}}.

    Raises:
        UsageError: it was given as an object that another process cannot make.
    """
    factory, arguments = _factory(kind, name)
    cls = factory if inspect.isclass(factory) else type(factory)
    if cls.__module__ == "__main__" or "<" in cls.__qualname__ or (factory is not cls and not _plain(factory, cls)):
        raise UsageError(
            f"{kind} '{name}' cannot be made in another process: its class must lie in a module, and the object must be what "
            f"{cls.__qualname__}() gives."
        )
    return {"class": f"{cls.__module__}:{cls.__qualname__}", "arguments": arguments}


def _plain(part: Any, cls: Any) -> bool:
    """Whether an object is what its class makes without arguments."""
    try:
        return bool({**vars(cls()), "name": None} == {**vars(part), "name": None})
    except TypeError:
        return False


def is_registered(kind: str, name: str) -> bool:
    """Whether a file, an entry point or an object of this process has that name."""
    return (kind, name) in _given or _find(kind, name.partition(":")[0]) is not None


def _origin(kind: str, name: str) -> tuple[str, str]:
    """(file or entry point, variant) that a registered name comes from."""
    found = _find(kind, name)
    if found is None:
        raise UnknownName(unknown(kind, name, [shown(kind, each) for each in names(kind)]))
    return found


def _find(kind: str, name: str) -> tuple[str, str] | None:
    """The same; None where nobody registered it."""
    wanted = _alike(name)
    # Files that begin like the name come first: the others need not even be imported then.
    for target in sorted(_targets(kind), key=lambda target: not wanted.startswith(_alike(target))):
        for full, variant in _names_of(kind, target).items():
            if _alike(full) == wanted:
                return target, variant
    before = {_alike(old): new for old, new in hwbench.RENAMED_PARTS.get(kind, {}).items()}
    return _find(kind, before[wanted]) if wanted in before else None


def _alike(name: str) -> str:
    """Equal for names that differ in hyphens and underscores only."""
    return name.replace("_", "-")


def _names_of(kind: str, target: str) -> dict[str, str]:
    """Name -> variant, of one file or entry point."""
    variants = _variants(kind, target) or {"": {}}
    whole = getattr(importlib.import_module(_package(kind)), "FULL_NAMES", False)
    return {key if whole and key else f"{target}-{key}" if key else target: key for key in variants}


def current(kind: str, name: str) -> str:
    """A name as it was registered, whatever its hyphens or its age; one that nobody registered stays as it is."""
    base, colon, options = name.partition(":")
    found = _find(kind, base) if (kind, name) not in _given else None
    if found is None:
        return name
    full = next(full for full, variant in _names_of(kind, found[0]).items() if variant == found[1])
    return full + colon + options


def about(kind: str, name: str) -> str:
    """The first line of what a part's file says about itself."""
    module = inspect.getmodule(_targets(kind)[_origin(kind, name)[0]]())
    return ((module and module.__doc__) or "").strip().partition("\n")[0]  # python -OO has none


def unknown(kind: str, name: str, known: Iterable[str], meant: Sequence[str] = ()) -> str:
    """The one sentence for a name that is not there; `meant` are names it stands for by more than its spelling."""
    known = sorted(known)
    alike = {_alike(each): each for each in known}
    spelled = [alike[each] for each in difflib.get_close_matches(_alike(name), list(alike), n=3, cutoff=0.5)]
    near = meant[:3] or spelled
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
    own = {_alike(name) for name in targets}
    for point in entry_points(group=f"hwbench.{kind}"):
        if _alike(point.name) in own:
            raise UsageError(f"Two parts call themselves {kind} '{point.name}': hwbench's own and {point.value}. Rename one.")
        targets[point.name] = lambda point=point: _loaded(kind, point)
    for old, new in _declared("RENAMED_KINDS").items():
        for point in entry_points(group=f"hwbench.{old}") if new == kind else ():
            raise UsageError(
                f"{_distribution(point)} registers '{point.name}' in the entry-point group hwbench.{old}, which is called "
                f"hwbench.{new} now: register it there."
            )
    return targets


def _loaded(kind: str, point: EntryPoint) -> Any:
    """The class of an entry point."""
    try:
        return point.load()
    except Exception as error:  # whatever a module of someone else's does while it is imported
        raise UsageError(
            f"{_distribution(point)} registers {kind} '{point.name}' as {point.value}, which cannot be imported: {error}."
        ) from error


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


def _parse_options(kind: str, name: str, text: str, cls: Any, taken: dict[str, Any]) -> dict[str, Any]:
    if not text:
        return {}
    parameters = inspect.signature(cls).parameters
    allowed = {key: p for key, p in parameters.items() if isinstance(p.default, int | float | str) and key not in taken}
    options: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or key not in allowed:
            raise UsageError(f"{kind} '{name}': cannot read '{part}'. Options: {', '.join(allowed) or 'none'} (name=value).")
        if key in options:
            raise UsageError(f"{kind} '{name}': {key} is given twice; leave one of them out.")
        try:
            options[key] = type(allowed[key].default)(value)
        except ValueError:
            raise UsageError(f"{kind} '{name}': {key} must be a number, got '{value}'.") from None
    return options
