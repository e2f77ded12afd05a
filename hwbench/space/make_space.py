"""hwbench.make_space: a space by its name, or from a file of yours.

    hwbench.make_space("autoformer-tiny")          registered (`hwbench list spaces`)
    hwbench.make_space("bert:sequence=384")        with options
    hwbench.make_space("./mine.py:MySpace")        the class MySpace of mine.py, a function that makes a space, or a space

What is stored of a space from a file names it `mine.py:MySpace@1f0c9a3e`: no path, and behind the @ a fingerprint of its
choices and ops. So results of a space and of what became of it after an edit are never taken for each other, and nothing that
is stored makes anyone load code: whoever reads it gives the file again.
"""

from __future__ import annotations

import inspect
import traceback
from functools import lru_cache
from pathlib import Path
from typing import Any

from hwbench.core import contract, registry, user_code
from hwbench.core.errors import HwbenchError, UsageError
from hwbench.core.files import fingerprint
from hwbench.network.op.base import op_of
from hwbench.space import activity, slots
from hwbench.space.base import Gene, Space
from hwbench.space.lowering import Lowering

DIGITS = 8
"""Of the fingerprint in a name."""


def make_space(space: str | Space | type[Space]) -> Space:
    """A search space: its genes, and how an architecture becomes a network.

        >>> space = hwbench.make_space("autoformer-tiny")
        >>> space
        autoformer-tiny: 30 genes
        >>> space.genes[0]
        Gene(name='embed_dim', choices=(192, 216, 240), layer=None)

    Args:
        space: A registered name, options after a colon; FILE.py:NAME, whose file is executed; or a space (or its class).

    Returns:
        The one instance of that name, which everything that takes a space takes.

    Raises:
        UnknownName: nobody registered it.
        UsageError: there is no such file or name in it, it is no space, or its code fails; the message names file and line.
    """
    if isinstance(space, str) and user_code.is_reference(space) and not registry.is_registered("space", space):
        return _from_file(space)
    made: Space = registry.get("space", registry.named("space", space))
    return made


def _from_file(reference: str) -> Space:
    """The space that FILE.py:NAME names; a stored name, FILE.py:NAME@CONTENT, must have that content."""
    file, _, tail = reference.rpartition(":")
    asked = f"{file}:{tail.partition(registry.CONTENT)[0]}" if registry.CONTENT in tail else reference
    path, name = user_code.parse(asked, "space")
    space = _made(path, name, user_code.content_hash(path))
    found = f"{path.name}:{name}{registry.CONTENT}{_content(space, path, name)}"
    if asked != reference and not found.endswith(f":{tail}"):
        raise UsageError(f"{asked} was changed since it was {path.name}:{tail}; it is {found} now.")
    registry.named_by_file("space", space, found, asked)
    return space


@lru_cache(maxsize=None)
def _made(path: Path, name: str, content: str) -> Space:
    """One instance per name and content of a file: what is learnt of a space is kept per instance."""
    part: Any = user_code.load(f"{path}:{name}", "space")
    if inspect.isclass(part) and not hasattr(part, "lower"):
        raise UsageError(f"{path.name}:{name} is no space: it has no method lower.")
    if inspect.isclass(part) or (callable(part) and not hasattr(part, "lower")):
        part = _called(part, path, name)
    try:
        part.name = f"{path.name}:{name}"
    except AttributeError:
        raise UsageError(f"{path.name}:{name} is no space: it is a {type(part).__name__}.") from None
    contract.check("space", registry.contract("space"), part)
    if not part.genes or not all(isinstance(gene, Gene) for gene in part.genes):
        raise UsageError(f"{path.name}:{name} is no space: its genes must be Gene(name, choices), got {part.genes!r}.")
    made: Space = part
    return made


def _called(factory: Any, path: Path, name: str) -> Any:
    """What a class or a function without arguments makes."""
    own = inspect.signature(factory)
    try:
        own.bind()
    except TypeError:
        raise UsageError(
            f"{path.name}:{name} needs arguments {own}: write mine = {name}(...) in that file, and give {path.name}:mine."
        ) from None
    try:
        return factory()
    except (Exception, SystemExit) as error:  # whatever someone's code does
        raise _failed(error, path, name) from None


def _content(space: Space, path: Path, name: str) -> str:
    """A fingerprint of its choices and ops; all is lowered on the way, so that code that fails does so now, not in a search."""
    try:
        activity.activity(space)
        genes = [[gene.name, gene.layer, [repr(choice) for choice in gene.choices]] for gene in space.genes]
        specs = slots.distinct_specs(space)
        for spec in specs:
            op_of(spec)  # refuses an op that is unknown, or lacks a dimension
        ends = [_ops(space, [end * (len(gene.choices) - 1) for gene in space.genes]) for end in (0, 1)]
    except (Exception, SystemExit) as error:
        raise _failed(error, path, name) from None
    return fingerprint([genes, [spec.key for spec in specs], ends])[:DIGITS]


def _ops(space: Space, column: list[int]) -> list[tuple[str, int]]:
    """How often an architecture runs which ops."""
    return sorted((spec.key, n) for spec, n in space.lower(Lowering(space, column)).counts().items())


def _failed(error: BaseException, path: Path, name: str) -> UsageError:
    """One line with the place in the user's file; what hwbench itself refuses says what is wrong, wherever it was noticed."""
    inside = any(frame.filename == str(path) for frame in traceback.extract_tb(error.__traceback__))
    if not isinstance(error, HwbenchError):
        return UsageError(f"{path.name}:{name} fails: {user_code.place(error, path)}: {user_code.summary(error)}")
    return UsageError(f"{path.name}:{name} fails: {f'{user_code.place(error, path)}: ' if inside else ''}{error}")
